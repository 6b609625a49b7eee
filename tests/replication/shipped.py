"""A leader's log for tests of a link: whole frames, and a source that ships them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgpack

from tidelog.aof import frame
from tidelog.engine.crc32c import crc32c
from tidelog.engine.effects.effect import END, SET

UUID = bytes(range(16))
GOOD = (1, 0)  # what `Log.good` says; the source of these tests has it all in memory


class End(NamedTuple):
    lsn: int
    crc: int


class Shipped:
    """Frames with these numbers of records, one millisecond apart, behind `end`."""

    def __init__(
        self, counts: Iterable[int], end: End = End(0, 0), now: int = 1000, padding: int = 5
    ) -> None:
        self.frames: list[bytes] = []
        self.ends: list[End] = []  # of each frame
        self.now = now
        self._at = 0
        for count in counts:
            self.now += 1
            value = b"v" * padding
            records = [(SET, 0, b"k%d" % (end.lsn + 1 + i), value, -1) for i in range(count)]
            records[-1] = (SET | END, *records[-1][1:])
            body = b"".join(msgpack.packb(record) for record in records)
            whole = frame.pack(end.lsn + 1, count, self.now, 0, end.crc, body, crc32c(UUID))
            end = End(end.lsn + count, int.from_bytes(whole[44:48], "little"))
            self.frames.append(whole)
            self.ends.append(end)

    @property
    def data(self) -> bytes:
        return b"".join(self.frames)

    @property
    def end(self) -> End:
        return self.ends[-1]

    def read(self, nbytes_max: int, good: tuple[int, int]) -> bytes:
        assert good == GOOD and nbytes_max > 0
        data = self.data[self._at : self._at + nbytes_max]
        self._at += len(data)
        return data

    def at_end(self, good: tuple[int, int]) -> bool:
        return self._at == len(self.data)
