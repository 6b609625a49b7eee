"""The frames of a log from its end to its beginning, one window at a time.

A frame does not say where the one before begins. So a window is searched for headers: the first one from which a chain
of frames leads to the known end of the window is right, since each frame holds the checksum of the one before. The
body of a frame may contain bytes that look like a header, but no chain leads from there to the end.

If no chain is found, which is so if the log is damaged or ends with an unfinished write, the segment is read forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from tidelog.aof.durable import Promise
from tidelog.aof.frame import BODY_BYTES_MAX, HEADER, HEADER_BYTES, MAGIC, MAGIC_BYTES, Frame
from tidelog.aof.reading.reader import Scan, Segment
from tidelog.aof.reading.window import Windows
from tidelog.aof.segment import HEADER_BYTES as FIRST_OFFSET
from tidelog.disk.interface import Disk
from tidelog.engine.crc32c import crc32c_after, crc32c_of
from tidelog.tools.logfiles import LogFiles

STRETCH_BYTES: Final = 1 << 18
STRETCH_BYTES_MAX: Final = BODY_BYTES_MAX + HEADER_BYTES


def frames_backwards(files: LogFiles) -> Iterator[tuple[Path, Frame]]:
    """Yield every frame with its segment, the newest first. Raises as `LogFiles.frames`, at the damaged segment."""
    promises, found = files.survey()
    for info in reversed(found):
        with closing(_Segment(files.disk, info, crc32c_of(files.uuid), promises)) as backwards:
            yield from ((info.path, frame) for frame in backwards.frames())
            offset = backwards.begun
        if offset > FIRST_OFFSET:
            yield from _forward(files.disk, info, promises, offset)


def _forward(
    disk: Disk, info: Segment, promises: list[Promise], before: int
) -> Iterator[tuple[Path, Frame]]:
    """The frames before the offset `before`, found by a walk from the first one."""
    scan = Scan(disk, info, promises, live=True)
    places = [(fields[0], len(fields[6])) for fields in scan.tuples() if fields[0] < before]
    error = scan.error()
    if error is not None:
        raise error
    with closing(Windows(disk, info.path)) as windows:
        for offset, length in reversed(places):
            data = windows.read(offset, HEADER_BYTES + length)
            _, _, lsn, count, now, synced, _, _, crc = HEADER.unpack_from(data)
            yield info.path, Frame(offset, lsn, count, now, synced, crc, data[HEADER_BYTES:])


class _Segment:
    """One segment, read from its end. `begun`: the offset of the earliest frame that was yielded."""

    def __init__(self, disk: Disk, info: Segment, seed: int, promises: list[Promise]) -> None:
        self._windows = Windows(disk, info.path)
        self._seed = seed
        self._first_crc = info.header.before.crc
        if info.end is None:
            self.begun = self._windows.data_end(FIRST_OFFSET)
            self._crc: int | None = None  # of the frame that ends at `begun`; None: unknown
            life = info.header.incarnation
            self._promised = max((p.lsn for p in promises if p.incarnation == life), default=0)
        else:
            self.begun = info.end.offset
            self._crc = info.end.crc
            self._promised = 0

    def close(self) -> None:
        self._windows.close()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames from the end on, as far as their chain can be followed."""
        if self.begun > self._windows.size:
            return  # the next header states an end behind that of the file: the walk forward says so
        length = STRETCH_BYTES
        while self.begun > FIRST_OFFSET:
            base = max(FIRST_OFFSET, self.begun - length)
            found = self._chain(base)
            if not found:
                if base == FIRST_OFFSET or length > STRETCH_BYTES_MAX:
                    return
                length *= 4
                continue
            newest = found[-1][0]
            if self._crc is None and newest.lsn + newest.count <= self._promised:
                return  # promised frames are missing: the walk forward says so
            for frame, prev in reversed(found):
                yield frame
                self.begun, self._crc = frame.offset, prev
            length = STRETCH_BYTES

    def _chain(self, base: int) -> list[tuple[Frame, int]]:
        """(frame, checksum of the frame before) of the frames from the first right header behind `base` to the end."""
        # Behind an unknown end zeros may belong to the last frame.
        more = 0 if self._crc is not None else STRETCH_BYTES
        data = self._windows.read(base, self.begun - base + more)
        end = self.begun - base
        at = 0
        while (at := data.find(MAGIC_BYTES, at)) >= 0 and at < end:
            found = self._from(data, at, base, end)
            if found:
                return found
            at += 1
        return []

    def _from(self, data: bytes, at: int, base: int, end: int) -> list[tuple[Frame, int]]:
        """The frames from the header at `at` on, if they are whole and reach the end; else an empty list."""
        found: list[tuple[Frame, int]] = []
        crc: int | None = self._first_crc if base + at == FIRST_OFFSET else None
        while at < end:
            if at + HEADER_BYTES > len(data):
                return []
            magic, length, lsn, count, now, synced, prev, body_crc, own = HEADER.unpack_from(
                data, at
            )
            if magic != MAGIC or crc32c_after(self._seed, data[at : at + 44]) != own:
                return []
            body = data[at + HEADER_BYTES : at + HEADER_BYTES + length]
            if crc not in (None, prev) or len(body) != length or crc32c_of(body) != body_crc:
                return []
            found.append((Frame(base + at, lsn, count, now, synced, own, body), prev))
            crc = own
            at += HEADER_BYTES + length
        if self._crc is None:
            return found if not any(data[at:]) else []
        return found if at == end and crc == self._crc else []
