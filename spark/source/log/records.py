"""Frames of the log as Arrow batches of one of two tables.

entries   every entry that was appended, with the columns of a snapshot's entries
events    every record, by what happened
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from tidelog.aof.reading.reader import FrameTuple, Replay
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.columns import BATCH_ROWS
from tidelog.spark.source.log.appended import Appended
from tidelog.spark.source.log.events import EVENTS, Events
from tidelog.spark.source.log.offsets import Gap

COLUMNS: Final = {"entries": schemas.ENTRIES, "events": EVENTS}


def batches(
    table: str, stretches: Iterable[tuple[Path, Sequence[FrameTuple]]], rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a table, of about `rows` rows. A stretch is a file and consecutive frames of it.

    Raises CorruptFrame for a frame whose records do not decode, NewerRecord, CorruptBlock.
    """
    make = Appended(rows) if table == "entries" else Events(rows)
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
