"""Power goes at every operation of random workloads; recovery is itself cut short too.

Of every image that may be left: what was acknowledged is there at its level, what is there is a prefix
of whole units, and recovery never refuses. An image counts once, and not at all if it equals a clean
state: everything written so far, or nothing but what was synced. `make crash` tries many more, of whole stores.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.aof.world import Life, Past, random_step, read_back
from tests.rounds import slow_and_soak

from tidelog.aof.errors import NotAStore
from tidelog.aof.log import FSYNCED
from tidelog.disk.simulated import SimulatedDisk

IMAGES_PER_OPERATION = 8
CHANGES = {"write", "append", "fill", "truncate", "create", "rename", "unlink", "mkdir"}
SYNCS = {"fsync", "fdatasync", "sync_directory"}


class Watch:
    """Looks at images before every operation that changes a disk, and counts the distinct ones."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.seen: set[int] = set()
        self.clean: set[int] = set()
        self.interrupted: set[int] = set()

    def at(self, disk: SimulatedDisk, past: Past) -> None:
        """Have every image of `disk` at every operation from now on checked against `past`."""

        def look(operation: str, path: Path) -> None:
            if operation in CHANGES or operation in SYNCS:
                self.look(disk, past)

        disk.before = look

    def look(self, disk: SimulatedDisk, past: Past) -> None:
        killed = disk.killed()
        self.clean.add(fingerprint(killed))
        self.clean.add(fingerprint(disk.synced()))
        assert units_left(killed, past) >= past.written, "a kill lost what was acknowledged"
        for _ in range(IMAGES_PER_OPERATION):
            image = disk.power_loss(self.rng)
            name = fingerprint(image)
            if name in self.seen:
                continue
            self.seen.add(name)
            if self.rng.random() < 0.04:
                self.interrupt(image, past)
            assert units_left(image, past) >= past.fsynced, "power loss took what was durable"

    def interrupt(self, image: SimulatedDisk, past: Past) -> None:
        """Cut recovery of `image` short at each of its operations, and recover what is left then."""
        again = SimulatedDisk.of(image.tree())

        def look(operation: str, path: Path) -> None:
            if operation in CHANGES or operation in SYNCS:
                left = again.power_loss(self.rng)
                name = fingerprint(left)
                if name not in self.interrupted:
                    self.interrupted.add(name)
                    assert units_left(left, past) >= past.fsynced

        again.before = look
        units_left(again, past)

    @property
    def images(self) -> int:
        return len(self.seen | self.interrupted) - len((self.seen | self.interrupted) & self.clean)


def fingerprint(disk: SimulatedDisk) -> int:
    return hash(frozenset(disk.tree().items()))


def new_images(
    disk: SimulatedDisk, rng: random.Random, cuts: int, seen: set[int]
) -> Iterator[SimulatedDisk]:
    """The disks that a kill and some power cuts leave, without those in `seen`, which learns them."""
    for image in (disk.killed(), *(disk.power_loss(rng) for _ in range(cuts))):
        name = fingerprint(image)
        if name not in seen:
            seen.add(name)
            yield image


def units_left(disk: SimulatedDisk, past: Past) -> int:
    try:
        return past.units_in(read_back(disk))
    except NotAStore as error:  # only of a store whose creation was cut short, which cannot be
        raise AssertionError("a store under creation was refused") from error


def run(watch: Watch, seed: int, steps: int) -> None:
    """A few lives of one store, ended by a close, a kill or a power cut."""
    rng = random.Random(seed)
    disk, past = SimulatedDisk(seed), Past()
    for _ in range(rng.randint(2, 4)):
        watch.at(disk, past)
        life = Life(disk, past)
        for _ in range(rng.randint(0, steps)):
            random_step(life, rng)
        end = rng.random()
        if end < 0.3:
            life.close()
            disk.before = None
        elif end < 0.6:
            disk.kill()
        else:
            disk = disk.power_loss(rng)
            past.lost_power()


def test_every_power_cut_leaves_what_was_promised() -> None:
    watch = Watch(seed=20)
    seed = 0
    while watch.images < 400:
        seed += 1
        run(watch, seed, steps=8)
    assert seed > 3, "too few workloads"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", slow_and_soak(12, 600))
def test_many_more_power_cuts(count: int) -> None:
    watch = Watch(seed=random.randrange(1 << 32))
    first = random.randrange(1 << 32)
    for seed in range(first, first + count):
        run(watch, seed, steps=30)
    assert watch.images > 100 * count


def test_a_life_after_the_cut_goes_on() -> None:
    """A new life that begins after recovery from an image writes a log as good as any."""
    for seed in range(25):
        rng = random.Random(seed)
        disk, past = SimulatedDisk(seed), Past()
        for _ in range(6):
            life = Life(disk, past)
            for _ in range(rng.randint(1, 12)):
                random_step(life, rng)
            life.wait(FSYNCED)
            life.add()
            disk = disk.power_loss(rng)
            past.lost_power()
        assert past.units_in(read_back(disk)) >= past.fsynced
