"""The events of a store's log as a Parquet file, with the columns and events that a report needs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidelog.spark.source.log import records
from tidelog.tools import console
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.report.plain_log import stretches

COLUMNS: Final = (
    *("lsn", "ts", "db", "event", "stream", "group", "consumer", "id"),
    *("delivery_count", "delivered_at"),
)
KINDS: Final = ("added", "delivered", "claimed", "reread", "acknowledged", "released")
BATCH_ROWS: Final = 50_000


def written(files: LogFiles, to: Path) -> Path:
    """Write the events of a log, whose writer may be running. Raises Damage, OSError."""
    schema = pa.schema([(name, records.COLUMNS["events"][name]) for name in COLUMNS])
    with (
        console.progress("log", files.size(), size=True) as advance,
        pq.ParquetWriter(to, schema) as out,
    ):
        for batch in records.batches("events", stretches(files, advance), BATCH_ROWS):
            kept = pc.is_in(batch.column("event"), value_set=pa.array(KINDS))
            out.write_batch(batch.select(list(COLUMNS)).filter(kept))
    return to
