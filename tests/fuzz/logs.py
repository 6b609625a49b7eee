"""Logs of random histories as bytes, to be changed before their checksums are computed."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack
from tests.oracle.engine_side import Unit
from tests.oracle.played import played

from tidelog.aof import frame, identity, segment
from tidelog.aof.segment import End, SegmentHeader
from tidelog.engine.crc32c import crc32c
from tidelog.engine.effects.effect import END, EPOCH, Effect

UUID = bytes(range(16))
SEED = crc32c(UUID)
T0 = 1_700_000_000_000
INCARNATION = 0xA1
STORE = identity.render(UUID)


class Body(NamedTuple):
    """The records of a frame, and its time."""

    now: int
    records: list[Effect]


@lru_cache(maxsize=64)
def bodies(seed: int, commands: int = 15) -> list[Body]:
    """The frames of a random history, each with one unit. The first one has the EPOCH."""
    tidelog, _ = played(random.Random(seed), commands)
    found = [Body(T0, ended([(EPOCH, 1, INCARNATION)]))]
    for unit in tidelog.history:
        if isinstance(unit, Unit):
            found.append(Body(unit.now, ended([unpacked(record) for record in unit.records])))
    return found


def ended(records: list[Any]) -> list[Any]:
    """The records, of which the last one ends the unit, if it has an opcode."""
    last = records[-1]
    if not (isinstance(last, tuple) and last and isinstance(last[0], int)):
        return records
    return [*records[:-1], (last[0] | END, *last[1:])]


def unpacked(record: bytes) -> Effect:
    effect: Effect = msgpack.unpackb(record, raw=True, use_list=False)
    return effect


def packed(records: list[Any]) -> bytes:
    """The records as msgpack; one that msgpack cannot hold is left out."""
    out = []
    for record in records:
        try:
            out.append(msgpack.packb(record, use_bin_type=False))
        except (ValueError, OverflowError):
            continue
    return b"".join(out)


class Writing:
    """Segments in the making, whose checksums all hold."""

    def __init__(self) -> None:
        self.lsn = 1
        self.crc = 0
        self.files: dict[str, bytes] = {}
        self._name = ""
        self._data = bytearray()

    def roll(self, header: bytes | None = None) -> None:
        """Begin a segment."""
        self.end()
        before = End(0, 0, 0) if self.lsn == 1 else End(self.lsn - 1, self._behind, self.crc)
        made = SegmentHeader(UUID, INCARNATION, self.lsn, T0, before).pack()
        self._name = segment.file_name(self.lsn)
        self._data = bytearray(made if header is None else header)

    @property
    def _behind(self) -> int:
        return len(self._last)

    def end(self) -> None:
        self._last = bytes(self._data)
        if self._name:
            self.files[self._name] = self._last

    def frame(self, now: int, body: bytes, count: int, synced: int | None = None) -> None:
        """Add a frame."""
        behind = self.lsn - 1 if synced is None else synced
        made = frame.pack(self.lsn, count, now, behind, self.crc, body, SEED)
        self.add(made, count)

    def add(self, made: bytes, count: int) -> None:
        """Add a frame that is packed already."""
        self.crc = frame.HEADER.unpack_from(made)[8]
        self._data += made
        self.lsn += count
