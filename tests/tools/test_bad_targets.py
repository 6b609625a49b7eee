"""Every command that writes to a place named on its line, against places where it cannot write.

It ends with one line and an exit code that its help names, soon, and leaves what was there as it was and nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.tools import spoiled
from tests.tools.conftest import Run
from tests.tools.test_bad_input import bounded, faults

from tidelog.tools import cli, exits

Line = Callable[[Path, Path, Path], tuple[object, ...]]
"""The words for a store, a damaged store, and the target. The store has a dump file beside its own files."""

# fmt: off
LINES: dict[str, Line] = {
    "aof plot":         lambda good, damaged, to: ("aof", "plot", good, "-o", to),
    "aof export":       lambda good, damaged, to: ("aof", "export", "--resp", good, "-o", to),
    "repair":           lambda good, damaged, to: ("repair", damaged, "--to", to),
    "rdb export":       lambda good, damaged, to: ("rdb", "export", good, to),
    "import":           lambda good, damaged, to: ("import", to, good / "dump.rdb"),
    "snapshot copy":    lambda good, damaged, to: ("snapshot", "copy", spoiled.snapshot_of(good), to),
    "snapshot restore": lambda good, damaged, to: ("snapshot", "restore", spoiled.snapshot_of(good), to),
}
# Other commands with such a place, and the reason why they are not here.
ELSEWHERE = {
    "export": "it starts a JVM, which writes; tests/spark",
    "report": "it reads the files that export wrote; tests/tools/test_report.py",
}

PLACES: dict[str, Callable[[Path], Path]] = {
    "/dev/full":              lambda place: Path("/dev/full"),
    "a link to /dev/full":    lambda place: linked(place, "/dev/full"),
    "a FIFO":                 lambda place: fifo(place),
    "a loop of links":        lambda place: linked(place, str(place)),
    "below a file":           lambda place: a_file(place) / "x.svg",
    "below a loop of links":  lambda place: linked(place, str(place)) / "x.svg",
    "a missing directory":    lambda place: place / "missing" / "x.svg",
    "a file":                 lambda place: a_file(place),
    "a directory with files": lambda place: a_file(place / "x").parent,
    "a long name":            lambda place: place / ("x" * 300),
    "not writable":           lambda place: Path("/proc/self/x.svg"),
}
# fmt: on


def linked(place: Path, to: str) -> Path:
    place.symlink_to(to)
    return place


def fifo(place: Path) -> Path:
    os.mkfifo(place)
    return place


def a_file(place: Path) -> Path:
    place.parent.mkdir(exist_ok=True)
    place.write_text("mine")
    return place


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store with a dump file, and a damaged one."""
    home = tmp_path_factory.mktemp("targets")
    good = spoiled.store(home / "good")
    assert cli.run(["rdb", "export", str(good), str(home / "dump.rdb")]) == exits.OK
    shutil.copytree(good, home / "damaged")
    (home / "dump.rdb").rename(good / "dump.rdb")
    first = min((home / "damaged" / "aof").glob("*.aof"))
    first.write_bytes(first.read_bytes()[:-10])
    return good, home / "damaged"


def test_the_table_has_every_command_that_writes_where_it_is_told() -> None:
    def writes(name: str) -> bool:
        options = {word for each in dict(spoiled.leaves())[name].params for word in each.opts}
        return bool(options & {"-o", "--output", "--to", "target", "file"})

    assert {name for name, _ in spoiled.leaves() if writes(name)} == {*LINES} | {*ELSEWHERE}


@pytest.mark.parametrize("where", rest_slow(PLACES, 4))
def test_a_target_that_cannot_be_written(
    run: Run, tmp_path: Path, stores: tuple[Path, Path], where: str
) -> None:
    wrong = []
    for name, line in LINES.items():
        home = tmp_path / name.replace(" ", "-")
        home.mkdir()
        target = PLACES[where](home / "place.svg")
        words = line(*stores, target)
        before = spoiled.listing(home)
        with bounded():
            done = run(*words)
        found = faults(name, done)
        if done.code == exits.OK:
            found.append("it did not fail")
        if spoiled.listing(home) != before:
            found.append(f"it left {spoiled.listing(home)}")
        wrong += [(" ".join(map(str, words)), *found, done)] if found else []
    assert not wrong, "\n".join(map(str, wrong))


def test_force_replaces_plain_files_only(
    run: Run, tmp_path: Path, stores: tuple[Path, Path]
) -> None:
    plot = ("aof", "plot", stores[0], "--force", "-o")
    for where in ("a link to /dev/full", "a FIFO", "a loop of links"):
        target = PLACES[where](tmp_path / f"{where.replace(chr(47), '')}.svg")
        before = spoiled.listing(tmp_path)
        done = run(*plot, target)
        assert (done.code, done.err.count("\n")) == (exits.SYSTEM, 1), done
        assert spoiled.listing(tmp_path) == before
    assert run(*plot, a_file(tmp_path / "x.svg")).code == exits.OK
    assert (tmp_path / "x.svg").read_text() != "mine"
