"""Frames: the layout of whole units of records in a segment. All numbers little-endian.

     0       4        8             16      20       28        36     40      44       48
    +-------+--------+-------------+-------+--------+---------+------+-------+--------+------------+
    | magic | length | first LSN   | count | now    | synced  | prev | body  | header | records    |
    | u32   | u32    | u64         | u32   | u64    | u64     | u32  | u32   | u32    | [length]   |
    +-------+--------+-------------+-------+--------+---------+------+-------+--------+------------+

length     bytes of the records that follow; valid only if the header's checksum is
first LSN  sequence number of the first record, from 1; the last is first LSN + count - 1
count      records in the frame, at least 1
now        unix milliseconds of the newest unit in it; never less than in the frame before
synced     highest LSN known to be on the disk when the frame was written
prev       header checksum of the frame before, which chains the frames; 0 for the first of a store
body       CRC-32C of the records
header     CRC-32C of the store's uuid (16 bytes) followed by bytes 0..43 of this header. Because of the
           uuid, frames of another store are invalid here, even if a client puts them into an entry

The records are msgpack arrays, one after another (engine.effects.effect). The last record of every unit, and so
of every frame, has END in its opcode. A header of zeros is invalid, since its magic is wrong.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from tidelog.engine.crc32c import crc32c_after, crc32c_of

MAGIC: Final = 0xA1F4D71E
HEADER_BYTES: Final = 48
# the writer refuses a longer body; the reader treats one as damage
BODY_BYTES_MAX: Final = 128 << 20

UNCHECKED = struct.Struct("<IIQIQQII")  # all but the header's own checksum
HEADER = struct.Struct("<IIQIQQIII")
CHECKED = struct.Struct("<44sI")

assert UNCHECKED.size == 44
assert HEADER.size == CHECKED.size == HEADER_BYTES

MAGIC_BYTES: Final = MAGIC.to_bytes(4, "little")


class Frame(NamedTuple):
    """A frame that was read and checked. `offset` is that of its header in the segment."""

    offset: int
    lsn: int  # of its first record
    count: int  # type: ignore[assignment]  # not tuple.count
    now: int  # unix ms
    synced: int  # LSN
    crc: int  # of its header; the next frame's `prev`
    body: bytes


def pack(lsn: int, count: int, now: int, synced: int, prev: int, body: bytes, seed: int) -> bytes:
    """A whole frame. `seed` is the CRC-32C of the store's uuid. `Log._write` has this inlined."""
    head = UNCHECKED.pack(MAGIC, len(body), lsn, count, now, synced, prev, crc32c_of(body))
    return CHECKED.pack(head, crc32c_after(seed, head)) + body
