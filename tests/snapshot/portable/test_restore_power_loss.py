"""Restoring on the simulated disk: power goes, or the disk fails, at every operation."""

import errno
import random
from pathlib import Path

import pytest
from tests.snapshot.portable.portable_world import ROOT, SNAPSHOTS, T0, UUID, data_of, make

from tidelog.aof import identity
from tidelog.aof.errors import Damage, NotAStore
from tidelog.aof.identity import DATA
from tidelog.aof.start import Start
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.snapshot import restore as restoring
from tidelog.snapshot.errors import NotASnapshot, SnapshotDamaged, SnapshotRefused
from tidelog.snapshot.place import LocalPlace
from tidelog.snapshot.portable import Snapshot, read_snapshot
from tidelog.snapshot.restore import Restored, Source, check_target, install
from tidelog.snapshot.tail import follow

TARGET = Path("/new")
LSN = 7
IMAGES = 12


def with_snapshot() -> SimulatedDisk:
    disk = SimulatedDisk.of({str(ROOT): None})
    make(disk, LSN)
    return disk


def start(disk: Disk) -> Start:
    return snapshot(disk).manifest.start


def snapshot(disk: Disk) -> Snapshot:
    return read_snapshot(disk, SNAPSHOTS / f"{LSN:020d}")


def restored(disk: Disk, target: Path = TARGET) -> Restored:
    def settle(folder: Path) -> tuple[Start, int, bool]:
        assert disk.exists(folder / DATA)
        return start(disk), 0, False

    found = snapshot(disk)
    source = Source(LocalPlace(disk, found.path), found.manifest)
    return install(disk, source, target, settle, T0)


def what_is_there(disk: Disk) -> str:
    """`store`, `nothing` or `unfinished`. Fails for anything else."""
    if not disk.exists(TARGET):
        return "nothing"
    names = set(disk.listdir(TARGET))
    try:
        assert identity.read(disk, TARGET) == UUID
    except (NotAStore, Damage) as error:
        check_target(disk, TARGET)  # it can be restored into again
        assert "RESTORING" not in names or "it contains an unfinished restore" in str(error)
        # A directory with nothing but a lock can also become a new store. Anything else is refused and says what it is.
        if not names - {"LOCK"}:
            return "nothing"
        assert not identity.is_new(disk, TARGET)
        assert {"RESTORING", "RESTORING.new"} & names, names
        return "unfinished"
    file = disk.open(TARGET / "checkpoint" / DATA)
    assert file.pread(1 << 20, 0) == data_of(LSN)
    assert "DURABLE" in disk.listdir(TARGET / "aof")
    tail = follow(disk, TARGET / "aof", UUID, start(disk), lambda records: None)
    assert (tail.position.lsn, tail.records) == (LSN, 0)
    with pytest.raises(SnapshotRefused, match="contains a store already"):
        check_target(disk, TARGET)
    return "store"


def test_restored() -> None:
    disk = with_snapshot()
    done = restored(disk)
    assert done == (TARGET, UUID, LSN, T0 + LSN, 0, False)
    assert what_is_there(disk) == "store"
    assert disk.listdir(TARGET) == ["LOCK", "STORE", "aof", "checkpoint"]
    assert what_is_there(disk.power_loss(random.Random(3))) == "store"
    assert disk.listdir(disk_path := TARGET / "checkpoint") == [DATA], disk_path


def test_power_loss_at_every_operation() -> None:
    disk = with_snapshot()
    rng = random.Random(11)
    seen: dict[str, int] = {}

    def look(image: SimulatedDisk) -> None:
        there = what_is_there(image)
        seen[there] = seen.get(there, 0) + 1
        if there != "store":
            restored(image)
            assert what_is_there(image) == "store"
            assert image.listdir(TARGET) == ["LOCK", "STORE", "aof", "checkpoint"]

    def before(operation: str, path: Path) -> None:
        look(disk.killed())
        for _ in range(IMAGES):
            look(disk.power_loss(rng))

    disk.before = before
    restored(disk)
    assert set(seen) == {"nothing", "unfinished", "store"}


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_disk_fails_at_every_operation(code: int) -> None:
    count = 0
    while True:
        disk = with_snapshot()
        left = [count]

        def before(operation: str, path: Path) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(code, "failed", str(path))

        disk.before = before
        try:
            restored(disk)
        except OSError as error:
            assert error.errno == code
        disk.before = None
        if left[0] >= 0:
            break
        if what_is_there(disk) != "store":
            restored(disk)
            assert what_is_there(disk) == "store"
        count += 1
    assert count > 40


def test_a_changed_byte_is_noticed_while_copying() -> None:
    disk = with_snapshot()
    file = disk.open(snapshot(disk).path / DATA, write=True)
    file.write(4321, b"!")
    with pytest.raises(SnapshotDamaged, match="BLAKE2b.*the data was changed"):
        restored(disk)
    assert what_is_there(disk) == "unfinished"


def test_only_one_at_a_time() -> None:
    disk = with_snapshot()
    disk.mkdir(TARGET)
    held = disk.lock(TARGET / "LOCK")
    assert held is not None
    with pytest.raises(SnapshotRefused, match="is being restored or used by"):
        restored(disk)
    held.unlock()


# fmt: off
@pytest.mark.parametrize(("tree", "reason"), [
    ({"/new": None, "/new/STORE": b""}, "contains a store already"),
    ({"/new": None, "/new/notes.txt": b""}, r"not empty \(it contains notes.txt\)"),
    ({"/new": None, "/new/aof": None}, r"not empty \(it contains aof\)"),
    ({"/new": None, "/new/RESTORING": b"", "/new/mine": b""}, r"not empty \(it contains mine\)"),
    ({"/new": b""}, "is not a directory"),
])
# fmt: on
def test_a_target_that_is_not_empty(tree: dict[str, bytes | None], reason: str) -> None:
    disk = with_snapshot()
    full = SimulatedDisk.of({**disk.tree(), **tree})
    before = full.tree()
    with pytest.raises(SnapshotRefused, match=reason):
        restoring.restore(full, snapshot(full).path, TARGET, created_ms=T0)
    assert full.tree() == before


def test_what_is_no_snapshot() -> None:
    disk = with_snapshot()
    with pytest.raises(NotASnapshot, match="it is a store"):
        restoring.restore(disk, ROOT, TARGET, created_ms=T0)
    assert not disk.exists(TARGET)
