"""Every command that reads, on a read-only mount and on files of another user: it says the same as of the store."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import pytest
from tests.tools import spoiled
from tests.tools.broken import here
from tests.tools.conftest import Run

import tidelog
from tidelog.snapshot import scrub
from tidelog.tools import exits
from tidelog.tools.repair import look, plan

NOBODY = 65534
SYS_ADMIN = 21  # the number of the capability, without which root may not mount
KEY, QUEUE = spoiled.KEY, spoiled.QUEUE
LEFT_OUT = {
    "export": "it starts a JVM, with which tests/spark reads stores",
    "report": "it reads the files that export wrote",
    "replica verify": "it compares a follower with its leader, which is a server",
    "crash replay": "it reads a trace, not a store",
}

Line = Callable[[Path, Path], tuple[object, ...]]
"""The words of a command line for a store, and for a new name to write to."""


def lines(first: str, dead: str) -> dict[str, list[Line]]:
    """For every command that reads a store: its lines. `first`: an ID of KEY; `dead`: the ID of a dead job."""

    def at(name: str, *words: object) -> Line:
        return lambda root, to: (*name.split(), root, *words)

    def of_snapshot(name: str, *words: object) -> Line:
        return lambda root, to: (*name.split(), spoiled.snapshot_of(root), *words)

    # fmt: off
    return {
        "aof ls":     [at("aof ls"), at("aof ls", "--scan", "--json"), lambda root, to: ("aof", "ls", root / "aof")],
        "aof dump":   [at("aof dump"), at("aof dump", "--reverse", "--limit", 3), at("aof dump", "--past-damage"),
                       lambda root, to: ("aof", "dump", max((root / "aof").glob("*.aof")))],
        "aof stats":  [at("aof stats")],
        "aof plot":   [lambda root, to: ("aof", "plot", root, "-o", f"{to}.svg")],
        "aof verify": [at("aof verify"), at("aof verify", "--no-replay")],
        "aof export": [at("aof export --resp"), lambda root, to: ("aof", "export", "--resp", root, "-o", to)],
        "info":       [at("info"), at("info", "--json")],
        "digest":     [at("digest")],
        "verify":     [at("verify", "--snapshots")],
        "repair":     [at("repair"), at("repair", "--skip-damaged")],
        "state":      [at("state", "--full"), of_snapshot("state")],
        "why":        [at("why", KEY, first), of_snapshot("why", KEY, first)],
        "cat":        [at("cat", KEY), at("cat", KEY, "--csv")],
        "top":        [at("top", "--once", "--json")],
        "diff":       [lambda root, to: ("diff", root, root),
                       lambda root, to: ("diff", "--state", spoiled.snapshot_of(root), root)],
        "rdb export": [lambda root, to: ("rdb", "export", root, to)],
        "import":     [lambda root, to: ("import", to, root / "dump.rdb"),
                       lambda root, to: ("import", to, root / "dump.rdb", "--dry-run")],
        "replica status":   [at("replica status")],
        "queue ls":         [at("queue ls")],
        "queue stats":      [at("queue stats", QUEUE)],
        "queue peek":       [at("queue peek", QUEUE)],
        "queue failures":   [at("queue failures", QUEUE)],
        "queue dead ls":    [at("queue dead ls", QUEUE)],
        "queue dead show":  [at("queue dead show", QUEUE, dead)],
        "snapshot ls":      [at("snapshot ls")],
        "snapshot show":    [of_snapshot("snapshot show")],
        "snapshot verify":  [of_snapshot("snapshot verify")],
        "snapshot copy":    [lambda root, to: ("snapshot", "copy", spoiled.snapshot_of(root), to)],
        "snapshot restore": [lambda root, to: ("snapshot", "restore", spoiled.snapshot_of(root), to)],
    }
    # fmt: on


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may search: pytest's own belong to one."""
    with tempfile.TemporaryDirectory(prefix="places-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def good(place: Path, run: Run) -> Path:
    """A store with everything that lies on a disk, and a dump file beside its own files."""
    root = spoiled.store(place / "store")
    with tidelog.open(root, fsync="no", save=(), checkpoint_bytes=0) as db:
        job = db.queue(QUEUE).get("worker-1", block=0)
        assert job is not None
        job.fail("no such mailbox")
        db.checkpoint()
    assert run("rdb", "export", root, place / "dump.rdb").code == 0
    (place / "dump.rdb").rename(root / "dump.rdb")
    return root


@contextmanager
def mounted(root: Path, at: Path) -> Iterator[Path]:
    """The directory, mounted read-only at another place."""
    at.mkdir()
    subprocess.run(["mount", "--bind", str(root), str(at)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(at)], check=True)
        yield at
    finally:
        subprocess.run(["umount", "-l", str(at)], check=True)


@contextmanager
def another_user() -> Iterator[None]:
    """This process reads files as a user to whom nothing belongs."""
    groups = os.getgroups()
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, 0)
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)
        os.setgroups(groups)


