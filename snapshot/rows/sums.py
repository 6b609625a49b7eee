"""Sums: a digest of all rows of a commit, in 6,148 bytes. It detects a page that belongs to an earlier commit.

Such a page passes all other checks: its structure is sound, and its rows match their checksums. So a checkpoint stores
sums over all its rows. Each row belongs to one of 1,537 parts. The sum of a part is the sum of its rows' checksums,
modulo 2^32. A commit that puts or deletes a row updates the sum of its part.

    0 to 511        rows of keys: the third and fourth byte of the hash, modulo 512
    512 to 1023     streams, their pages and entries: the number of the stream, modulo 512
    1024 to 1535    groups and their pending entries: number of the stream plus 31 times that of the group, modulo 512
    1536            expiries, and rows of an unknown kind

The row META stores the sums (field `sums`, u32 little-endian each) and belongs to no part.
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

# The first byte of a row's key is its kind. For each kind: the number of its first part, and how many leading bytes of
# the key determine the part.
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
    """The part that the row with this key belongs to."""
    kind = _KINDS.get(key[0])
    if kind is None:
        return _OTHERS
    place = key[7] << 8 | key[8] if len(key) > 8 else 0
    if kind is _OF_GROUPS:
        place += 31 * int.from_bytes(key[9:13], "big")
    return kind[0] + place % _SPREAD


def parts_of(prefix: bytes) -> range:
    """The parts that rows whose keys begin with `prefix` may belong to."""
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
    """The sums of one commit, or of a write transaction. `parts` are not reduced modulo 2^32 until `pack`."""

    def __init__(self, parts: Iterable[int] = ()) -> None:
        self.parts = list(parts) or [0] * PARTS

    def copy(self) -> Sums:
        return Sums(self.parts)

    def add(self, key: bytes, value: bytes) -> None:
        """Add a row. Its checksum is the last four bytes of `value`."""
        if key != META:
            self.parts[part_of(key)] += int.from_bytes(value[-4:], "little")

    def remove(self, key: bytes, value: bytes) -> None:
        """Subtract a row that had this value."""
        if key != META:
            self.parts[part_of(key)] -= int.from_bytes(value[-4:], "little")

    def pack(self) -> bytes:
        return _PACKED.pack(*(part & _MASK for part in self.parts))

    def differing(self, packed: bytes) -> list[int]:
        """The parts that differ from the packed sums of a commit."""
        told = _PACKED.unpack(packed)
        return [n for n, part in enumerate(self.parts) if part & _MASK != told[n]]

    @classmethod
    def unpack(cls, packed: bytes) -> Sums:
        return cls(_PACKED.unpack(packed))


def sums_in(meta: bytes | None) -> bytes | None:
    """The packed sums in the payload of the row META; None if it has none. Earlier versions wrote none."""
    try:
        fields: Any = msgpack.unpackb(meta or b"", strict_map_key=False)
        packed = fields.get("sums")
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        # A TypeError says that a flipped bit has made the key of a map a list.
        return None
    return packed if isinstance(packed, bytes) and len(packed) == _PACKED.size else None
