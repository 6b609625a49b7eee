"""A power cut takes back records that a query has read: it is told which, before the store is opened again and after.

The log lies on a simulated disk, which loses any part of what was not synced.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.aof.world import ROOT, Life, Past, open_store, random_step
from tests.rounds import rest_slow

from tidelog.aof.segment import HEADER_BYTES, Position
from tidelog.crash.logs import UUID
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import Effect
from tidelog.spark.source.log.offsets import REWOUND, Log, Offset

STEPS = 12


def read_to_the_end(disk: Disk, offset: Offset) -> list[Offset]:
    """The offsets that a query has on its way, frame by frame."""
    log = Log(ROOT, disk)
    begin = log.find(offset)
    assert isinstance(begin, Position)
    tail = log.tail(begin)
    found = []
    while (stretch := tail.look()) is not None:
        found += [Offset(UUID, stretch.behind(fields)) for fields in stretch.frames]
        tail.position = stretch.end
    return found


def check(disk: Disk, read: list[Offset], kept: int, *, recovered: bool = True) -> None:
    """A query finds its place, if the records before it are among the `kept` first ones, else what it has lost.

    recovered   whether the store was opened since. Before, the frame at the place may be whole, and one before it not
    """
    log = Log(ROOT, disk)
    for offset in read:
        lsn = offset.position.lsn
        found = log.find(offset)
        if isinstance(found, Position):
            assert found.lsn == lsn and (lsn <= kept or not recovered)
        else:
            assert found.kind == REWOUND and lsn > kept, found
            assert (found.first, found.last, found.resume.lsn) == (kept + 1, lsn, kept)


@pytest.mark.parametrize("seed", rest_slow(range(160), 20))
def test_what_was_read_and_taken_back(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    rng = random.Random(seed)
    disk = SimulatedDisk(seed)
    past = Past()
    read = [Offset(UUID, Position(0, 0, 1, HEADER_BYTES, 0))]
    for _ in range(3):
        disk.real_root = tmp_path  # there is no checkpoint
        life = Life(disk, past)
        kept = life.recovered.last_lsn
        check(disk, read, kept)
        read = [offset for offset in read if offset.position.lsn <= kept]
        for _ in range(rng.randrange(STEPS)):
            random_step(life, rng)
            if rng.random() < 0.7:
                read += read_to_the_end(disk, rng.choice(read[-3:]))
        check(disk, read, life.log.next_lsn)
        disk = disk.power_loss(rng)
        past.lost_power()
        disk.real_root = tmp_path
        before = SimulatedDisk.of(disk.tree())
        before.real_root = tmp_path
        applied: list[Effect] = []
        held, recovered = open_store(disk, applied.extend)
        held.close()
        check(before, read, recovered.last_lsn, recovered=False)
