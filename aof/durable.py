"""aof/DURABLE: the highest fsynced LSN. It proves whether a damaged last frame had been promised.

The file has 8,192 bytes: two slots of 48 bytes, at offset 0 and 4,096, written in turn; the rest is
zero. All numbers little-endian.

     0        8            24            32       40         44      48
    +--------+------------+-------------+--------+----------+-------+
    | magic  | store uuid | incarnation | LSN    | reserved | crc   |
    | 8      | 16         | u64         | u64    | u32 = 0  | u32   |
    +--------+------------+-------------+--------+----------+-------+

incarnation  of the life that wrote the segment in which the LSN lies
LSN          every record through this one was on the disk when the slot was written
crc          CRC-32C of bytes 0..43

A slot is written after an fsync of the log has returned, so it may lag behind the log but never runs
ahead of it: it causes no false alarm. The slot itself is not synced, except by recovery and by a rewind
(aof/rewind.py), which lowers both before it cuts the log. A torn write damages one slot and leaves the
other.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.engine.crc32c import crc32c_of

NAME: Final = "DURABLE"
MAGIC: Final = b"tide-syn"
SLOT_BYTES: Final = 48
SLOT_OFFSETS: Final = (0, 4096)
FILE_BYTES: Final = 8192

_UNCHECKED = struct.Struct("<8s16sQQI")
assert _UNCHECKED.size + 4 == SLOT_BYTES


class Promise(NamedTuple):
    """The content of a slot: all records through `lsn` are durable; `incarnation` wrote the last."""

    incarnation: int
    lsn: int


def pack(uuid: bytes, incarnation: int, lsn: int) -> bytes:
    head = _UNCHECKED.pack(MAGIC, uuid, incarnation, lsn, 0)
    return head + crc32c_of(head).to_bytes(4, "little")


def unpack(uuid: bytes, slot: bytes) -> Promise | None:
    """The promise in one slot; None if the slot is torn, blank, or another store's."""
    head = slot[: _UNCHECKED.size]
    if len(slot) != SLOT_BYTES or int.from_bytes(slot[44:], "little") != crc32c_of(head):
        return None
    magic, owner, incarnation, lsn, _ = _UNCHECKED.unpack(head)
    if magic != MAGIC or owner != uuid:
        return None
    return Promise(incarnation, lsn)


def read(disk: Disk, directory: Path, uuid: bytes) -> list[Promise]:
    """The promises in the valid slots of `directory`/DURABLE; an empty list if the file is missing."""
    try:
        data = recipe.read(disk, directory / NAME, FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [promise for promise in _slots(uuid, data) if promise is not None]


def _slots(uuid: bytes, data: bytes) -> list[Promise | None]:
    return [unpack(uuid, data[at : at + SLOT_BYTES]) for at in SLOT_OFFSETS]


def lower(disk: Disk, directory: Path, uuid: bytes, promise: Promise) -> None:
    """Replace every promise of a higher LSN in `directory`/DURABLE by `promise`, durably. Raises OSError.

    For a log that is about to be cut: it must not prove that its own records are missing.
    """
    try:
        file = disk.open(directory / NAME, write=True)
    except FileNotFoundError:
        return
    try:
        slots = _slots(uuid, file.pread(FILE_BYTES, 0))
        for offset, found in zip(SLOT_OFFSETS, slots, strict=True):
            if found is not None and found.lsn > promise.lsn:
                file.write(offset, pack(uuid, *promise))
        file.fdatasync()
    finally:
        file.close()


class DurableFile:
    """DURABLE, open for writing. A missing file is created with `recipe.publish`."""

    def __init__(self, disk: Disk, directory: Path, uuid: bytes) -> None:
        path = directory / NAME
        if not disk.exists(path):
            recipe.publish(disk, path, bytes(FILE_BYTES))
        self._uuid = uuid
        self._file: File = disk.open(path, write=True)
        if self._file.size() == FILE_BYTES:
            self._file.map(FILE_BYTES)
        # Overwrite the slot with the lower LSN. If the write is torn, the other slot still has the newer promise.
        slots = _slots(uuid, self._file.pread(FILE_BYTES, 0))
        first, second = (-1 if promise is None else promise.lsn for promise in slots)
        self._turn = 1 if first >= second else 0

    def write(self, incarnation: int, lsn: int) -> None:
        """Write a promise that already holds. Raises OSError."""
        self._file.append(SLOT_OFFSETS[self._turn], pack(self._uuid, incarnation, lsn))
        self._turn ^= 1

    def sync(self) -> None:
        self._file.fdatasync()

    def close(self) -> None:
        self._file.close()
