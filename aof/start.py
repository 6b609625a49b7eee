"""Finds where to start reading the log when a checkpoint holds the records before.

Nothing before that position is read or checked, so the time to open is proportional to the records after it.
Therefore this module proves first that log and checkpoint belong together. P is the checkpoint's LSN:

    what `aof/` holds                                   result
    a segment that begins at P+1, whose header says     read from its first frame; the segment that holds P
      that a frame with the checkpoint's CRC is before    may have been released
    the segment that holds P, written by the            read from the checkpoint's offset
      checkpoint's life, and at the checkpoint's
      offset a frame that continues its CRC, or
      right before that offset the frame with that CRC
    no segment                                          refused, unless P = 0
    only segments above P+1                             refused: records are missing
    a log that ends before P                            refused: an older copy, or damage
    other CRC, life or segment                          refused: another history

In every refused case, opening would lose records.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import identity, segment
from tidelog.aof.errors import CorruptFrame, Damage, DoesNotFit, MissingSegment, Vanished
from tidelog.aof.frame import BODY_BYTES_MAX, HEADER, HEADER_BYTES, MAGIC
from tidelog.aof.reading.reader import Epoch, Scan, Segment, segments
from tidelog.aof.reading.verdicts import Found
from tidelog.aof.segment import End, Position, SegmentHeader
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.engine.crc32c import crc32c_after, crc32c_of

_WINDOW_BYTES: Final = 4 << 10


class Start(NamedTuple):
    """A checkpoint's statement about the log: the fields of the Position at which it was taken, and

    epochs    every life up to that position, in order
    now       unix ms; no later frame has an earlier time
    """

    lsn: int
    crc: int
    segment: int
    offset: int
    incarnation: int
    epochs: Sequence[Epoch] = ()
    now: int = 0

    @property
    def position(self) -> Position:
        return Position(*self[:5])


def beginning(
    disk: Disk, directory: Path, uuid: bytes, start: Start, listed: list[Segment] | None = None
) -> tuple[list[Segment], Position | None]:
    """The segments to read after `start`, and the position to start at in the first one (None: at its first frame).

    listed   the segments from the one on that holds `start`, for a caller that lists them itself

    Raises DoesNotFit; CorruptFrame; Vanished if a writer released a segment meanwhile; the errors of
    `reader.segments`, except that a missing directory is DoesNotFit.
    """
    try:
        found = segments(disk, directory, uuid, start.lsn) if listed is None else listed
    except MissingSegment as error:  # the directory is missing
        raise DoesNotFit(directory, 0, error.what) from None
    try:
        return found, _place(disk, directory, uuid, found, start)
    except FileNotFoundError:
        raise Vanished(found[0].path) from None


def _place(
    disk: Disk, directory: Path, uuid: bytes, found: list[Segment], start: Start
) -> Position | None:
    if not found:
        if start.lsn:
            reason = (
                f"there are no segments, but the checkpoint holds records through LSN {start.lsn}"
            )
            raise DoesNotFit(directory, 0, reason)
        return None
    first = found[0]
    first_lsn = first.header.first_lsn
    if first_lsn > start.lsn + 1:
        raise DoesNotFit(
            first.path,
            0,
            f"the log begins with LSN {first_lsn}, but the checkpoint ends with LSN {start.lsn}: LSN {start.lsn + 1} "
            f"to {first_lsn - 1} are missing",
        )
    if first_lsn == start.lsn + 1:
        before = first.header.before
        if before.crc != start.crc:
            raise DoesNotFit(
                first.path,
                72,
                f"the frame that ends with LSN {start.lsn} has the checksum {before.crc:08x} in this log, but "
                f"{start.crc:08x} in the checkpoint: they are from different histories",
            )
        return None
    if first_lsn != start.segment:
        raise _other_segment(disk, directory, first, start)
    if first.header.incarnation != start.incarnation:
        raise DoesNotFit(
            first.path,
            32,
            f"the segment has the incarnation {first.header.incarnation:016x}, but the checkpoint has "
            f"{start.incarnation:016x}: they are from different histories",
        )
    if not _belongs(disk, first.path, crc32c_of(uuid), start):
        raise _mismatch(disk, first, start)
    return start.position


def create_behind(disk: Disk, root: Path, uuid: bytes, start: Start, time_ms: int) -> None:
    """Create a log that continues after `start`, in `root`, which holds the checkpoint of `start` and no log.

    The first segment has no frame; its header states where the restored log ended, and the first life
    replaces it. STORE is written last, so an interrupted call leaves no store. The caller holds LOCK.
    """
    directory = root / identity.AOF
    recipe.make_directory(disk, directory)
    assert not segments(disk, directory), "the directory contains a log already"
    header = SegmentHeader(
        uuid, start.incarnation, start.lsn + 1, time_ms, End(start.lsn, 0, start.crc)
    )
    recipe.publish(disk, directory / segment.file_name(start.lsn + 1), header.pack())
    identity.create(disk, root, uuid)


def _belongs(disk: Disk, path: Path, seed: int, start: Start) -> bool:
    """Whether the frame at `start.offset` continues the checkpoint, or the frame before it is the checkpoint's last."""
    file = disk.open(path)
    try:
        head = file.pread(HEADER_BYTES, start.offset)
        if len(head) == HEADER_BYTES:
            magic, _, first, _, _, _, before, _, crc = HEADER.unpack(head)
            if magic == MAGIC and crc32c_after(seed, head[:44]) == crc:
                return bool(first == start.lsn + 1 and before == start.crc)
        if file.size() < start.offset:
            return False
        # The offset of the last frame's header is unknown, so search backwards for its CRC, which is usually near.
        length = _WINDOW_BYTES
        while True:
            begin = max(start.offset - length, segment.HEADER_BYTES)
            if _ends_with(file.pread(start.offset - begin, begin), seed, start):
                return True
            if begin == segment.HEADER_BYTES or length > BODY_BYTES_MAX + HEADER_BYTES:
                return False
            length *= 4
    finally:
        file.close()


