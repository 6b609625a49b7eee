"""kill -9 under load beside checkpoints and snapshots: what a call returned for is there, and nothing else changed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.rounds import rest_slow
from tests.store.checkpoint.checkpoint_load import KEPT, THREADS, options
from tests.store.faults.killed import run_and_kill

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot.portable import Snapshot, snapshots
from tidelog.snapshot.scrub import HARMLESS, verify_snapshot, verify_store

DISK = RealDisk()
CHILD = Path(__file__).with_name("checkpoint_load.py")
POLICIES = ("always", "everysec", "no")
WAYS = ("loop", "snapshots", "triggers-budget-released", "triggers", "loop-budget", "loop-released")
FRESH = 8  # rounds in one directory


class Promised:
    """The promises to the killed processes of one directory."""

    def __init__(self) -> None:
        self.most: dict[tuple[str, int], int] = {}
        self.acked: dict[int, set[bytes]] = {t: set() for t in range(THREADS)}
        self.deleted: dict[int, set[int]] = {t: set() for t in range(THREADS)}
        self.lines = 0
        self.checkpoints = 0

    def take(self, lines: list[bytes]) -> None:
        for line in lines:
            kind, *words = line.decode().split()
            if kind == "c":
                self.checkpoints += 1
            elif kind == "k":
                self.acked[int(words[0])].add(words[1].encode())
            elif kind == "x":
                self.deleted[int(words[0])].add(int(words[1]))
            elif len(words) == 2:
                self.most[kind, int(words[0])] = int(words[1])
            self.lines += 1

    def check(self, db: tidelog.Store) -> None:
        for t in range(THREADS):
            self._stream(db, t)
            n = self.most.get(("g", t), 0)
            remade = [int(fields[b"n"]) for _, fields in db.xrange(f"d:{t}")]
            now = remade[0] if remade else 0
            assert now in (n, n + 1) and remade == [now] * ((now % 7 + 1) if now else 0)
            n = self.most.get(("b", t), 0)
            one, two = db.get(f"one:{t}"), db.get(f"two:{t}")
            assert one == two and int(one or 0) in (n, n + 1)
            together = [int(fields[b"n"]) for _, fields in db.xrange(f"u:{t}")]
            assert together == list(range(max(1, int(one or 0) - 49), int(one or 0) + 1))

    def _stream(self, db: tidelog.Store, t: int) -> None:
        numbers = [int(fields[b"n"]) for _, fields in db.xrange(f"w:{t}")]
        assert numbers == sorted(set(numbers)) and len(numbers) == db.xlen(f"w:{t}")
        least, most = self.most.get(("m", t), 0), self.most.get(("a", t), -1)
        assert not numbers or numbers[0] >= least, "what was trimmed came back"
        assert not self.deleted[t] & set(numbers), "what was deleted came back"
        gone = set(range(least, most + 1)) - set(numbers) - self.deleted[t]
        if len(gone) <= 1:
            self.deleted[t] |= gone  # it was not told any more
        else:  # nor was a trim
            assert len(numbers) <= KEPT and max(gone) < numbers[0], f"entries are gone: {gone}"
            self.most["m", t] = numbers[0]
        pending = {
            row["message_id"]
            for row in db.xpending_range(f"w:{t}", "g", min="-", max="+", count=10_000_000)
        }
        assert not self.acked[t] & pending, "an acknowledged XACK came back"


def replayed(root: Path, where: Path) -> str:
    """The digest of a store that has the log of this one, and no checkpoint."""
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir()
    shutil.copy(root / "STORE", where)
    shutil.copytree(root / "aof", where / "aof")
    with tidelog.open(where, fsync="no", checkpoint_bytes=0, save=()) as db:
        return db.digest()


def rounds(directory: Path, policy: str, way: str, count: int) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    promised = Promised()
    told = checkpoints = 0
    for number in range(count):
        if number % FRESH == 0:
            told, checkpoints = told + promised.lines, checkpoints + promised.checkpoints
            promised, root = Promised(), directory / f"store-{number}"
        lines = run_and_kill(root, policy, dice.uniform(0.1, 0.8), CHILD, way, lines=2)
        promised.take(lines)
        check(root, policy, way, promised, directory / "replayed")
    assert told + promised.lines > count
    print(f"{told + promised.lines} promises, {checkpoints + promised.checkpoints} checkpoints")


def check(root: Path, policy: str, way: str, promised: Promised, where: Path) -> None:
    assert [f for f in verify_store(DISK, root) if f.check not in HARMLESS] == []
    for item in snapshots(DISK, root / "snapshots"):
        assert isinstance(item, Snapshot)
        assert verify_snapshot(DISK, item.path) == []
    with tidelog.open(root, **options(policy, way.replace("triggers", ""))) as db:
        promised.check(db)
        found = db.digest()
        if "released" not in way:
            assert replayed(root, where) == found


@pytest.mark.parametrize("way", rest_slow(WAYS, 3))
def test_sigkill_beside_checkpoints(tmp_path: Path, way: str) -> None:
    rounds(tmp_path, POLICIES[WAYS.index(way) % 3], way, 1)


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_hundred_sigkills_and_eight(tmp_path: Path, policy: str, way: str) -> None:
    rounds(tmp_path, policy, way, 6)
