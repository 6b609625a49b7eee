"""Another store takes the place of one: after every power cut the directory is the old store or the new one, whole."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.aof.world import ROOT, Life, Past

from tidelog.aof import identity, segment
from tidelog.aof.errors import Damage, NewerFormat
from tidelog.aof.start import Start, create_behind
from tidelog.crash.logs import UUID
from tidelog.disk import recipe
from tidelog.disk.simulated import SimulatedDisk, Tree
from tidelog.snapshot import swap
from tidelog.snapshot.swap import Swap

NEW_UUID = bytes(range(16, 32))
LSN = 4711  # the last one in the checkpoint of the new store
CHECKPOINT = f"{identity.CHECKPOINT}/{identity.DATA}"
OURS = (identity.NAME, identity.AOF, identity.CHECKPOINT)
CHANGES = {"write", "create", "rename", "move", "unlink", "mkdir", "rmdir", "truncate"}
SYNCS = {"fsync", "fdatasync", "sync_directory"}


def both(kept: bool = True) -> tuple[SimulatedDisk, Swap]:
    """A disk with an old store in ROOT, and a new one in its resync/."""
    disk = SimulatedDisk(1)
    life, rng = Life(disk, Past()), random.Random(1)
    for _ in range(20):
        life.add(1, rng.randrange(900))
    life.close()
    life.held.close()
    for name in (identity.CHECKPOINT, identity.SNAPSHOTS, f"{identity.SNAPSHOTS}/{20:020d}"):
        recipe.make_directory(disk, ROOT / name)
        recipe.publish(disk, ROOT / name / "data.mdb", b"old " + name.encode())
    new = ROOT / swap.NEW
    for path in (new.parent, new, new / identity.CHECKPOINT):
        recipe.make_directory(disk, path)
    recipe.publish(disk, new / CHECKPOINT, b"new")
    create_behind(disk, new, NEW_UUID, Start(LSN, 5, 1, 4096, 7), 0)
    aside = swap.kept(20, 0xABC) if kept else swap.OLD
    return SimulatedDisk.of(disk.tree()), Swap(NEW_UUID, LSN + 1, aside)


def of_store(disk: SimulatedDisk, root: Path, *more: str) -> Tree:
    """The files of a store, by their name in it."""
    return {
        name.removeprefix(f"{root}/"): content
        for name, content in disk.tree().items()
        if any(f"{name}/".startswith(f"{root / each}/") for each in (*OURS, *more))
    }


def swapped(disk: SimulatedDisk, asked: Swap) -> None:
    swap.begin(disk, ROOT, asked)
    assert swap.finish(disk, ROOT)


@pytest.mark.parametrize("kept", [True, False])
def test_the_new_store_is_in_its_place(kept: bool) -> None:
    disk, asked = both(kept)
    old = of_store(disk, ROOT, identity.SNAPSHOTS)
    new = of_store(disk, ROOT / swap.NEW)
    swapped(disk, asked)
    disk = disk.synced()
    assert of_store(disk, ROOT) == new
    assert identity.read(disk, ROOT) == NEW_UUID
    assert not disk.exists(ROOT / identity.SWAP) and not swap.finish(disk, ROOT)
    if kept:
        assert of_store(disk, ROOT / asked.aside, identity.SNAPSHOTS) == old
        assert not disk.exists(ROOT / identity.SNAPSHOTS)
    else:
        assert of_store(disk, ROOT, identity.SNAPSHOTS) == new | {
            name: content for name, content in old.items() if name.startswith(identity.SNAPSHOTS)
        }
        assert not disk.exists(ROOT / identity.QUARANTINE)
    assert not disk.exists(ROOT / identity.RESYNC)
    assert disk.exists(ROOT / "LOCK")


def images(
    disk: SimulatedDisk, work: Callable[[SimulatedDisk], object], rng: random.Random, count: int
) -> list[SimulatedDisk]:
    """The images of the disk that a kill or power cut may leave at any operation of `work`, each once."""
    found: dict[frozenset[tuple[str, bytes | None]], SimulatedDisk] = {}

    def look(operation: str, path: Path) -> None:
        if operation in CHANGES | SYNCS:
            for image in (disk.killed(), *(disk.power_loss(rng) for _ in range(count))):
                found.setdefault(frozenset(image.tree().items()), image)

    disk.before = look
    work(disk)
    disk.before = None
    last = disk.power_loss(rng)
    found.setdefault(frozenset(last.tree().items()), last)
    return list(found.values())


@pytest.mark.parametrize("kept", [True, False])
def test_every_power_cut_leaves_one_of_both(kept: bool) -> None:
    disk, asked = both(kept)
    old = of_store(disk, ROOT, identity.SNAPSHOTS)
    new = of_store(disk, ROOT / swap.NEW)
    rng = random.Random(2)
    seen: set[str] = set()

    def check(image: SimulatedDisk) -> None:
        if identity.read(image, ROOT) == UUID:
            seen.add("old")
            assert of_store(image, ROOT, identity.SNAPSHOTS) == old
            return
        seen.add("new")
        assert of_store(image, ROOT) == new
        if kept:
            assert of_store(image, ROOT / asked.aside, identity.SNAPSHOTS) == old

    cut = images(disk, lambda disk: swapped(disk, asked), rng, 6)
    assert len(cut) > 10
    again = 0
    for image in cut:
        if swap.pending(image, ROOT) is None:
            check(image)
            continue
        for other in images(image, lambda disk: swap.finish(disk, ROOT), rng, 2):
            swap.finish(other, ROOT)
            check(other)
            again += 1
        check(image)
    assert seen == {"old", "new"} and again > 30


def test_a_move_is_durable_in_both_directories() -> None:
    disk, asked = both()
    seen: list[tuple[str, Path]] = []
    disk.before = lambda operation, path: seen.append((operation, path))
    recipe.move(disk, ROOT / swap.NEW / identity.NAME, ROOT / "moved")
    assert seen == [
        ("move", ROOT / "moved"),
        ("sync_directory", ROOT),
        ("sync_directory", ROOT / swap.NEW),
    ]


def test_an_error_at_every_operation_is_finished_later() -> None:
    for number in range(200):
        disk, asked = both()
        new, count = of_store(disk, ROOT / swap.NEW), 0

        def fail(operation: str, path: Path) -> None:
            nonlocal count
            if operation in CHANGES | SYNCS:
                count += 1
                if count == number:  # noqa: B023 - called before the next round
                    raise OSError(errno.EIO, "broken", str(path))

        swap.begin(disk, ROOT, asked)
        disk.before = fail
        try:
            swap.finish(disk, ROOT)
        except OSError:
            disk.before = None
            swap.finish(disk, ROOT)
        disk.before = None
        assert of_store(disk, ROOT) == new
        if count < number:
            break
    assert 10 < number < 199


def test_old_parts_of_an_earlier_swap_are_not_in_the_way() -> None:
    disk, asked = both(kept=False)
    stale = ROOT / swap.OLD / identity.AOF
    for path in (stale.parent, stale):
        recipe.make_directory(disk, path)
    recipe.publish(disk, stale / "x", b"stale")
    for image in images(disk, lambda disk: swapped(disk, asked), random.Random(3), 3):
        if swap.pending(image, ROOT) is not None:
            swap.finish(image, ROOT)
            assert identity.read(image, ROOT) == NEW_UUID


def test_a_new_store_with_another_uuid_is_refused() -> None:
    disk, asked = both()
    before = disk.tree()
    with pytest.raises(Damage, match="has the uuid"):
        swap.begin(disk, ROOT, asked._replace(uuid=UUID))
    assert disk.tree() == before


def test_a_new_store_that_is_gone_leaves_SWAP() -> None:
    disk, asked = both()
    swap.begin(disk, ROOT, asked)
    recipe.remove_tree(disk, ROOT / swap.NEW)
    with pytest.raises(Damage, match="the new store is not there"):
        swap.finish(disk, ROOT)
    assert disk.exists(ROOT / identity.SWAP) and identity.read(disk, ROOT) == UUID


def test_the_file_reads_back_and_every_flipped_bit_is_found() -> None:
    asked = Swap(NEW_UUID, 4712, swap.kept(99, 1 << 63))
    data = swap.render(asked)
    assert swap.parse(ROOT / "SWAP", data) == asked
    for at in range(8 * len(data)):
        broken = bytearray(data)
        broken[at // 8] ^= 1 << at % 8
        with pytest.raises((Damage, NewerFormat)):
            swap.parse(ROOT / "SWAP", bytes(broken))
    for at in range(len(data)):
        with pytest.raises(Damage):
            swap.parse(ROOT / "SWAP", data[:at])


@pytest.mark.parametrize("aside", ["../x", "/tmp", "quarantine/../..", "aof", ""])
def test_the_old_store_goes_nowhere_else(aside: str) -> None:
    with pytest.raises(Damage):
        swap.parse(ROOT / "SWAP", swap.render(Swap(NEW_UUID, 1, aside)))


def test_readers_wait_for_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, asked = both()
    swap.wait(disk, ROOT)
    swap.begin(disk, ROOT, asked)
    monkeypatch.setattr(swap, "WAIT_S", 0.01)
    with pytest.raises(Damage, match="Open the store for writing"):
        swap.wait(disk, ROOT)
    swap.finish(disk, ROOT)
    swap.wait(disk, ROOT)


def test_the_log_of_the_new_store_is_named() -> None:
    """`lsn` says with which segment its log begins."""
    disk, asked = both()
    assert disk.listdir(ROOT / swap.NEW / identity.AOF)[0] == segment.file_name(asked.lsn)
