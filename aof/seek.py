"""Finds a place in the log, and reads the bytes of the frames behind a place.

Both work beside the log's writer, without its lock. `position_after` reads the headers of one segment's frames, and
skips their records. `Source` reads the bytes that a leader ships to a follower.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidelog.aof import segment
from tidelog.aof.errors import BeyondEnd, CorruptFrame, Released, Vanished
from tidelog.aof.frame import BODY_BYTES_MAX, HEADER, HEADER_BYTES, MAGIC
from tidelog.aof.reading.reader import Segment, read_header, segment_paths, segments
from tidelog.aof.segment import Position
from tidelog.aof.tail import place_in
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.engine.crc32c import crc32c_after, crc32c_of

Good = tuple[int, int]  # a result of `Log.good`

# Between two reads of this size, a thread that seeks holds the interpreter lock for less than a millisecond.
_WINDOW_BYTES: Final = 64 << 10
_BLANK: Final = bytes(HEADER_BYTES)
_NO_HEADER: Final = "found something else than the header of the next frame"


def position_after(disk: Disk, directory: Path, uuid: bytes, lsn: int) -> Position | None:
    """The position behind the frame that ends with `lsn`; None if `lsn` lies inside a frame.

    `directory` is a store's aof/; 0 is the position before the first frame of a store. The position's `crc` is that
    frame's header checksum. If a segment begins right behind it, the position is the beginning of that segment. Beside
    a writer, `lsn` is at most its `written_lsn`. Raises Released, BeyondEnd; CorruptFrame and the other errors of
    `reader.segments`.
    """
    found = segments(disk, directory, uuid, after=lsn)
    if not found:
        if lsn:
            raise BeyondEnd(directory, lsn, 0)
        return Position(0, 0, 1, segment.HEADER_BYTES, 0)
    info = found[0]
    header = info.header
    if header.first_lsn > lsn + 1:
        raise Released(directory, lsn, header.first_lsn)
    start = Position(
        header.first_lsn - 1,
        header.before.crc,
        header.first_lsn,
        segment.HEADER_BYTES,
        header.incarnation,
    )
    if start.lsn == lsn:
        return start
    try:
        file = disk.open(info.path)
    except FileNotFoundError:
        raise Released(directory, lsn, found[-1].header.first_lsn) from None
    try:
        return _walk(file, info, start, lsn)
    finally:
        file.close()


def now_behind(disk: Disk, directory: Path, uuid: bytes, position: Position) -> int | None:
    """Unix ms of the first frame behind `position`, from its header; None if the log ends there.

    Raises Vanished if the log no longer continues the position; CorruptFrame and the other errors of
    `reader.segments`.
    """
    found = segments(disk, directory, uuid, after=position.lsn)
    if not found:
        return None
    info = found[0]
    start = place_in(info, position)
    offset = segment.HEADER_BYTES if start is None else start.offset
    try:
        file = disk.open(info.path)
    except FileNotFoundError:
        raise Vanished(info.path) from None
    try:
        head = file.pread(HEADER_BYTES, offset)
    finally:
        file.close()
    if info.end is None and head == _BLANK[: len(head)]:
        return None
    fields = _header(head, crc32c_of(uuid), position.lsn, position.crc)
    if fields is None:
        raise CorruptFrame(info.path, offset, position.lsn + 1, None, _NO_HEADER)
    return fields[4]


def _header(head: bytes, seed: int, last: int, prev: int) -> tuple[int, ...] | None:
    """The fields of the header behind a frame with the last LSN `last` and the checksum `prev`; None if invalid."""
    if len(head) < HEADER_BYTES:
        return None
    fields: tuple[int, ...] = HEADER.unpack(head)
    magic, length, first, count, _, _, before, _, crc = fields
    if (
        magic != MAGIC
        or first != last + 1
        or before != prev
        or not count
        or length > BODY_BYTES_MAX
        or crc32c_after(seed, head[:44]) != crc
    ):
        return None
    return fields


def _walk(file: File, info: Segment, start: Position, lsn: int) -> Position | None:
    """Go from header to header until a frame has `lsn`. Raises BeyondEnd, CorruptFrame."""
    seed = crc32c_of(info.header.uuid)
    last, prev, offset = start.lsn, start.crc, start.offset
    stop = None if info.end is None else info.end.offset
    base, data = offset, file.pread(_WINDOW_BYTES, offset)
    while True:
        at = offset - base
        if at + HEADER_BYTES > len(data):
            base, data = offset, file.pread(_WINDOW_BYTES, offset)
            at = 0
        head = data[at : at + HEADER_BYTES]
        if stop is None and head == _BLANK[: len(head)]:
            raise BeyondEnd(info.path.parent, lsn, last)
        fields = None if offset == stop else _header(head, seed, last, prev)
        if fields is None:
            raise CorruptFrame(info.path, offset, last + 1, None, _NO_HEADER)
        _, length, _, count, _, _, _, _, crc = fields
        offset += HEADER_BYTES + length
        last += count
        prev = crc
        if last >= lsn:
            header = info.header
            here = Position(last, crc, header.first_lsn, offset, header.incarnation)
            return here if last == lsn else None


class Source:
    """The bytes of all frames behind `position`, in order. Segment headers and prepared zeros are left out.

    segment, offset   the place where `read` continues, as in a Position
    """

    def __init__(self, disk: Disk, directory: Path, uuid: bytes, position: Position) -> None:
        self.segment, self.offset = position.segment, position.offset
        self._disk = disk
        self._directory = directory
        self._uuid = uuid
        self._file: File | None = None
        # the next segment and where this one ends, once known
        self._next: int | None = None
        self._end = 0

    def read(self, nbytes_max: int, good: Good) -> bytes:
        """At most `nbytes_max` of the next bytes, up to `good`, a result of `Log.good`. b"" if there is none.

        A result may end within a frame. Raises Vanished if the segment was released before it was opened or before its
        end was known, or was cut; DamagedFile, NewerFormat, OSError.
        """
        newest, good_offset = good
        while True:
            end = good_offset
            if self.segment > newest:  # an older answer than the last one
                return b""
            if self.segment != newest:
                if self._next is None:
                    self._find_next()
                end = self._end
            if self.offset < end:
                break
            # A segment is opened when it has frames. Before that, the next life may replace it under the same name.
            if self._next is None:
                return b""
            self.close()
            self.segment, self.offset, self._next = self._next, segment.HEADER_BYTES, None
        data = self._opened().pread(min(nbytes_max, end - self.offset), self.offset)
        if not data:
            raise Vanished(self._path(self.segment))  # what is good was cut off
        self.offset += len(data)
        return data

    def at_end(self, good: Good) -> bool:
        """Whether `read` has returned everything up to `good`."""
        return self.segment == good[0] and self.offset >= good[1]

    def in_newest(self, good: Good) -> bool:
        """Whether the next bytes lie in the newest segment, and so most likely in the page cache."""
        return self.segment == good[0]

    def lag_bytes(self, good: Good) -> int:
        """The number of bytes that `read` has not returned yet. Reads file sizes if it is behind the newest segment."""
        newest, good_offset = good
        if self.segment == newest:
            return max(good_offset - self.offset, 0)
        total = good_offset - segment.HEADER_BYTES - self.offset
        for path in segment_paths(self._disk, self._directory):
            if self.segment <= int(path.stem) < newest:
                size = recipe.size(self._disk, path)
                total += size if int(path.stem) == self.segment else size - segment.HEADER_BYTES
        return max(total, 0)

    def close(self) -> None:
        """Close the open segment. Idempotent; a later `read` opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _opened(self) -> File:
        if self._file is None:
            path = self._path(self.segment)
            try:
                self._file = self._disk.open(path)
            except FileNotFoundError:
                raise Vanished(path) from None
        return self._file

    def _find_next(self) -> None:
        """Find the segment behind this one. Its header says where this one ends."""
        firsts = [int(path.stem) for path in segment_paths(self._disk, self._directory)]
        # Segments are released in order. So if this one is still there, the name behind it is the next segment's.
        path = self._path(self.segment)
        if self.segment not in firsts[:-1]:
            raise Vanished(path)
        following = firsts[firsts.index(self.segment) + 1]
        try:
            header = read_header(self._disk, self._path(following))
        except FileNotFoundError:
            raise Vanished(path) from None
        self._next, self._end = following, header.before.offset

    def _path(self, first_lsn: int) -> Path:
        return self._directory / segment.file_name(first_lsn)
