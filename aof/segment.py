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
incarnation  random number of the life that writes the segment; no two lives write one segment
time         unix milliseconds of its creation
before       the end of the segment before, which was fsynced whole before this one got its name:
             its last LSN, the offset after its last frame, and that frame's header CRC. In the first
             segment of a store: 0, 0, 0; of a restored one: its checkpoint's LSN, 0, CRC
header       CRC-32C of bytes 0..75

The header is published with the file's name, so a segment without a whole header is damage. After the
last frame come zeros (space prepared for writing) or the end of the file.
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

_UNCHECKED = struct.Struct("<8sII16sQQQQQI")
assert _UNCHECKED.size == 76

SUFFIX: Final = ".aof"
SPARE: Final = "spare"  # a file prepared for the next segment; its name is no segment's


class End(NamedTuple):
    """Where the frames of a segment end: last LSN, offset after it, CRC of the last frame's header."""

    lsn: int
    offset: int
    crc: int


class Position(NamedTuple):
    """A place between two frames, from which the log can be read on.

    lsn, crc      last record before it, and the header CRC of the frame that holds that; 0, 0 at the start
    segment       first LSN of the segment it lies in. At the end of one segment, this may be the next
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
        head = _UNCHECKED.pack(
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

    Raises DamagedFile, or NewerFormat if the header is whole and of a later version.
    """
    if len(data) < HEADER_BYTES:
        raise DamagedFile(path, len(data), "the file ends inside the segment's header")
    head = data[: _UNCHECKED.size]
    if data[:8] != MAGIC:
        raise DamagedFile(path, 0, "no segment of a tidelog AOF begins like this")
    if int.from_bytes(data[_UNCHECKED.size : HEADER_BYTES], "little") != crc32c_of(head):
        raise DamagedFile(path, 0, "the segment's header does not match its checksum")
    _, version, role, uuid, incarnation, first_lsn, time, *before = _UNCHECKED.unpack(head)
    if version > VERSION:
        raise NewerFormat(path, version, VERSION)
    return SegmentHeader(uuid, incarnation, first_lsn, time, End(*before), role)


def file_name(first_lsn: int) -> str:
    return f"{first_lsn:020d}{SUFFIX}"


def first_lsn_of(name: str) -> int | None:
    """The first LSN that a segment's name states, None for any other name."""
    digits = name.removesuffix(SUFFIX)
    if len(digits) == 20 and len(name) == 24 and digits.isascii() and digits.isdigit():
        return int(digits)
    return None
