"""Restores of real snapshots: equal by digest, up to every LSN and time, and killed at any moment."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tests import inside
from tests.rounds import rest_slow, some_and_all
from tests.snapshot.portable.portable_store import DISK, opened, work

from tidelog.aof import identity
from tidelog.aof.errors import Damage, NotAStore
from tidelog.aof.identity import DATA
from tidelog.aof.start import Start
from tidelog.engine.effects.apply import applier
from tidelog.engine.effects.digest import digest
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.keys.state import State
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot import portable
from tidelog.snapshot.beside import create_beside
from tidelog.snapshot.errors import SnapshotDamaged, SnapshotRefused
from tidelog.snapshot.portable import Snapshot
from tidelog.snapshot.restore import restore
from tidelog.snapshot.scrub import verify_snapshot, verify_store
from tidelog.snapshot.tail import Bound, Tail, follow
from tidelog.testing import Clock

BEGIN: Final = Start(0, 0, 1, 80, 0)


def digest_of(root: Path) -> str:
    with opened(root) as db:
        return db.digest()


def test_equal_and_writable(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        work(db, random.Random(1), 300)
        made = db.snapshot()
        expected = db.digest()
    done = restore(DISK, made.path, tmp_path / "new")
    assert (done.lsn, done.records, done.uuid) == (made.lsn, 0, made.manifest.uuid)
    assert verify_store(DISK, tmp_path / "new") == []
    assert digest_of(tmp_path / "new") == expected
    with opened(tmp_path / "new") as db:
        work(db, random.Random(2), 100)
        expected = db.digest()
    assert digest_of(tmp_path / "new") == expected
    assert verify_store(DISK, tmp_path / "new") == []
    # A snapshot of the restored store, restored again.
    again = create_beside(DISK, tmp_path / "new")
    restore(DISK, again.path, tmp_path / "newer")
    assert digest_of(tmp_path / "newer") == expected


class Past:
    """A store with one snapshot and a log that goes back to its beginning, of which every unit's end is known."""

    def __init__(self, root: Path, seed: int, steps: int) -> None:
        self.root = root
        clock = Clock()
        rng = random.Random(seed)
        with opened(root, segment_bytes=4096, clock=clock) as db:
            work(db, rng, 60)
            self.snapshot: Snapshot = db.snapshot()
            for _ in range(steps):
                if rng.random() < 0.3:
                    clock.advance(rng.randrange(1, 5))
                work(db, rng, 1)
            self.digest = db.digest()
        self.uuid = self.snapshot.manifest.uuid
        records: list[Effect] = []
        self.last = self.follow(records.extend).position.lsn
        self.ends = [lsn for lsn, record in enumerate(records, 1) if record[0] & END]

    def follow(self, apply: Callable[[list[Effect]], object], bound: Bound = Bound()) -> Tail:
        return follow(DISK, self.root / identity.AOF, self.uuid, BEGIN, apply, bound)

    def at(self, bound: Bound) -> tuple[int, str]:
        """LSN and digest of what a replay of the whole log up to a bound gives."""
        state = State()
        tail = self.follow(applier(state), bound)
        return tail.position.lsn, digest(state)


@pytest.mark.parametrize("places", some_and_all(3, 14))
@pytest.mark.parametrize("seed", rest_slow(range(2), 1))
def test_up_to_any_lsn(tmp_path: Path, seed: int, places: int) -> None:
    past = Past(tmp_path / "db", seed, 60)
    first, last = past.snapshot.lsn, past.last
    rng = random.Random(seed)
    inside = 0
    for lsn in {first, last, *rng.sample(range(first, last), places)}:
        target = tmp_path / "new"
        done = restore(DISK, past.snapshot.path, target, until_lsn=lsn)
        assert done.lsn == max(end for end in past.ends if end <= lsn)
        assert done.records == done.lsn - first
        assert (done.lsn, digest_of(target)) == past.at(Bound(lsn=lsn))
        inside += done.lsn != lsn
        shutil.rmtree(target)
    assert inside, "an LSN within a unit is the interesting one"


@pytest.mark.soak
@pytest.mark.parametrize("seed", [10])
def test_up_to_the_end_of_every_unit(tmp_path: Path, seed: int) -> None:
    past = Past(tmp_path / "db", seed, 100)
    ends = [end for end in past.ends if end >= past.snapshot.lsn]
    assert len(ends) > 50
    for lsn in ends:
        target = tmp_path / "new"
        restore(DISK, past.snapshot.path, target, until_lsn=lsn)
        assert (lsn, digest_of(target)) == past.at(Bound(lsn=lsn))
        shutil.rmtree(target)


