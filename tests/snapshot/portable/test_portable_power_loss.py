"""Publishing and pruning on the simulated disk: power goes, or the disk fails, at every operation."""

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.snapshot.portable.portable_world import ROOT, SNAPSHOTS, T0, content, data_of, make

from tidelog.aof.identity import DATA
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.snapshot import manifest as manifests
from tidelog.snapshot import portable
from tidelog.snapshot.content import Content
from tidelog.snapshot.errors import SnapshotsLocked
from tidelog.snapshot.portable import Snapshot, Unreadable

IMAGES = 12


def store(seed: int = 0) -> SimulatedDisk:
    return SimulatedDisk.of({str(ROOT): None}, seed)


def lsns(disk: Disk) -> list[int]:
    """The snapshots there are. Fails if one of them is not whole."""
    found = []
    for item in portable.snapshots(disk, SNAPSHOTS):
        assert isinstance(item, Snapshot), item
        size, _ = portable.hashed(disk, item.path / DATA, portable.silent, "")
        assert size == item.manifest.data_bytes
        file = disk.open(item.path / DATA)
        assert file.pread(size, 0) == data_of(item.lsn)
        assert set(disk.listdir(item.path)) == {DATA, manifests.NAME}
        found.append(item.lsn)
    return found


def at_every_operation(disk: SimulatedDisk, look: Callable[[SimulatedDisk], None]) -> None:
    rng = random.Random(7)

    def before(operation: str, path: Path) -> None:
        look(disk.killed())
        for _ in range(IMAGES):
            look(disk.power_loss(rng))

    disk.before = before


def test_made_and_answered_again() -> None:
    disk = store()
    first = make(disk, 7)
    assert (first.lsn, first.existed, first.path) == (7, False, SNAPSHOTS / f"{7:020d}")
    before = disk.tree()
    again = make(disk, 7)
    assert again == first._replace(existed=True)
    assert disk.tree() == {**before, str(SNAPSHOTS / "work"): None}
    make(disk, 9)
    assert lsns(disk) == [7, 9]


def test_power_loss_while_one_is_made() -> None:
    disk = store()
    make(disk, 7)
    seen = set()

    def look(image: SimulatedDisk) -> None:
        found = lsns(image)
        assert found in ([7], [7, 9])
        seen.add(len(found))
        # The next attempt sweeps what this one left, and succeeds.
        make(image, 11)
        assert lsns(image) == [*found, 11]
        assert not any("/work/" in name or "/fold/" in name for name in image.tree())

    at_every_operation(disk, look)
    make(disk, 9)
    disk.before = None
    assert lsns(disk.power_loss(random.Random(1))) == [7, 9], "what was answered is durable"
    assert seen == {1, 2}


def test_power_loss_while_pruning() -> None:
    disk = store()
    for lsn in (3, 5, 7, 9):
        make(disk, lsn)
    seen = set()

    def look(image: SimulatedDisk) -> None:
        found = lsns(image)
        assert found in ([3, 5, 7, 9], [5, 7, 9], [7, 9])
        seen.add(len(found))
        portable.prune(image, SNAPSHOTS, 1)
        assert lsns(image) == [9]

    at_every_operation(disk, look)
    pruned = portable.prune(disk, SNAPSHOTS, 2)
    disk.before = None
    assert [item.lsn for item in pruned.deleted] == [3, 5]
    assert [item.lsn for item in pruned.kept] == [7, 9]
    assert lsns(disk.power_loss(random.Random(1))) == [7, 9]
    assert seen == {4, 3, 2}
    assert not any("/work/" in name for name in disk.tree())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_disk_fails_at_every_operation(code: int) -> None:
    disk = store()
    make(disk, 7)
    disk.operations.clear()
    make(SimulatedDisk.of(disk.tree()), 9)
    count = 0
    while True:
        failing = SimulatedDisk.of(disk.tree())
        left = [count]

        def before(operation: str, path: Path) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(code, "failed", str(path))

        failing.before = before
        try:
            make(failing, 9)
        except OSError as error:
            assert error.errno == code
        if left[0] >= 0:
            break
        failing.before = None
        assert lsns(failing) in ([7], [7, 9])
        make(failing, 9)
        assert lsns(failing) == [7, 9]
        count += 1
    assert count > 20


