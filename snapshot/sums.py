"""Sums: which rows a commit holds, in 6,148 bytes, so that a page of an earlier commit is noticed.

A page that an earlier commit wrote is whole: its structure is sound, and its rows match their checksums. So a
checkpoint says of all its rows together what they are. Each row belongs to one of 1,537 parts, and the sum of a part is
the sum of its rows' checksums, modulo 2^32. A commit that puts or deletes a row corrects the sum of its part.

    0 to 511        rows of keys: the third and fourth byte of the hash, modulo 512
    512 to 1023     streams, their pages and entries: the number of the stream, modulo 512
    1024 to 1535    groups and their pending entries: number of the stream plus 31 times that of the group, modulo 512
    1536            expiries, and rows of a kind that is not known

The row that describes the checkpoint holds the sums (field `sums`, u32 little-endian each) and is in none of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

import msgpack

from tidelog.engine.rowkeys import CHUNK, DATA, GROUP, KEY, META, PAGE, STREAM

PARTS: Final = 1537
_SPREAD: Final = 512
_OTHERS: Final = PARTS - 1
_PACKED: Final = struct.Struct(f"<{PARTS}I")
_MASK: Final = 0xFFFFFFFF
assert _PACKED.size == 6148

# By the first byte of a row's key: the first of its parts, and so many bytes say which of them it is.
_OF_KEYS: Final = (0, 9)
_OF_STREAMS: Final = (_SPREAD, 9)
_OF_GROUPS: Final = (2 * _SPREAD, 13)
_KINDS: Final = {
    KEY[0]: _OF_KEYS,
    STREAM[0]: _OF_STREAMS,
    PAGE[0]: _OF_STREAMS,
    DATA[0]: _OF_STREAMS,
    GROUP[0]: _OF_GROUPS,
    CHUNK[0]: _OF_GROUPS,
}


def part_of(key: bytes) -> int:
    """Which part a row belongs to."""
    kind = _KINDS.get(key[0])
    if kind is None:
        return _OTHERS
    place = key[7] << 8 | key[8] if len(key) > 8 else 0
    if kind is _OF_GROUPS:
        place += 31 * int.from_bytes(key[9:13], "big")
    return kind[0] + place % _SPREAD


def parts_of(prefix: bytes) -> range:
    """Which parts the rows may belong to whose keys begin with `prefix`."""
    if prefix == META:
        return range(0)
    if not prefix:
        return range(PARTS)
    first, nbytes = _KINDS.get(prefix[0], (_OTHERS, 0))
    if len(prefix) >= nbytes:
        part = part_of(prefix)
        return range(part, part + 1)
    return range(first, first + _SPREAD)


def part_name(part: int) -> str:
    """A part in words."""
    if part == _OTHERS:
        return "the expiries"
    kind = ("keys", "streams", "groups")[part // _SPREAD]
    return f"part {part % _SPREAD} of {_SPREAD} of the {kind}"


class Sums:
    """The sums of one commit, or of one that is being made."""

    def __init__(self, parts: Iterable[int] = ()) -> None:
        self.parts = list(parts) or [0] * PARTS

    def copy(self) -> Sums:
        return Sums(self.parts)

    def add(self, key: bytes, value: bytes) -> None:
        """Count a row with this value, which ends with its checksum."""
        if key != META:
            self.parts[part_of(key)] += int.from_bytes(value[-4:], "little")

    def remove(self, key: bytes, value: bytes) -> None:
        """The row with this value is there no more."""
        if key != META:
            self.parts[part_of(key)] -= int.from_bytes(value[-4:], "little")

    def pack(self) -> bytes:
        return _PACKED.pack(*(part & _MASK for part in self.parts))

    def differing(self, packed: bytes) -> list[int]:
        """The parts in which this differs from what a commit said."""
        told = _PACKED.unpack(packed)
        return [n for n, part in enumerate(self.parts) if part & _MASK != told[n]]

    @classmethod
    def unpack(cls, packed: bytes) -> Sums:
        return cls(_PACKED.unpack(packed))


def sums_in(meta: bytes | None) -> bytes | None:
    """The packed sums in the payload of the row META; None if it has none, as of a version that made none."""
    try:
        fields: Any = msgpack.unpackb(meta or b"", strict_map_key=False)
        packed = fields.get("sums")
    except (ValueError, AttributeError, msgpack.UnpackException):
        return None
    return packed if isinstance(packed, bytes) and len(packed) == _PACKED.size else None
