"""Segments: the files of the log, `<first LSN, 20 digits>.aof`. All numbers little-endian.

     0        8         12     16           32            40          48      56           64
    +--------+---------+------+------------+-------------+-----------+-------+------------+
    | magic  | version | role | store uuid | incarnation | first LSN | time  | before:    |
    | 8      | u32     | u32  | 16         | u64         | u64       | u64   | LSN u64    |
    +--------+---------+------+------------+-------------+-----------+-------+------------+
     64             72           76       80
    +--------------+------------+--------+--------------------
    | before:      | before:    | header | frames, then zeros
    | offset u64   | CRC u32    | u32    |
    +--------------+------------+--------+--------------------

role         1: frames of this machine's own life as leader. 2: frames received from a leader, whose
             `synced` says nothing about this disk
incarnation  random number of the life that writes the segment; only one life writes to a segment
time         unix milliseconds of its creation
before       the end of the previous segment: its last LSN, the offset after its last frame, and that
             frame's header CRC. That segment was fsynced whole before this one got its name. In the
             first segment of a store: 0, 0, 0; of a restored store: its checkpoint's LSN, 0, CRC
header       CRC-32C of bytes 0..75

The header is on the disk before the file gets its name, so a segment without a whole header is damaged.
After the last frame come zeros (space prepared for writing) or the end of the file.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof.errors import DamagedFile, NewerFormat
from tidelog.engine.crc32c import crc32c_of

MAGIC: Final = b"tidelog\n"
VERSION: Final = 1
HEADER_BYTES: Final = 80

LEADER: Final = 1
FOLLOWER: Final = 2

UNCHECKED = struct.Struct("<8sII16sQQQQQI")
assert UNCHECKED.size == 76

SUFFIX: Final = ".aof"
# a file prepared for the next segment; it gets a segment's name when it is used
SPARE: Final = "spare"


class End(NamedTuple):
    """The end of a segment's frames: last LSN, offset after its frame, CRC of that frame's header."""

    lsn: int
    offset: int
    crc: int


class Position(NamedTuple):
    """A position between two frames, from which reading can continue.

    lsn, crc      last record before it, and the header CRC of that record's frame; 0, 0 at the start
    segment       first LSN of its segment; a position at the end of a segment may also name the next one
    offset        in that segment, where the next frame begins or will begin
    incarnation   of the life that wrote that segment
    """

    lsn: int
    crc: int
    segment: int
    offset: int
    incarnation: int


class SegmentHeader(NamedTuple):
    """The fixed part at the start of a segment, as drawn above."""

    uuid: bytes
    incarnation: int
    first_lsn: int
    time: int
    before: End
    role: int = LEADER

    def pack(self) -> bytes:
        head = UNCHECKED.pack(
            MAGIC,
            VERSION,
            self.role,
            self.uuid,
            self.incarnation,
            self.first_lsn,
            self.time,
            *self.before,
        )
        return head + crc32c_of(head).to_bytes(4, "little")


def unpack(path: Path, data: bytes) -> SegmentHeader:
    """The header at the start of `data`.

    Raises DamagedFile, or NewerFormat if the header is valid and of a later version.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedFile(path, len(data), "the file ends inside the segment's header")
    head = data[: UNCHECKED.size]
    if data[:8] != MAGIC:
        raise DamagedFile(path, 0, "the file does not begin like a segment of a tidelog log")
    if int.from_bytes(data[UNCHECKED.size : HEADER_BYTES], "little") != crc32c_of(head):
        raise DamagedFile(path, 0, "the segment's header does not match its checksum")
    _, version, role, uuid, incarnation, first_lsn, time, *before = UNCHECKED.unpack(head)
    if version > VERSION:
        raise NewerFormat(path, version, VERSION)
    return SegmentHeader(uuid, incarnation, first_lsn, time, End(*before), role)


def version_of(data: bytes) -> int:
    """The version of the format in a header that `unpack` accepts."""
    return int(UNCHECKED.unpack(data[: UNCHECKED.size])[1])


def file_name(first_lsn: int) -> str:
    return f"{first_lsn:020d}{SUFFIX}"


def first_lsn_of(name: str) -> int | None:
    """The first LSN in a segment's file name; None for any other name."""
    digits = name.removesuffix(SUFFIX)
    if len(digits) == 20 and len(name) == 24 and digits.isascii() and digits.isdigit():
        return int(digits)
    return None
