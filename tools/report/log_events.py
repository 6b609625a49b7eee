"""The events of a store's log as a Parquet file, with the columns and events that a report needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.aof.reading.reader import FrameTuple
from tidelog.aof.tail import Tail
from tidelog.disk.real import RealDisk
from tidelog.spark.source.log import records
from tidelog.tools import console
from tidelog.tools.logfiles import LogFiles, store_root

COLUMNS: Final = (
    *("lsn", "ts", "db", "event", "stream", "group", "consumer", "id"),
    *("delivery_count", "delivered_at"),
)
KINDS: Final = ("added", "delivered", "claimed", "reread", "acknowledged", "released")
BATCH_ROWS: Final = 50_000


def written(store: Path, to: Path) -> Path:
    """Write the events of the log of a store, whose writer may be running. Raises NotAStore, Damage, OSError."""
    files = LogFiles(store_root(RealDisk(), store))
    schema = pa.schema([(name, records.COLUMNS["events"][name]) for name in COLUMNS])
    with (
        console.progress("log", files.size(), size=True) as advance,
        pq.ParquetWriter(to, schema) as out,
    ):
        for batch in records.batches("events", _stretches(files, advance), BATCH_ROWS):
            kept = pc.is_in(batch.column("event"), value_set=pa.array(KINDS))
            out.write_batch(batch.select(list(COLUMNS)).filter(kept))
    return to


def _stretches(
    files: LogFiles, advance: console.Advance
) -> Iterator[tuple[Path, list[FrameTuple]]]:
    """The frames of each segment."""
    tail = Tail(files.disk, files.directory, files.uuid)
    while (stretch := tail.look()) is not None:
        yield stretch.path, stretch.frames
        tail.position = stretch.end
        advance(sum(len(frame[-1]) for frame in stretch.frames))
