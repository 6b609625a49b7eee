"""A checkpoint beside a log that loses power: under every policy the file is never ahead of the log.

The log lies on a simulated disk, which loses power, names and all. The checkpoint is a real file of LMDB beside it, and
in the worst case its commit reached the disk the moment it was made. So whatever the file holds, the log has to hold on
the disk by then, and the segments that it replaces have to be there until then.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rounds import rest_slow

import tidelog
from tidelog.aof import commit
from tidelog.disk.simulated import SimulatedDisk, Tree
from tidelog.engine.rowkeys import META
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.rows.environment import Writing

ROOT = Path("/store")
DATA = ROOT / "checkpoint" / "data.mdb"
POLICIES = ("always", "everysec", "no")
IMAGES = 6  # of one moment
ROUNDS = 5


@pytest.fixture(autouse=True)
def nobody_else_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread of `everysec` waits, so that only a checkpoint, or a caller, syncs."""
    monkeypatch.setattr(commit, "EVERY_S", 3600.0)


class HalfReal(SimulatedDisk):
    """A simulated disk with one real folder in it: the checkpoint's."""

    def __init__(self, real_root: Path, seed: int = 0) -> None:
        super().__init__(seed)
        self.real_root = real_root
        (real_root / ROOT.name).mkdir(parents=True)

    @classmethod
    def holding(cls, tree: Tree, real_root: Path) -> HalfReal:
        disk = cls(real_root)
        disk._root = SimulatedDisk.of(tree)._root
        return disk

    def exists(self, path: Path) -> bool:
        place = self.beneath(path)
        assert place is not None
        return super().exists(path) or (path.is_relative_to(DATA.parent) and place[1].exists())


def opened(disk: SimulatedDisk, fsync: str) -> tidelog.Store:
    return tidelog.open(
        ROOT,
        fsync=fsync,
        disk=disk,
        segment_bytes=4096,
        checkpoint_bytes=0,
        save=(),
        retain_bytes=0,
    )


