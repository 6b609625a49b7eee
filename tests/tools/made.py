"""Stores written byte by byte, with fixed uuid, incarnations and times, so that outputs can be compared whole."""

from __future__ import annotations

from pathlib import Path

import msgpack

from tidelog.aof import durable, frame, identity, segment
from tidelog.aof.segment import End, SegmentHeader
from tidelog.engine import idlist
from tidelog.engine.crc32c import crc32c
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import END, Effect
from tidelog.engine.streams.block import encode_run

UUID = bytes(range(16))
T0 = 1_700_000_000_000  # 2023-11-14T22:13:20Z


def ids(*pairs: tuple[int, int]) -> idlist.IdList:
    return idlist.pack([ms << 64 | seq for ms, seq in pairs])


class Made:
    """A store in the making. `unit` adds a frame of one unit, `roll` begins a segment, `write` writes it all."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lsn = 1
        self.prev = 0
        self.segments: list[tuple[str, bytearray]] = []
        self.offsets: list[int] = []  # of every frame of the last segment

    def roll(self, now: int, incarnation: int = 0xA1) -> None:
        before = End(0, 0, 0)
        if self.segments:
            before = End(self.lsn - 1, len(self.segments[-1][1]), self.prev)
        header = SegmentHeader(UUID, incarnation, self.lsn, now, before)
        self.segments.append((segment.file_name(self.lsn), bytearray(header.pack())))
        self.offsets = []

    def unit(self, now: int, *unit: Effect) -> None:
        records = [*unit[:-1], (unit[-1][0] | END, *unit[-1][1:])]
        self.raw(now, b"".join(map(packed, records)), len(records))

    def raw(self, now: int, body: bytes, count: int) -> None:
        """A frame of any body, whose checksums hold."""
        data = self.segments[-1][1]
        self.offsets.append(len(data))
        made = frame.pack(self.lsn, count, now, self.lsn - 1, self.prev, body, crc32c(UUID))
        self.prev = frame.HEADER.unpack(made[: frame.HEADER_BYTES])[8]
        data += made
        self.lsn += count

    def write(self, zeros: int = 0) -> Path:
        (self.root / identity.AOF).mkdir(parents=True, exist_ok=True)
        (self.root / identity.NAME).write_bytes(identity.render(UUID))
        for name, data in self.segments:
            (self.root / identity.AOF / name).write_bytes(data)
        with (self.root / identity.AOF / name).open("ab") as last:
            last.write(bytes(zeros))
        return self.root

    def promise(self, lsn: int, incarnation: int = 0xA1) -> None:
        """State in DURABLE that everything up to `lsn` is on the disk."""
        slot = durable.pack(UUID, incarnation, lsn)
        path = self.root / identity.AOF / durable.NAME
        path.write_bytes(slot.ljust(durable.FILE_BYTES, b"\0"))

    def path(self, number: int = -1) -> Path:
        """A segment's file."""
        return self.root / identity.AOF / self.segments[number][0]

    def paths(self) -> list[Path]:
        """The files of all segments."""
        return [self.path(number) for number in range(len(self.segments))]

    def flip(self, offset: int, number: int = -1) -> None:
        """Change one byte of a segment that was written."""
        data = bytearray(self.path(number).read_bytes())
        data[offset] ^= 0x10
        self.path(number).write_bytes(data)

    def cut(self, size: int, number: int = -1) -> None:
        """Shorten a segment that was written."""
        self.path(number).write_bytes(self.path(number).read_bytes()[:size])


def packed(effect: Effect) -> bytes:
    data: bytes = msgpack.packb(effect, use_bin_type=False)
    return data


def orders(root: Path) -> Made:
    """A store of two lives with a little of everything: the one whose outputs are kept in `expected/`."""
    made = Made(root)
    made.roll(T0)
    made.unit(T0, (e.EPOCH, 1, 0xA1))
    made.unit(T0 + 1, (e.XADD_NODE, 0, b"orders", T0 + 1, 0, (b"item", b"tea", b"n", b"2")))
    made.unit(T0 + 2, (e.XADD, 0, b"orders", T0 + 2, 0, (b"item", b'"green" tea', b"n", b"\xff")))
    made.unit(T0 + 3, (e.STREAM_CREATE, 0, b"jobs"), (e.XGROUP_CREATE, 0, b"jobs", b"g", 0, 0, -1))
    made.unit(T0 + 4, (e.XGROUP_CREATE, 0, b"orders", b"packers", 0, 0, -1))
    claimed = ids((T0 + 1, 0), (T0 + 2, 0))
    at = T0 + 1000
    made.unit(
        at,
        (e.DELIVER, 0, b"orders", b"packers", b"anna", claimed, at, 1, at, T0 + 2, 0, 2),
    )
    made.roll(T0 + 2000, incarnation=0xB2)
    made.unit(T0 + 2000, (e.EPOCH, 2, 0xB2))
    made.unit(
        T0 + 2001,
        (e.SET, 3, b"balance", b"7", -1),
        (e.SET, 3, b"session", b"x", 1 << 42),
        (e.XACK, 0, b"orders", b"packers", ids((T0 + 1, 0))),
    )
    sealed = encode_run(T0 + 3000, 0, 2, [b"n"], [b"1", b"2"])
    many = (e.XADD_MANY, 0, b"lines", T0 + 3000, 0, (), ((2, sealed),), ((b"n", b"3"),))
    made.unit(T0 + 3000, many)
    made.unit(T0 + 4000, (e.XTRIM, 0, b"lines", 2, 1, 0, 1, (), b""))
    made.write(zeros=4096)
    return made