def test_up_to_any_time(tmp_path: Path) -> None:
    past = Past(tmp_path / "db", 5, 40)
    first = past.snapshot.manifest.now_ms
    seen = set()
    for ms in (first, first + 2000, first + 7000, first + 10**9):
        target = tmp_path / "new"
        done = restore(DISK, past.snapshot.path, target, until_ms=ms)
        assert done.now_ms <= ms
        assert (done.lsn, digest_of(target)) == past.at(Bound(ms=ms))
        seen.add(done.lsn)
        shutil.rmtree(target)
    assert len(seen) >= 3


def test_with_the_log_of_elsewhere(tmp_path: Path) -> None:
    past = Past(tmp_path / "db", 6, 20)
    last = past.last
    shutil.copytree(past.snapshot.path, tmp_path / "kept")
    with pytest.raises(SnapshotRefused, match="name the log with --aof"):
        restore(DISK, tmp_path / "kept", tmp_path / "new", until_lsn=last)
    for number, aof in enumerate((past.root, past.root / "aof")):
        done = restore(DISK, tmp_path / "kept", tmp_path / f"new{number}", aof=aof)
        assert (done.lsn, done.bound) == (last, False)
        assert digest_of(done.path) == past.digest


def test_a_restored_store_as_the_past_of_another(tmp_path: Path) -> None:
    """Cut within a frame or not: what was restored up to an LSN has snapshots and a log of its own."""
    past = Past(tmp_path / "db", 7, 30)
    lsn = (past.snapshot.lsn + past.last) // 2
    restore(DISK, past.snapshot.path, tmp_path / "new", until_lsn=lsn)
    with opened(tmp_path / "new") as db:
        snapshot = db.snapshot()
        work(db, random.Random(9), 30)
        expected = db.digest()
        last = inside.log(db).next_lsn - 1
    done = restore(DISK, snapshot.path, tmp_path / "newer", until_lsn=last)
    assert digest_of(done.path) == expected
    # The log that went on otherwise is told from its own.
    with pytest.raises(SnapshotRefused, match="different histories|does not fit"):
        restore(DISK, create_beside(DISK, tmp_path / "new").path, tmp_path / "no", aof=past.root)


def test_refused_before_the_target_is_touched(tmp_path: Path) -> None:
    past = Past(tmp_path / "db", 8, 90)
    path, lsn = past.snapshot.path, past.snapshot.lsn
    last = past.last
    now = past.snapshot.manifest.now_ms
    target = tmp_path / "new"
    with pytest.raises(SnapshotRefused, match=f"through LSN {lsn}, which is beyond LSN {lsn - 1}"):
        restore(DISK, path, target, until_lsn=lsn - 1)
    with pytest.raises(SnapshotRefused, match="which is after .*; choose an older snapshot"):
        restore(DISK, path, target, until_ms=now - 1)
    with pytest.raises(SnapshotRefused, match=f"ends with LSN {last}, before LSN {last + 1}"):
        restore(DISK, path, target, until_lsn=last + 1)
    with pytest.raises(SnapshotRefused, match="directory does not exist"):
        restore(DISK, path, target, aof=tmp_path / "nothing")
    for segment in sorted((past.root / "aof").glob("*.aof"))[:-1]:
        segment.unlink()
    with pytest.raises(SnapshotRefused, match="are missing.*Choose a newer snapshot"):
        restore(DISK, path, target, until_lsn=last)
    assert not target.exists()


