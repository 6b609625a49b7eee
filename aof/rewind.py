"""Ends a log after a record that is not its last one, and sets the records behind it aside.

A follower does this when its log has records that its leader's history does not have. The steps, each durable before
the next begins:

    1. Lower both slots of DURABLE to the new end. Otherwise they would prove that the log lost records, and the store
       would not open.
    2. Copy the frames behind the new end into segments in another directory.
    3. Remove the segments that begin behind the new end, the newest first.
    4. Replace the segment that holds the new end by a copy that ends there. (Cutting it in place could leave a file
       with holes after a power cut, and later frames in it prove that the frames in the holes were durable.)

After a power cut the store opens, with all of its log or with a part that reaches at least to the new end. If records
are missing in the log, the copy has all of them. The same call then finishes the work.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import durable, identity, segment
from tidelog.aof.durable import Promise
from tidelog.aof.errors import CorruptFrame, NoFrameEnds, NoSpace
from tidelog.aof.reading.reader import Scan, Segment, segment_paths, segments
from tidelog.aof.reading.verdicts import Verdict
from tidelog.aof.seek import position_after
from tidelog.aof.segment import End, Position, SegmentHeader
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import OUT_OF_SPACE

_PIECE_BYTES: Final = 1 << 20


class _Part(NamedTuple):
    """The frames of one segment that lie behind the new end: the bytes from `start` to `end.offset`."""

    info: Segment
    start: int
    end: End


def rewind(disk: Disk, root: Path, uuid: bytes, position: Position, aside: Path) -> list[Path]:
    """End the log of the store in `root` at `position`, and keep all behind it in `aside`. Returns the files there.

    The caller holds LOCK, the log was recovered, and no Log is open. No checkpoint of the store reaches beyond the
    position; of the position, only LSN and CRC count. `aside` is a directory in the store's quarantine/, created if it
    is missing. Its segments continue the position, and are read as those of a log. Raises NoFrameEnds, Released,
    BeyondEnd, Damage, NoSpace, OSError. After an error or a power cut, the same call finishes the work.
    """
    directory = root / identity.AOF
    at = position_after(disk, directory, uuid, position.lsn)
    if at is None or at.crc != position.crc:
        raise NoFrameEnds(directory, position.lsn, position.crc)
    found = segments(disk, directory, uuid, after=at.lsn)
    parts = _surplus(disk, found, at)
    kept = [path for path in segment_paths(disk, directory) if int(path.stem) <= at.lsn]
    shortened = None
    if found and (at.offset > segment.HEADER_BYTES or not kept):
        shortened, *found = found
    durable.lower(disk, directory, uuid, Promise(at.incarnation, at.lsn))
    if parts:
        with _space_for(aside, sum(part.end.offset - part.start for part in parts)):
            recipe.make_directory(disk, root / identity.QUARANTINE)
            recipe.make_directory(disk, aside)
            _copy(disk, aside, at, parts)
    for info in reversed(found):
        recipe.remove(disk, info.path)
    if shortened is not None:
        with _space_for(directory, at.offset):
            _shorten(disk, shortened.path, at.offset)
    return segment_paths(disk, aside) if disk.exists(aside) else []


def _surplus(disk: Disk, found: list[Segment], at: Position) -> list[_Part]:
    """The frames behind `at`, checked. Raises Damage, also for a torn tail: recovery would have removed it."""
    parts: list[_Part] = []
    start: Position | None = at
    for info in found:
        scan = Scan(disk, info, start=start)
        begin = scan.offset
        for _ in scan.tuples():
            pass
        if scan.verdict is not Verdict.END:
            raise scan.error() or CorruptFrame(
                scan.path, scan.offset, scan.lsn, scan.found_lsn, f"found {scan.reason}"
            )
        if scan.offset > begin:
            parts.append(_Part(info, begin, End(scan.lsn - 1, scan.offset, scan.crc)))
        start = None
    return parts


def _copy(disk: Disk, aside: Path, at: Position, parts: list[_Part]) -> None:
    """Publish the parts as segments in `aside`, the oldest first. Existing ones are replaced by equal ones."""
    before = End(at.lsn, 0, at.crc)  # as in the first segment of a restored store
    for info, start, end in parts:
        old = info.header
        new = SegmentHeader(old.uuid, old.incarnation, before.lsn + 1, old.time, before, old.role)
        size = segment.HEADER_BYTES + end.offset - start
        path = aside / segment.file_name(new.first_lsn)
        pieces = _pieces(disk, info.path, start, end.offset, new.pack())
        recipe.publish_pieces(disk, path, size, pieces)
        before = End(end.lsn, size, end.crc)


def _shorten(disk: Disk, path: Path, size: int) -> None:
    if recipe.size(disk, path) > size:
        recipe.publish_pieces(disk, path, size, _pieces(disk, path, 0, size, b""))


def _pieces(
    disk: Disk, path: Path, start: int, end: int, head: bytes
) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of a file that has `head`, then the bytes of `path` from `start` to `end`."""
    yield 0, head
    file = disk.open(path)
    try:
        for offset in range(start, end, _PIECE_BYTES):
            piece = file.pread(min(_PIECE_BYTES, end - offset), offset)
            yield len(head) + offset - start, piece
    finally:
        file.close()


@contextlib.contextmanager
def _space_for(path: Path, nbytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in OUT_OF_SPACE:
            raise NoSpace(path, nbytes) from error
        raise