class Steps:
    """The steps of a checkpoint on log and file, in order; `seen` is called before each step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, disk: SimulatedDisk) -> None:
        self.names: list[str] = []
        self.seen: Callable[[str], object] = lambda name: None
        put, end = Writing.put, Writing.commit

        def told(name: str) -> None:
            self.seen(name)
            self.names.append(name)

        def putting(writing: Writing, key: bytes, payload: bytes) -> None:
            if key == META:
                told("META")
            put(writing, key, payload)

        def committing(writing: Writing) -> None:
            told("commit")
            end(writing)
            self.seen("committed")

        def operation(name: str, path: Path) -> None:
            if path.suffix == ".aof" and name in ("fdatasync", "unlink"):
                told("sync" if name == "fdatasync" else "release")
            elif name == "sync_directory":
                self.seen(name)

        monkeypatch.setattr(Writing, "put", putting)
        monkeypatch.setattr(Writing, "commit", committing)
        disk.before = operation


def fill(db: tidelog.Store, units: int, start: int = 0) -> Iterator[int]:
    """Units that differ; after each the last LSN."""
    for n in range(start, start + units):
        with db.pipeline(transaction=True) as unit:
            unit.xadd("s", {"n": n, "pad": "x" * 200})
            unit.set("last", n)
            unit.execute()
        yield int(db.info()["next_lsn"]) - 1


@pytest.mark.parametrize("fsync", POLICIES)
def test_sync_meta_commit_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    disk = HalfReal(tmp_path)
    with opened(disk, fsync) as db:
        *_, lsn = fill(db, 60)
        if fsync != "always":
            assert db.info()["synced_lsn"] < lsn, "or the checkpoint would have nothing to sync"
        steps = Steps(monkeypatch, disk)
        synced: dict[str, int] = {}
        steps.seen = lambda name: synced.setdefault(name, db.info()["synced_lsn"])
        assert db.checkpoint() == lsn
        disk.before = None
        order = list(dict.fromkeys(steps.names))
        assert order == [*(["sync"] if fsync != "always" else []), "META", "commit", "release"]
        assert steps.names.count("release") > 2 and steps.names.count("commit") == 1
        assert synced["META"] >= lsn and synced["commit"] >= lsn
        assert db.info()["synced_lsn"] >= lsn


@pytest.mark.parametrize("fsync", POLICIES)
def test_what_a_checkpoint_holds_is_durable_though_nobody_waited_for_it(
    tmp_path: Path, fsync: str
) -> None:
    with tidelog.open(tmp_path / "db", fsync=fsync, save=(), checkpoint_bytes=0) as db:
        *_, lsn = fill(db, 10)
        assert db.checkpoint() == lsn
        assert db.info()["synced_lsn"] >= lsn


class Cuts:
    """Opens what a power cut may leave of log and checkpoint, at each step of each checkpoint."""

    def __init__(self, disk: HalfReal, directory: Path, rng: random.Random) -> None:
        self.disk, self.directory, self.rng = disk, directory, rng
        self.digests: dict[int, str] = {}  # by the last LSN
        self.promised = 0  # on the disk, as callers were told
        self.tried = 0
        self.distinct: set[int] = set()

    def look(self, name: str) -> None:
        place = self.disk.beneath(DATA)
        assert place is not None
        _, data = place
        for _ in range(IMAGES):
            tree = self.disk.power_loss(self.rng).tree()
            held = data.read_bytes() if data.exists() else b""
            key = hash((frozenset(tree.items()), held))
            if key not in self.distinct:
                self.distinct.add(key)
                self._open(tree, held, name)

    def _open(self, tree: Tree, held: bytes, name: str) -> None:
        self.tried += 1
        at = self.directory / str(self.tried)
        image = HalfReal.holding(tree, at)
        if held:
            folder = at / ROOT.name / DATA.parent.name
            folder.mkdir()
            (folder / DATA.name).write_bytes(held)
        try:
            with opened(image, "no") as db:
                lsn, digest = int(db.info()["next_lsn"]) - 1, db.digest()
        except tidelog.TidelogError as error:
            raise AssertionError(f"power went before {name}: {error}") from error
        assert lsn >= self.promised, f"power went before {name}"
        assert digest == self.digests[lsn], f"power went before {name}, LSN {lsn}"
        shutil.rmtree(at)


@pytest.mark.parametrize("seed", rest_slow(range(2), 1))
@pytest.mark.parametrize("fsync", POLICIES)
def test_power_is_cut_around_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str, seed: int
) -> None:
    rng = random.Random(seed)
    disk = HalfReal(tmp_path / "live", seed)
    cuts = Cuts(disk, tmp_path / "cut", rng)
    with opened(disk, fsync) as db:
        cuts.digests[0] = db.digest()
        steps = Steps(monkeypatch, disk)
        started = 0
        for _ in range(ROUNDS):
            steps.seen = lambda name: None
            units = rng.randrange(2, 40)
            for lsn in fill(db, units, started):
                cuts.digests[lsn] = db.digest()
                if fsync == "always":
                    cuts.promised = lsn
            started += units
            inside: list[Any] = []

            def seen(name: str) -> None:
                # What is opened for a look writes a checkpoint of its own only if it is asked to: it is not.
                if not inside:
                    inside.append(name)
                    try:
                        cuts.look(name)
                    finally:
                        inside.clear()

            steps.seen = seen
            cuts.promised = max(cuts.promised, db.checkpoint())
            seen("the next unit")
        disk.before = None
    assert cuts.tried > 4 * ROUNDS


@pytest.mark.parametrize("fsync", POLICIES)
def test_what_a_failed_checkpoint_left_out_is_in_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    disk = HalfReal(tmp_path)

    def refused(writing: Writing) -> None:
        raise CheckpointError("no commit today")

    with opened(disk, fsync) as db:
        for _ in fill(db, 30):
            pass
        with monkeypatch.context() as patch:
            patch.setattr(Writing, "commit", refused)
            with pytest.raises(tidelog.CheckpointFailed, match="today"):
                db.checkpoint()
        db.set("after", "it")
        db.checkpoint()
        expected = db.digest()
    with opened(disk, fsync) as db:
        assert db.digest() == expected


@pytest.mark.parametrize("fsync", ["everysec", "no"])
def test_the_last_record_before_it_is_durable_too(tmp_path: Path, fsync: str) -> None:
    """All before it was synced for a caller; it was not."""
    with tidelog.open(tmp_path / "db", fsync=fsync, save=(), checkpoint_bytes=0) as db:
        db.at("fsynced").set("k", "v")
        before = int(db.info()["synced_lsn"])
        db.set("k", "w")
        assert db.info()["synced_lsn"] == before
        assert db.checkpoint() == before + 1
        assert db.info()["synced_lsn"] == before + 1
