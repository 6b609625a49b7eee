"""A leader's log and the bytes that it ships, for tests of a follower's log."""

from __future__ import annotations

import random
from typing import Any

from tests.aof.world import ROOT, Life, Past, open_store

from tidelog.aof import segment
from tidelog.aof.frame import HEADER, HEADER_BYTES
from tidelog.aof.log import WRITTEN, Log, Policy
from tidelog.aof.received import Batch, Frames
from tidelog.aof.seek import Source, position_after
from tidelog.crash.logs import SIZES, UUID
from tidelog.disk.interface import Disk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import Effect

AOF = ROOT / "aof"


class Leader:
    """A leader's log on a disk of its own."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        self.disk = SimulatedDisk(seed)
        self.past = Past()
        self.options = options
        self.life = Life(self.disk, self.past, **options)

    def restart(self) -> None:
        self.life.close()
        self.life = Life(self.disk, self.past, **self.options)

    def fill(self, units: int, rng: random.Random) -> None:
        for _ in range(units):
            self.life.log.last_now += 1
            self.life.add(rng.randint(1, 3), rng.choice((0, 10, 100, 700)), rng.random() < 0.7)
        self.life.wait(WRITTEN)

    def source(self, lsn: int = 0) -> Source:
        position = position_after(self.disk, AOF, UUID, lsn)
        assert position is not None
        return Source(self.disk, AOF, UUID, position)

    def shipped(self, lsn: int = 0) -> bytes:
        """All bytes behind the frame that ends with `lsn`."""
        source = self.source(lsn)
        good = self.life.log.good(WRITTEN)
        pieces = []
        while piece := source.read(1000, good):
            pieces.append(piece)
        source.close()
        return b"".join(pieces)


def batches(data: bytes, lsn: int = 0, crc: int = 0, nbytes_max: int = 2000) -> list[Batch]:
    frames = Frames(UUID, lsn, crc)
    frames.put(data)
    found = []
    while batch := frames.take(nbytes_max):
        found.append(batch)
    assert not frames.buffered
    return found


def frames_in(data: bytes) -> list[bytes]:
    """The frames in the bytes of a log."""
    found, at = [], 0
    while at < len(data):
        end = at + HEADER_BYTES + HEADER.unpack_from(data, at)[1]
        found.append(data[at:end])
        at = end
    return found


class Follower:
    """One open of a follower's log. `applied` has the records that recovery found, then those received."""

    def __init__(self, disk: Disk, policy: Policy = "no", incarnation: int = 77) -> None:
        self.applied: list[Effect] = []
        self.held, self.recovered = open_store(disk, self.applied.extend)
        self.log = Log(
            disk,
            ROOT,
            UUID,
            self.recovered,
            role=segment.FOLLOWER,
            policy=policy,
            incarnation=incarnation,
            clock=lambda: 1_700_000_000_000,
            **SIZES,
        )

    def receive(self, batch: Batch) -> None:
        with self.log.lock:
            self.log.receive(batch)
        self.applied.extend(batch.records)

    def close(self) -> None:
        try:
            self.log.close()
        finally:
            self.held.close()
