"""Reach: how far the log can be followed from a base before it is damaged.

Unlike recovery it does not raise at damage: it ends there. Every record is checked before it is applied, so that the
state is right up to the last whole unit before the damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tidelog.aof import durable
from tidelog.aof.errors import CorruptFrame, Damage, MissingSegment, NewerRecord
from tidelog.aof.frame import HEADER_BYTES, Frame
from tidelog.aof.reading.reader import Epoch, Scan, Segment, records_of
from tidelog.aof.segment import Position
from tidelog.aof.start import Start, beginning
from tidelog.engine.effects.apply import APPLY, is_known
from tidelog.engine.effects.effect import EPOCH, OPCODE, Effect
from tidelog.engine.keys.state import State
from tidelog.tools.aof import record_check
from tidelog.tools.bases import Base, state_of
from tidelog.tools.logfiles import LogFiles


class Reach(NamedTuple):
    """The end of what can be followed.

    start     where the log would continue; `start.lsn` is the last LSN
    records   number of records applied
    damage    why it ends there; None: the log ends
    """

    start: Start
    records: int
    damage: Damage | None


def follow(files: LogFiles, start: Start, state: State, to_lsn: int | None = None) -> Reach:
    """Apply the frames behind `start` to `state`, up to the first damage, or those that end at or before `to_lsn`.

    Raises NewerRecord, NewerFormat, OSError; what apply raises for a record that does not fit the state becomes the
    damage, and the state is then not to be used.
    """
    followed = _Followed(start)
    try:
        for info, frame in _frames(files, followed):
            if to_lsn is not None and frame.lsn + frame.count - 1 > to_lsn:
                return followed.reach(None)
            records = checked_records(info.path, frame)
            _apply(info, frame, records, state)
            followed.take(info, frame, records)
    except Damage as error:
        return followed.reach(error)
    return followed.reach(None)


@contextmanager
def state_at(files: LogFiles, base: Base, lsn: int) -> Iterator[State]:
    """The state of a base after the frames up to `lsn`, for use in the block. Raises as `follow` and `state_of`."""
    with state_of(files, base) as (state, start):
        follow(files, start, state, lsn)
        yield state


class _Followed:
    """How far the log was followed."""

    def __init__(self, start: Start) -> None:
        self.begun = start
        self.position = start.position
        self.epochs = list(start.epochs)
        self.now = start.now

    def take(self, info: Segment, frame: Frame, records: list[Effect]) -> None:
        header = info.header
        behind = frame.offset + HEADER_BYTES + len(frame.body)
        last = frame.lsn + frame.count - 1
        self.position = Position(last, frame.crc, header.first_lsn, behind, header.incarnation)
        self.now = frame.now
        if records[0][0] & OPCODE == EPOCH:
            self.epochs.append(Epoch(records[0][1], records[0][2], frame.lsn))

    def reach(self, damage: Damage | None) -> Reach:
        start = Start(*self.position, tuple(self.epochs), self.now)
        return Reach(start, start.lsn - self.begun.lsn, damage)


def _frames(files: LogFiles, followed: _Followed) -> Iterator[tuple[Segment, Frame]]:
    """The frames behind the start. Raises Damage where they end before the log does."""
    start = followed.begun
    promises = durable.read(files.disk, files.directory, files.uuid)
    found, fault = usable(files, start)
    found, at = beginning(files.disk, files.directory, files.uuid, start, found)
    scan: Scan | None = None
    for info in found:
        scan = Scan(files.disk, info, promises, live=True, start=at)
        at = None
        for frame in scan.frames():
            yield info, frame
        error = scan.error()
        if error is not None:
            raise error
    if fault is not None:
        raise fault
    headers = files.headers()[1]
    missing = files.missing_last(promises, headers, scan) if headers else _emptied(files, start)
    if missing is not None and missing.expected_lsn > start.lsn:
        raise missing


def fit(files: LogFiles, start: Start) -> Damage | None:
    """The reason why the log cannot be followed from `start` on; None if it can. Raises NewerFormat, OSError."""
    try:
        found, fault = usable(files, start)
        beginning(files.disk, files.directory, files.uuid, start, found)
    except Damage as error:
        return error
    return fault if not found else None


def _emptied(files: LogFiles, start: Start) -> MissingSegment | None:
    return None if start.lsn else files.missing_first([])


def usable(files: LogFiles, start: Start) -> tuple[list[Segment], Damage | None]:
    """The segments that may hold records behind `start`, up to the first faulty header, and its fault."""
    headers = files.headers()[1]
    begun = [at for at, header in enumerate(headers) if header.first_lsn <= start.lsn + 1]
    found: list[Segment] = []
    for header in headers[max(len(begun) - 1, 0) :]:
        if header.fault is not None or header.fields is None:
            return found, header.fault
        found.append(header.segment())
    return found, None


def checked_records(path: Path, frame: Frame) -> list[Effect]:
    """The records of a frame. Raises CorruptFrame if one of them is no effect, NewerRecord."""
    records = records_of(path, frame)
    for lsn, effect in enumerate(records, frame.lsn):
        if not is_known(effect[0]):
            raise NewerRecord(path, frame.offset, lsn, effect[0])
        fault = record_check.fault(effect)
        if fault:
            raise CorruptFrame(path, frame.offset, frame.lsn, lsn, f"LSN {lsn}: {fault}")
    return records


def _apply(info: Segment, frame: Frame, records: list[Effect], state: State) -> None:
    for lsn, effect in enumerate(records, frame.lsn):
        try:
            APPLY[effect[0]](state, effect)
        except Exception as error:
            # Apply accepts every effect that decide makes, so this is damage that no checksum covers.
            reason = f"LSN {lsn} cannot be applied: {type(error).__name__}: {error}"
            raise CorruptFrame(info.path, frame.offset, frame.lsn, lsn, reason) from error
