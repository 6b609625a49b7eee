"""Frames of the log as Arrow batches of one of two tables.

entries   every entry that was appended, with the columns of a snapshot's entries
events    every record, by what happened
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from tidelog.aof.reading.reader import FrameTuple, Replay
from tidelog.engine.effects.effect import END, Effect
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.columns import BATCH_ROWS
from tidelog.spark.source.log.appended import Appended
from tidelog.spark.source.log.events import EVENTS, Events
from tidelog.spark.source.log.offsets import Gap, Within

COLUMNS: Final = {"entries": schemas.ENTRIES, "events": EVENTS}


class Counts(NamedTuple):
    """The records of a frame.

    rows   that each makes in a table
    ends   whether each is the last of its unit
    """

    rows: list[int]
    ends: list[bool]

    def before(self, place: Within | None) -> int:
        """The number of rows in front of a place in the frame."""
        if place is None:
            return 0
        rows, at = self.rows, place.records
        return sum(rows[:at]) + sum(min(each, place.rows) for each in rows[at : at + 1])

    def stop(self, start: Within | None, room: int, most: int) -> tuple[int, int] | None:
        """Where a batch that begins at `start`, or with the frame, and has room for `room` rows ends: (records, rows)
        as in `Within`. None: behind the frame.

        It ends where a unit does. Only a unit that has more rows than the `most` that a batch may have is split.
        """
        at = (0, 0) if start is None else start[1:]
        left, unit = room, -at[1]
        for record in range(at[0], len(self.rows)):
            unit += self.rows[record]
            if unit > left:
                return self._split(at, left) if left == most else at
            if self.ends[record]:
                left, unit, at = left - unit, 0, (record + 1, 0)
        return None

    def _split(self, at: tuple[int, int], rows: int) -> tuple[int, int]:
        record, done = at
        while self.rows[record] - done <= rows:
            rows -= self.rows[record] - done
            record, done = record + 1, 0
        return record, done + rows


def count(table: str, path: Path, frame: FrameTuple) -> Counts:
    """Count the rows of a frame's records. Raises CorruptFrame, NewerRecord."""
    make, found = _maker(table, 1), Counts([], [])

    def take(records: list[Effect]) -> None:
        found.rows.extend(map(make.count, records))
        found.ends.extend(record[0] & END != 0 for record in records)

    Replay(take).run(path, [frame])
    return found


def _maker(table: str, rows: int) -> Appended | Events:
    return Appended(rows) if table == "entries" else Events(rows)


def part(
    table: str, path: Path, frame: FrameTuple, start: Within | None, end: Within | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame between two places in it; None: its beginning, and its end. Raises as `batches`."""
    counts = count(table, path, frame)
    skip = counts.before(start)
    left = (sum(counts.rows) if end is None else counts.before(end)) - skip
    for batch in batches(table, [(path, [frame])]):
        some = batch.slice(min(skip, len(batch)), max(left, 0))
        skip = max(skip - len(batch), 0)
        left -= len(some)
        if len(some):
            yield some


def batches(
    table: str, stretches: Iterable[tuple[Path, Sequence[FrameTuple]]], rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table, of about `rows` rows. A stretch is a file and consecutive frames of it.

    Raises CorruptFrame for a frame whose records do not decode, NewerRecord, CorruptBlock.
    """
    make = _maker(table, rows)
    replay = Replay(make.take)
    for path, frames in stretches:
        for start in range(0, len(frames), rows):
            some = frames[start : start + rows]
            make.begin(path, some)
            replay.run(path, some)
            yield from make.ready()
    yield from make.ready(whole=True)


def gap(ts: int, lost: Gap) -> pa.RecordBatch:
    """One event `gap`. `ts`: unix ms."""
    events = Events(1)
    events.gap(max(lost.last, 0), ts, lost.detail)
    (batch,) = events.ready(whole=True)
    return batch
