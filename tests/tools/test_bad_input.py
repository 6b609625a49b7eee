"""Every command, and every place where a path can stand, against files that are not what the command expects.

The command ends with one line that says what is wrong, with an exit code that its help names, without a traceback, in
bounded memory. It leaves nothing half-made, and the files as they were.
"""

from __future__ import annotations

import random
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.rounds import rest_slow, slow_and_soak
from tests.tools import spoiled
from tests.tools.conftest import Done, Run
from tests.tools.spoiled import KINDS, PLACES, Line

from tidelog.disk.real import RealFile
from tidelog.tools import exits
from tidelog.tools.importing import pieces

COMMANDS = dict(spoiled.leaves())
CODES = {name: spoiled.codes_of(command) for name, command in COMMANDS.items()}
MEMORY_BYTES = 256 << 20
MARKS = ("COPYING", "RESTORING")
STARTS_JAVA = {"report"}  # if the store is there


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return spoiled.store(tmp_path_factory.mktemp("bad-input") / "good")


def lines_of(good: Path) -> list[tuple[str, Line]]:
    tables = spoiled.reading(good), spoiled.changing()
    return [(name, line) for table in tables for name, each in table.items() for line in each]


@contextmanager
def bounded() -> Iterator[None]:
    """Fail if the block takes more memory than it may."""
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (held + MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def faults(name: str, done: Done, *, many: bool = False) -> list[str]:
    """The faults in the way in which a command ended. `many`: it goes on behind damage."""
    found = []
    if done.code not in CODES[name]:
        found.append("its help does not name the exit code")
    if "Traceback" in done.out + done.err:
        found.append("a traceback")
    told = done.err.splitlines()
    if done.code == exits.OK:
        fine = True  # what it says is not an error: losses of an export, for example
    elif told and done.code == exits.USAGE:
        fine = told[-1].startswith(("Error: ", "tidelog: "))
    elif told:
        fine = (many or len(told) == 1) and all(line.startswith("tidelog: ") for line in told)
    else:
        fine = bool(done.out)  # a report that names the damage
    return found if fine else [*found, "not one line"]


def left(to: Path) -> list[str]:
    """The files that a command which failed has left, and that nothing marks as unfinished.

    A copy or a restore that stops leaves a mark, and the same command continues it. LOCK is never removed: another
    process may wait for it.
    """
    unfinished = {path.parent for mark in MARKS for path in to.rglob(mark)}
    return [
        name
        for name, *_ in spoiled.listing(to)
        if name not in ("new", "new/LOCK") and not unfinished & {to / name, *(to / name).parents}
    ]


def test_the_help_names_exit_codes() -> None:
    assert {*spoiled.reading(Path()), *spoiled.changing()} <= {*COMMANDS}
    assert all(CODES[name] >= {exits.OK, exits.USAGE} for name in COMMANDS)
    assert {exits.VERIFY_TAIL, exits.VERIFY_FILES} <= CODES["verify"]


@pytest.mark.parametrize("kind", rest_slow(KINDS, 2))
def test_a_path_where_nothing_of_ours_is(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(pieces, "WRITER_S", 0.1)
    bad, to = tmp_path / "bad", tmp_path / "to"
    wrong = []
    for name, line in lines_of(good):
        KINDS[kind](bad, good)
        to.mkdir()
        before = spoiled.listing(tmp_path), spoiled.listing(good)
        words = line(bad, to)
        with bounded():
            done = run(*words)
        found = faults(name, done)
        if done.code == exits.OK or not done.err:
            found.append("it did not fail")
        if left(to):
            found.append(f"it left {left(to)}")
        shutil.rmtree(to)
        to.mkdir()
        if (spoiled.listing(tmp_path), spoiled.listing(good)) != before:
            found.append("it changed a file")
        wrong += [(" ".join(map(str, words)), *found, done)] if found else []
        shutil.rmtree(to)
        spoiled.clear(bad)
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("count", [25, *slow_and_soak(250, 4000)])
def test_a_store_with_something_else_inside(
    run: Run, good: Path, tmp_path: Path, count: int
) -> None:
    """Any file of a store or a snapshot may be another kind of file, cut, changed or too long."""
    rng = random.Random(count)
    lines = [each for each in lines_of(good) if each[0] not in STARTS_JAVA]
    changing = {line for each in spoiled.changing().values() for line in each}
    wrong = []
    for number in range(count):
        name, line = rng.choice(lines)
        root, to = tmp_path / f"{number}" / "store", tmp_path / f"{number}" / "to"
        shutil.copytree(good, root)
        to.mkdir()
        of_snapshot = name.startswith("snapshot") and line in spoiled.of_a_snapshot(good)
        path = spoiled.snapshot_of(root) if of_snapshot else root
        place = spoiled.place(root, rng.choice(PLACES))
        if place.is_file() and rng.random() < 0.5:
            kind = spoiled.bytes_spoiled(place, rng)
        else:
            kind = rng.choice([*KINDS])
            spoiled.clear(place)
            KINDS[kind](place, good)
        before = spoiled.listing(root)
        words = line(path, to)
        with bounded():
            done = run(*words)
        found = faults(name, done, many="--past-damage" in words)
        if line not in changing and spoiled.listing(root) != before:
            found.append("it changed a file")
        if done.code != exits.OK and left(to):
            found.append(f"it left {left(to)}")
        said = f"{place.relative_to(root)}: {kind}: {' '.join(map(str, words))}"
        wrong += [(said, *found, done)] if found else []
        shutil.rmtree(root.parent)
    assert not wrong, "\n".join(map(str, wrong))


# --- files that change while they are read


def vanishes(path: Path) -> None:
    path.unlink(missing_ok=True)


def shrinks(path: Path) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size // 2)


def grows(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\xa5" * 5000)


@pytest.mark.timeout(1800)  # the soak takes some minutes
@pytest.mark.parametrize("count", [15, *slow_and_soak(150, 3000)])
def test_files_that_change_while_they_are_read(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    rng = random.Random(count)
    lines = [
        (name, line)
        for name, each in spoiled.reading(good).items()
        for line in each
        if name not in STARTS_JAVA
    ]
    acted, wrong = 0, []
    for number in range(count):
        name, line = rng.choice(lines)
        root, to = tmp_path / f"{number}" / "store", tmp_path / f"{number}" / "to"
        shutil.copytree(good, root)
        to.mkdir()
        of_snapshot = name.startswith("snapshot") and line in spoiled.of_a_snapshot(good)
        path = spoiled.snapshot_of(root) if of_snapshot else root
        act: Callable[[Path], None] = rng.choice((vanishes, shrinks, grows))
        target = rng.choice([file for file in root.rglob("*") if may(act, file)])
        reads = Reads(rng.choice((1, 2, 3, 5, 8, 13, 21)), act, target)
        words = line(path, to)
        with monkeypatch.context() as patched:
            reads.hook(patched)
            with bounded():
                done = run(*words)
        relative = target.relative_to(root)
        said = f"{act.__name__} {relative} at read {reads.at}: {' '.join(map(str, words))}"
        if found := faults(name, done, many="--past-damage" in words):
            wrong.append((said, *found, done))
        acted += reads.count >= reads.at
        shutil.rmtree(root.parent)
    assert not wrong, "\n".join(map(str, wrong))
    assert acted > count // 3


READS_LOG = ("aof ls", "aof dump", "aof stats", "aof verify", "repair", "why", "diff")


@pytest.mark.parametrize("name", rest_slow(READS_LOG, 2))
def test_a_segment_that_goes_or_shrinks_at_any_read(
    run: Run, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As a writer that releases it, and a follower that gives records up, which may do it at any moment."""
    wrong, acted = [], 0
    middle = sorted((good / "aof").glob("*.aof"))[2].name
    for act in (vanishes, shrinks):
        for at in range(1, 40):
            root = tmp_path / f"{act.__name__}-{at}" / "store"
            shutil.copytree(good, root)
            reads = Reads(at, act, root / "aof" / middle)
            words = spoiled.reading(good)[name][0](root, tmp_path)
            with monkeypatch.context() as patched:
                reads.hook(patched)
                done = run(*words)
            if found := faults(name, done):
                wrong.append((f"{act.__name__} at read {at}", *found, done.err))
            if reads.count < at:
                break
            acted += 1
    assert acted > 10
    assert not wrong, "\n".join(map(str, wrong))


def may(act: Callable[[Path], None], file: Path) -> bool:
    """A mapped file that shrinks takes its pages from every process that reads it; nothing makes data.mdb shorter."""
    return file.is_file() and not (act is shrinks and file.suffix == ".mdb")


class Reads:
    """Does something to a file at the n-th read of any file."""

    def __init__(self, at: int, act: Callable[[Path], None], target: Path) -> None:
        self.at, self.act, self.target = at, act, target
        self.count = 0

    def hook(self, patched: pytest.MonkeyPatch) -> None:
        pread = RealFile.pread

        def read(file: RealFile, length: int, offset: int) -> bytes:
            self.count += 1
            if self.count == self.at:
                self.act(self.target)
            return pread(file, length, offset)

        patched.setattr(RealFile, "pread", read)
