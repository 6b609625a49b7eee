"""Follows a log while its writer appends: each look reads the frames behind a position, and little else.

A look reads the file DURABLE, the names of the segments, the header of the newest segment and the first bytes behind
the position. If these bytes are zeros and DURABLE promises nothing there, the log has not grown. Otherwise a `Scan`
reads on, in windows that grow, and decides which frames are valid. So the cost of a look is proportional to what was
written since the last one.

The first look that reads a log from its beginning to its end also reads the prepared space, as recovery does. In later
looks, zeros in the place of the next header count as the end of the log. They may hide damage behind them; that is
found when the segment ends, when DURABLE promises the record, or when the whole log is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import durable, segment
from tidelog.aof.durable import Promise
from tidelog.aof.errors import Vanished
from tidelog.aof.frame import HEADER_BYTES
from tidelog.aof.reading.reader import FrameTuple, Scan, Segment, segments
from tidelog.aof.reading.recovery import check_lives
from tidelog.aof.reading.verdicts import Verdict
from tidelog.aof.segment import Position, SegmentHeader
from tidelog.disk.interface import Disk

LOOK_BYTES: Final = 4 << 20  # large enough that the fixed cost of a look is negligible


class Stretch(NamedTuple):
    """Consecutive frames of one segment, at least one. `end` is the position behind the last of them."""

    path: Path
    header: SegmentHeader
    frames: list[FrameTuple]
    end: Position

    def behind(self, fields: FrameTuple) -> Position:
        """The position behind one of the frames."""
        offset, lsn, count, _, _, crc, body = fields
        return Position(
            lsn + count - 1,
            crc,
            self.header.first_lsn,
            offset + HEADER_BYTES + len(body),
            self.header.incarnation,
        )


class Tail:
    """The part of the log in `directory` (a store's aof/) behind `position`. Opens files only during a look.

    position   a look reads the frames behind it; the caller sets it when it has taken them. None: the log's beginning
    """

    def __init__(
        self, disk: Disk, directory: Path, uuid: bytes, position: Position | None = None
    ) -> None:
        self.position = position
        self._disk = disk
        self._directory = directory
        self._uuid = uuid
        self._newest: Segment | None = None  # the last segment that a look has found
        self._brief = position is not None
        # the position of an unfinished frame that an earlier `look` has found, else None
        self._torn: Position | None = None
        # (segment, byte) where the last look found nothing
        self._ended: tuple[Path, int] | None = None

    def look(self, nbytes: int = LOOK_BYTES) -> Stretch | None:
        """The frames behind `position`, up to the end of a segment, or until they have `nbytes` bytes or more.

        None if there are none yet. Raises Vanished if the log no longer continues `position`: the writer released the
        segment, or a restore or a power cut has taken back records before the position. Raises Damage, NewerFormat,
        OSError.
        """
        self._ended = None
        while True:
            # read DURABLE before the list of segments
            promises = durable.read(self._disk, self._directory, self._uuid)
            stretch, same = self._read(self._segments(), promises, nbytes)
            if same:
                return stretch
            self._newest = None

    def skim(self, nbytes: int) -> tuple[Position, int] | None:
        """The position behind the next frames of one segment, until they have `nbytes` bytes or more, and their bytes.

        Faster than `look`, but it does not verify the frames (`Scan.skim`). None if only a look can say what follows
        the position: there is nothing yet, it is not proven, or it is not what should be there. Raises Damage,
        NewerFormat, OSError.
        """
        at = self.position
        if at is None:
            return None
        # read DURABLE before the list of segments
        promises = durable.read(self._disk, self._directory, self._uuid)
        for info in self._segments()[:1]:
            try:
                scan = Scan(self._disk, info, promises, start=place_in(info, at))
            except (FileNotFoundError, Vanished):
                return None
            with closing(scan):
                if scan.header == info.header and (size := scan.skim(nbytes)):
                    return scan.position, size
        return None

    @contextmanager
    def watching(self) -> Iterator[Callable[[], bool]]:
        """A function that says, between looks, whether a look may find something that the last one did not.

        It reads a few bytes of a file that stays open within the context, so it costs a hundredth of a look. It does
        not notice a new segment, nor the loss of records: the caller still has to look from time to time. If the last
        look found frames, or failed, the answer is always True. Raises OSError.
        """
        if self._ended is None:
            yield lambda: True
            return
        path, offset = self._ended
        try:
            file = self._disk.open(path)
        except FileNotFoundError:  # a look finds out why
            yield lambda: True
            return
        try:
            yield lambda: any(file.pread(HEADER_BYTES, offset))
        finally:
            file.close()

    def _segments(self) -> list[Segment]:
        """The segments behind the position. Reads no header if there is no new one."""
        if self._newest is not None and self._is_last(self._newest):
            return [self._newest]
        after = 0 if self.position is None else self.position.lsn
        return segments(self._disk, self._directory, self._uuid, after=after)

    def _is_last(self, info: Segment) -> bool:
        """Whether the position lies in this segment, and no later segment has appeared."""
        at = self.position
        if at is None or info.header.first_lsn != at.segment:
            return False
        names = [n for n in self._disk.listdir(self._directory) if n.endswith(segment.SUFFIX)]
        return bool(names) and names[-1] == info.path.name

    def _read(
        self, found: list[Segment], promises: list[Promise], nbytes: int
    ) -> tuple[Stretch | None, bool]:
        """(the next stretch, whether the directory still had the same segments)."""
        at = self.position
        if at is not None and (found[0].header.first_lsn > at.lsn + 1 if found else at.lsn):
            raise Vanished(self._directory / segment.file_name(at.segment))
        scan: Scan | None = None
        for info in found:
            start = None if at is None or scan is not None else place_in(info, at)
            try:
                scan = Scan(
                    self._disk,
                    info,
                    promises,
                    live=at is None or at != self._torn,
                    brief=self._brief,
                    start=start,
                )
            except FileNotFoundError:
                raise Vanished(info.path) from None
            if scan.header != info.header:
                scan.close()
                # The segment had no frame, and a new segment has replaced it under the same name.
                return None, False
            if start is not None and scan.size < start.offset:
                scan.close()
                raise Vanished(info.path)  # records that this tail has read were cut off
            frames = _some(scan, nbytes)
            if info.end is None:
                self._newest = info
            if frames:
                return Stretch(info.path, scan.header, frames, scan.position), True
            error = scan.error()
            if error is not None:
                raise error
        check_lives(self._directory, promises, found, scan)
        self._torn = None
        if scan is not None:
            self._ended = scan.path, scan.offset
            if scan.verdict is Verdict.TORN:
                self._torn = at
            else:
                self._brief = True
        return None, True


def _some(scan: Scan, nbytes: int) -> list[FrameTuple]:
    """The next frames of a scan, until they have `nbytes` bytes."""
    frames: list[FrameTuple] = []
    tuples = scan.tuples()
    for fields in tuples:
        frames.append(fields)
        nbytes -= HEADER_BYTES + len(fields[6])
        if nbytes <= 0:
            break
    tuples.close()
    return frames


def place_in(info: Segment, at: Position) -> Position | None:
    """Where to go on reading in a segment after `at`; None: at its first frame. Raises Vanished if it does not
    continue.

    A restored store may have taken over the directory, or a recovery after a failed fsync may have kept less than was
    read here. Then the same LSNs belong to other records.
    """
    header = info.header
    if header.first_lsn == at.lsn + 1:
        if header.before.crc == at.crc:
            return None
    elif header.first_lsn == at.segment and header.incarnation == at.incarnation:
        return at
    raise Vanished(info.path)