def test_dry_run_changes_nothing() -> None:
    disk = store()
    for lsn in (3, 5):
        make(disk, lsn)
    before = disk.tree()
    pruned = portable.prune(disk, SNAPSHOTS, 0, dry_run=True)
    assert [item.lsn for item in pruned.deleted] == [3, 5]
    assert disk.tree() == before


def test_nothing_to_prune_creates_nothing() -> None:
    disk = store()
    assert portable.prune(disk, SNAPSHOTS, 0) == ([], [], [], [])
    assert list(disk.tree()) == [str(ROOT)]


def spoil(disk: SimulatedDisk, path: Path) -> None:
    file = disk.open(path, write=True)
    file.write(20, bytes([file.pread(1, 20)[0] ^ 1]))
    file.fsync()


def test_what_cannot_be_read_is_listed_and_left_alone() -> None:
    disk = store()
    for lsn in (3, 5, 7):
        make(disk, lsn)
    spoil(disk, SNAPSHOTS / f"{3:020d}" / manifests.NAME)
    (first, *_) = portable.snapshots(disk, SNAPSHOTS)
    assert isinstance(first, Unreadable) and first.path.name == f"{3:020d}"
    pruned = portable.prune(disk, SNAPSHOTS, 1)
    assert [item.lsn for item in pruned.deleted] == [5]
    assert [item.path.name for item in pruned.left] == [f"{3:020d}"]
    assert disk.exists(first.path)


def test_a_damaged_one_of_the_same_name_is_replaced() -> None:
    disk = store()
    made = make(disk, 3)
    spoil(disk, made.path / manifests.NAME)
    seen = set()
    at_every_operation(disk, lambda image: seen.add(tuple(good(image))))
    assert not make(disk, 3).existed
    assert lsns(disk) == [3]
    assert seen == {(), (3,)}


def good(disk: Disk) -> list[int]:
    return [item.lsn for item in portable.snapshots(disk, SNAPSHOTS) if isinstance(item, Snapshot)]


def test_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "WAIT_S", 0.05)
    disk = store()
    make(disk, 5)
    with portable.held(disk, SNAPSHOTS):
        with pytest.raises(SnapshotsLocked, match=f"process {os.getpid()} holds LOCK.*hangs"):
            make(disk, 7)
        with pytest.raises(SnapshotsLocked):
            portable.prune(disk, SNAPSHOTS, 1)
        assert lsns(disk) == [5]  # looking needs no lock
    make(disk, 7)


def test_what_the_medium_gives_back_counts() -> None:
    """A medium that loses a write although fsync returned is found out before anything is published."""
    disk = store()

    def copy(folder: Path) -> None:
        disk.create(folder / DATA).write(0, data_of(7))

    def look(folder: Path) -> Content:
        raise ValueError("the walk found damage")

    with portable.held(disk, SNAPSHOTS), pytest.raises(ValueError, match="damage"):
        portable.publish(disk, SNAPSHOTS, copy, look, T0)
    assert lsns(disk) == []
    assert content(7).position.lsn == 7


def test_other_names_are_none_of_its_business() -> None:
    disk = store()
    make(disk, 7)
    disk.mkdir(SNAPSHOTS / "mine")
    disk.create(SNAPSHOTS / "notes.txt").close()
    disk.mkdir(SNAPSHOTS / ("٣" * 20))
    make(disk, 8)
    assert lsns(disk) == [7, 8]
    portable.prune(disk, SNAPSHOTS, 0)
    names = disk.listdir(SNAPSHOTS)
    assert {"mine", "notes.txt", "٣" * 20} <= set(names)
