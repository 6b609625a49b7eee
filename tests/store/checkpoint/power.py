"""The steps of a store, and what has to hold after a fault at any of their calls."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.snapshot.lmdb_faults.faults import Ended, run_with_fault
from tests.store.checkpoint.checkpoint_steps import CHECKPOINTS, STEPS, digests, opened

import tidelog
from tidelog import testing
from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import Snapshot, snapshots
from tidelog.snapshot.scrub import HARMLESS, verify_snapshot, verify_store

DISK = RealDisk()
STEPS_FILE = Path(__file__).with_name("checkpoint_steps.py")
PATHS = ("data.mdb", "data.mdb.new", ".aof", "manifest.json.new")


def child(*args: str | Path) -> list[str]:
    return [sys.executable, str(STEPS_FILE), *map(str, args)]


class World:
    """The result of the steps without a fault."""

    def __init__(self, directory: Path) -> None:
        self.digests = digests(directory / "plain")
        self.root = directory / "whole"
        done = run_with_fault(child("run", self.root), paths=PATHS)
        assert done.code == 0, done.err
        self.calls = done.calls
        steps = [str(n + 1) for n in range(STEPS)]
        assert [line for line in done.out.split() if line.isdigit()] == steps
        assert done.out.count("checkpoint") == len(CHECKPOINTS)
        (made,) = snapshots(DISK, self.root / "snapshots")
        self.snapshot = made.path
        with tidelog.open(self.root, read_only=True) as db:
            assert db.digest() == self.digests[-1]

    def of_lmdb(self) -> list[int]:
        """The calls, from 1, that concern a checkpoint's or snapshot's file, and the next one of the log after each."""
        found: set[int] = set()
        for number, call in enumerate(self.calls, 1):
            if not call.path.endswith(".aof"):
                found |= {number, number + 1}
        return sorted(found & set(range(1, len(self.calls) + 1)))


def promised(ended: Ended) -> int:
    return max([0, *(int(line) for line in ended.out.split() if line.isdigit())])


def check_store(world: World, root: Path, ended: Ended) -> None:
    """The files that a process left behind open, and hold what was promised, or that and the step under way."""
    least = promised(ended)
    if root.exists():
        findings = [f for f in verify_store(DISK, root) if f.check not in HARMLESS]
        assert not findings, str(findings[0])
        for item in snapshots(DISK, root / "snapshots"):
            assert isinstance(item, Snapshot)
            assert verify_snapshot(DISK, item.path) == []
        with tidelog.open(root, read_only=True) as db:
            assert db.digest() in world.digests[least : least + 2]
    clock = testing.Clock()
    clock.advance(1000)
    with opened(root, clock) as db:
        assert db.digest() in world.digests[least : least + 2]
        db.xadd("s0", {"and": "on"})
        if least % 2:
            db.checkpoint()
        expected = db.digest()
    with opened(root, clock) as db:
        assert db.digest() == expected
        assert db.verify() == []