def test_damage_of_the_log_is_found_before_the_target_is_touched(tmp_path: Path) -> None:
    past = Past(tmp_path / "db", 8, 90)
    segment = sorted((past.root / "aof").glob("*.aof"))[-2]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    with pytest.raises(Damage):
        restore(DISK, past.snapshot.path, tmp_path / "new", until_lsn=past.last)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_damaged_data(tmp_path: Path, seed: int) -> None:
    """A flipped bit anywhere is noticed, although the manifest's hash may lie as well."""
    rng = random.Random(seed)
    with opened(tmp_path / "db") as db:
        work(db, random.Random(1), 300)
        made = db.snapshot()
        expected = db.digest()
    data = bytearray((made.path / DATA).read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    (made.path / DATA).write_bytes(data)
    assert verify_snapshot(DISK, made.path)
    with pytest.raises(SnapshotDamaged, match="BLAKE2b"):
        restore(DISK, made.path, tmp_path / "new")
    with pytest.raises((NotAStore, Damage)):
        identity.read(DISK, tmp_path / "new")
    size, hashed = portable.hashed(DISK, made.path / DATA, portable.silent, "")
    manifest = made.manifest._replace(data_bytes=size, blake2b=hashed)
    (made.path / manifests.NAME).write_bytes(manifests.render(manifest))
    try:
        restore(DISK, made.path, tmp_path / "new")
    except (Damage, SnapshotDamaged):
        return
    assert digest_of(tmp_path / "new") == expected  # a byte that means nothing


def test_a_truncated_snapshot(tmp_path: Path) -> None:
    with opened(tmp_path / "db") as db:
        work(db, random.Random(1), 300)
        made = db.snapshot()
    size = made.manifest.data_bytes
    with (made.path / DATA).open("r+b") as file:
        file.truncate(size - 4096)
    assert [finding.check for finding in verify_snapshot(DISK, made.path)] == ["snapshot"]
    with pytest.raises(SnapshotDamaged, match=f"{size - 4096} bytes, but the manifest says {size}"):
        restore(DISK, made.path, tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- killed

CHILD = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from tidelog.disk.real import RealDisk
{body}
print("ready", flush=True)
sys.stdin.readline()
run()
print("done", flush=True)
"""

CREATE = """
from tidelog.snapshot.beside import create_beside
def run():
    create_beside(RealDisk(), Path({root!r}))
"""

RESTORE = """
from tidelog.snapshot.restore import restore
def run():
    restore(RealDisk(), Path({snapshot!r}), Path({target!r}), until_lsn={lsn})
"""


def killed_after(body: str, seconds: float | None) -> float | None:
    """Run a child and kill it so long after it began; None: let it end. How long it took, if it was done before."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(path=sys.path, body=body)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        assert child.stdout.readline() == b"ready\n"
        child.stdin.write(b"go\n")
        child.stdin.flush()
        began = time.monotonic()
        if seconds is None:
            assert child.stdout.readline() == b"done\n"
            return time.monotonic() - began
        time.sleep(seconds)
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        done = b"done" in child.stdout.read()
        child.wait()
        child.stdin.close()
        child.stdout.close()
    return seconds if done else None


@pytest.mark.parametrize("kills", some_and_all(4, 12))
def test_killed_while_creating(tmp_path: Path, kills: int) -> None:
    rng = random.Random(12)
    root = tmp_path / "db"
    killed = 0
    with opened(root) as db:
        work(db, rng, 100)
        usual = killed_after(CREATE.format(root=str(root)), None)
        assert usual is not None
        for round_number in range(10 * kills):
            if round_number >= kills and killed > kills // 4:
                break
            work(db, rng, 100)
            if round_number % 3 == 1:
                db.checkpoint()
            if killed_after(CREATE.format(root=str(root)), rng.random() * usual) is None:
                killed += 1
            else:
                usual *= 0.8  # the machine was busy with something else when that was measured
            for item in portable.snapshots(DISK, root / "snapshots"):
                assert isinstance(item, Snapshot)
                assert verify_snapshot(DISK, item.path) == []
        work(db, rng, 10)
        made = create_beside(DISK, root)
        assert not made.existed
        expected = db.digest()
    assert not (root / "snapshots" / "work").exists()
    assert os.listdir(root / "snapshots" / "fold") == []
    restore(DISK, made.path, tmp_path / "new")
    assert digest_of(tmp_path / "new") == expected
    assert killed > kills // 4


@pytest.mark.parametrize("kills", some_and_all(5, 14))
def test_killed_while_restoring(tmp_path: Path, kills: int) -> None:
    past = Past(tmp_path / "db", 3, 40)
    last = past.last
    rng = random.Random(13)
    target = tmp_path / "new"
    body = RESTORE.format(snapshot=str(past.snapshot.path), target=str(target), lsn=last)
    usual = killed_after(body, None)
    assert usual is not None
    shutil.rmtree(target)
    killed = 0
    for round_number in range(10 * kills):
        if round_number >= kills and killed > kills // 4:
            break
        if killed_after(body, rng.random() * 1.2 * usual) is None:
            killed += 1
        else:
            usual *= 0.8
        try:
            identity.read(DISK, target)
        except (NotAStore, Damage):
            continue  # the next round restores into what is left
        assert verify_store(DISK, target) == []
        assert digest_of(target) == past.digest
        shutil.rmtree(target)
    assert killed > kills // 4
