"""Power goes at every operation of a reader that sets its bookmark and of a writer that deletes segments beside it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.aof.world import ROOT, Life, Past
from tests.rounds import rest_slow

from tidelog.aof import bookmarks, identity
from tidelog.aof.bookmarks import Bookmark
from tidelog.aof.reading.reader import segment_paths
from tidelog.aof.release import release
from tidelog.crash.logs import UUID
from tidelog.disk.simulated import SimulatedDisk
from tidelog.store.keepers import keepers, void
from tidelog.store.options import Options

IMAGES = 3  # that are looked at before each operation


class World:
    """A log with small segments, its reader and its writer, which takes turns within the reader's operations."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.life = Life(self.disk, Past())
        self.tried: list[int] = []  # LSNs of bookmarks
        self.marked = -1  # the last one that `put` has returned for
        self.images = 0
        self.nested = False
        self.disk.before = self.at

    def at(self, operation: str, path: Path) -> None:
        for _ in range(IMAGES):
            self.look(self.disk.power_loss(self.rng))
        if not self.nested and identity.BOOKMARKS in str(path) and self.rng.random() < 0.5:
            self.nested = True
            self.release()
            self.nested = False

    def look(self, image: SimulatedDisk) -> None:
        self.images += 1
        found, unusable = bookmarks.bookmarks(image, ROOT, UUID)
        assert unusable == []
        lsns = [mark.lsn for mark in found]
        assert len(lsns) <= 1 and set(lsns) <= set(self.tried)
        if self.marked >= 0:
            assert lsns and lsns[0] >= self.marked
        paths = segment_paths(image, ROOT / identity.AOF)
        if lsns and paths:
            assert int(paths[0].stem) <= lsns[0] + 1

    def mark(self, lsn: int) -> None:
        self.tried.append(lsn)
        bookmarks.put(self.disk, ROOT, UUID, Bookmark("query", lsn))
        self.marked = lsn

    def release(self) -> None:
        """Delete segments as a checkpoint does that has just folded the log."""
        found, unusable = keepers(self.disk, ROOT, UUID, Options())
        assert unusable == [] and void(self.disk, ROOT, found) == {}
        folded = self.life.log.next_lsn - 1
        keep_from = min([folded, *(each.lsn for each in found)])
        release(self.disk, ROOT / identity.AOF, keep_from, 0)


@pytest.mark.parametrize("seed", rest_slow(range(60), 4))
def test_a_bookmark_names_no_deleted_position_and_is_never_half_written(seed: int) -> None:
    print("seed", seed)
    world = World(seed)
    world.mark(0)
    for _ in range(6):
        for _ in range(world.rng.randrange(4)):
            world.life.add(1, 3000)
        world.life.wait(2)
        if world.rng.random() < 0.7:
            world.mark(world.rng.randrange(world.marked, world.life.log.next_lsn))
        if world.rng.random() < 0.5:
            world.release()
    assert world.images > 100