def _ends_with(data: bytes, seed: int, start: Start) -> bool:
    """Whether `data` ends with the checkpoint's last frame. The frame's records are not checked."""
    wanted = start.crc.to_bytes(4, "little")
    at = len(data)
    while (at := data.rfind(wanted, 0, at + 3)) >= 0:
        head = at + 4 - HEADER_BYTES
        if head < 0:
            return False
        magic, length, first, count, *_ = HEADER.unpack_from(data, head)
        if (
            magic == MAGIC
            and at + 4 + length == len(data)
            and first + count - 1 == start.lsn
            and crc32c_after(seed, data[head:at]) == start.crc
        ):
            return True
    return False


def _other_segment(disk: Disk, directory: Path, first: Segment, start: Start) -> Damage:
    """The error if `first`, which begins at or before P, is not the segment that the checkpoint names."""
    if first.end is None and first.header.first_lsn < start.segment:
        return _mismatch(disk, first, start)  # the last segment: it may end before P
    path = directory / segment.file_name(start.segment)
    reason = (
        f"the checkpoint ends with LSN {start.lsn}, and the segment that holds it is missing; the segment before it "
        f"is {first.path.name}"
    )
    return DoesNotFit(path, 0, reason)


def _mismatch(disk: Disk, info: Segment, start: Start) -> Damage:
    """The error if the frame that ends with P is not where the checkpoint says. Reads the segment up to P."""
    scan = Scan(disk, info)
    for offset, lsn, count, _, _, crc, body in scan.tuples():
        if lsn + count > start.lsn:
            reason = (
                f"the frame that holds LSN {start.lsn} ends with LSN {lsn + count - 1} at byte "
                f"{offset + HEADER_BYTES + len(body)} with the checksum {crc:08x}; the checkpoint expects byte "
                f"{start.offset} and checksum {start.crc:08x}: they are from different histories"
            )
            return DoesNotFit(info.path, offset, reason)
    if scan.found is Found.BLANK and scan.last:
        reason = (
            f"the log ends with LSN {scan.lsn - 1}, but the checkpoint holds records through LSN {start.lsn}: aof/ is "
            "an older copy or was cut off"
        )
        return DoesNotFit(info.path, scan.offset, reason)
    reason = f"found {scan.found.value}, although the checkpoint proves that records through LSN {start.lsn} existed"
    return CorruptFrame(info.path, scan.offset, scan.lsn, scan.found_lsn, reason)
