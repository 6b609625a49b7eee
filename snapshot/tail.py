"""Apply the log behind a checkpoint up to a bound: to roll a snapshot forward.

A bound is an LSN, a time, or both. The last unit applied is the last one within the bound. Units are never split, so a
command, a transaction or a batch is applied whole or not at all. The time of a unit is the time of its frame, which is
the time of the newest unit in that frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.aof import durable, frame, segment
from tidelog.aof.frame import HEADER_BYTES, Frame
from tidelog.aof.reading.reader import Epoch, FrameTuple, Replay, Scan, records_of, unpacker
from tidelog.aof.segment import Position
from tidelog.aof.start import Start, beginning
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.engine.crc32c import crc32c_of
from tidelog.engine.effects.effect import END, Effect

NO_BOUND: Final = (1 << 64) - 1


class Bound(NamedTuple):
    """Where to stop: after the last unit that ends at or before `lsn` and is not later than `ms` (unix ms)."""

    lsn: int = NO_BOUND
    ms: int = NO_BOUND


class Tail(NamedTuple):
    """How far the log was followed.

    position   the place behind the last unit that was applied
    epochs     every life up to there
    now        time of that unit's frame, unix ms
    records    number of records applied behind the start
    bound      the log continues there; the bound stopped it
    """

    position: Position
    epochs: tuple[Epoch, ...]
    now: int
    records: int
    bound: bool

    @property
    def start(self) -> Start:
        """The same as a Start, where the log can be read on."""
        return Start(*self.position, self.epochs, self.now)


def follow(
    disk: Disk,
    directory: Path,
    uuid: bytes,
    start: Start,
    apply: Callable[[list[Effect]], object],
    bound: Bound = Bound(),
    advance: Callable[[int], object] = lambda nbytes: None,
) -> Tail:
    """Pass the records behind `start` of the log in `directory` to `apply`: whole frames, then the last whole units.

    advance   called with the bytes of each frame
    Only reads, and may run beside a writer. Raises DoesNotFit if the log does not continue `start`; other Damage,
    unless it lies behind `bound.lsn`; NewerFormat; Vanished; OSError.
    """
    promises = durable.read(disk, directory, uuid)  # before the segments are listed
    found, at = beginning(disk, directory, uuid, start)
    replay = Replay(apply)
    replay.epochs += start.epochs
    replay.now = start.now
    place = _Progress(start, bound, advance)
    ended = False
    for info in found:
        scan = Scan(disk, info, promises, live=True, start=at)
        at = None
        place.enter(scan)
        replay.run(info.path, place.within(scan.tuples()))
        if place.beyond is not None:
            _apply_part(info.path, place, uuid, replay)
            ended = True
            break
        error = scan.error()
        if error is not None:
            if place.position.lsn < bound.lsn:
                raise error
            ended = True  # the damage lies after the bound, so ignore it
            break
    return Tail(
        place.position,
        tuple(replay.epochs),
        place.now,
        place.position.lsn - start.lsn,
        ended,
    )


class _Progress:
    """How far `follow` has read."""

    def __init__(self, start: Start, bound: Bound, advance: Callable[[int], object]) -> None:
        self.position = start.position
        self.now = start.now
        self.bound = bound
        # the first frame that is partly or wholly beyond the bound
        self.beyond: Frame | None = None
        self._advance = advance
        self._segment = 0
        self._incarnation = 0

    def enter(self, scan: Scan) -> None:
        self._segment = scan.header.first_lsn
        self._incarnation = scan.header.incarnation

    def within(self, frames: Iterator[FrameTuple]) -> Iterator[FrameTuple]:
        lsn_max, ms_max = self.bound
        for fields in frames:
            offset, lsn, count, now, _, crc, body = fields
            if lsn + count - 1 > lsn_max or now > ms_max:
                self.beyond = Frame(*fields)
                return
            self.moved(lsn + count - 1, crc, offset + HEADER_BYTES + len(body), now)
            self._advance(HEADER_BYTES + len(body))
            yield fields

    def moved(self, lsn: int, crc: int, offset: int, now: int) -> None:
        self.position = Position(lsn, crc, self._segment, offset, self._incarnation)
        self.now = now


def _apply_part(path: Path, place: _Progress, uuid: bytes, replay: Replay) -> None:
    """Apply the units at the beginning of the frame `place.beyond` that end within the bound."""
    beyond = place.beyond
    assert beyond is not None
    if beyond.now > place.bound.ms or beyond.lsn > place.bound.lsn:
        return
    records = records_of(path, beyond)
    ends = [
        lsn
        for lsn, record in enumerate(records, beyond.lsn)
        if record[0] & END and lsn <= place.bound.lsn
    ]
    if not ends:
        return
    count = ends[-1] - beyond.lsn + 1
    body = beyond.body[: _bytes_of(path, beyond, count)]
    # A log can only continue after a whole frame. So build the frame that the writer would have made of these units
    # alone, and take its end and CRC as the position.
    whole = frame.pack(
        beyond.lsn, count, beyond.now, beyond.synced, place.position.crc, body, crc32c_of(uuid)
    )
    crc = frame.HEADER.unpack(whole[:HEADER_BYTES])[8]
    replay.take(path, [beyond], records[:count])
    place.moved(ends[-1], crc, beyond.offset + len(whole), beyond.now)


def _bytes_of(path: Path, whole: Frame, count: int) -> int:
    """The size in bytes of the first `count` records of a frame."""
    unpack = unpacker()
    unpack.feed(whole.body)
    for _ in range(count):
        unpack.skip()
    return int(unpack.tell())


def last_bytes(disk: Disk, directory: Path, uuid: bytes, start: Start) -> int:
    """Estimate the bytes of frames behind `start`, for progress. Raises what `follow` raises."""
    found, at = beginning(disk, directory, uuid, start)
    total = 0
    for info in found:
        size = recipe.size(disk, info.path) if info.end is None else info.end.offset
        total += size - (segment.HEADER_BYTES if at is None else at.offset)
        at = None
    return total