def may(capability: int) -> bool:
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return bool(int(status["CapEff"], 16) >> capability & 1)


def told(run: Run, root: Path, to: Path, line: Line) -> tuple[int, str, str]:
    """The outcome of a command, without the names of the places, times that pass meanwhile, and a new store's uuid."""
    done = run(*line(root, to))
    shown = []
    for text in (done.out, done.err):
        text = text.replace(str(root), "STORE").replace(str(to), "NEW")
        text = re.sub(r"\b\d+(\.\d+)? ?(ms|s|min)\b", "TIME", text)
        shown.append(
            re.sub(r'("(time_ms|age|oldest\w*|idle\w*|taken\w*)": )[\d.]+', r"\1TIME", text)
        )
    return done.code, shown[0], shown[1]


def shortened(outcome: tuple[int, str, str]) -> str:
    code, out, err = outcome
    return f"exit code {code}, {err or out:.200}"


def compare(
    run: Run,
    good: Path,
    root: Path,
    to: Path,
    around: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Every line says of `root` what it says of the store itself. `around`: what holds while it reads `root`."""
    with tidelog.open(good, read_only=True) as db:
        ((first, _),) = db.xrange(KEY, count=1)
        dead = next(iter(db.queue(QUEUE).dead)).id
    wrong = []
    for name, each in lines(first.decode(), dead).items():
        for number, line in enumerate(each):
            new = f"{name}-{number}".replace(" ", "-")
            expected = told(run, good, to / f"own-{new}", line)
            assert expected[0] in (exits.OK, exits.DIFFERS), (name, expected)
            with around():
                found = told(run, root, to / new, line)
            if found != expected:
                wrong.append(f"{name} {number}: {shortened(found)}\n  but {shortened(expected)}")
    assert not wrong, "\n".join(wrong)


def test_the_table_has_every_command_that_reads() -> None:
    assert {*spoiled.reading(Path())} == {*lines("1-1", "1-1")} | {*LEFT_OUT}


@pytest.mark.slow
def test_a_read_only_mount(run: Run, good: Path, place: Path) -> None:
    if not may(SYS_ADMIN):
        pytest.skip(
            "not run: this user may not mount, so no directory can be made read-only for it"
        )
    with mounted(good, place / "mounted") as root:
        with pytest.raises(OSError, match="Read-only"):
            (root / "new").touch()
        compare(run, good, root, directory(place / "to"))


@pytest.mark.slow
def test_files_of_another_user(
    run: Run, good: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root can read files as another user")
    # The interpreter may lie where that user cannot start it, so a walk has no process of its own.
    for module in (look, plan, scrub):
        monkeypatch.setattr(module, "walk", here)
    for path in [good, *good.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with another_user(), pytest.raises(PermissionError):
        (good / "new").touch()
    compare(run, good, good, directory(place / "to"), another_user)


def directory(path: Path) -> Path:
    path.mkdir()
    path.chmod(0o777)
    return path
