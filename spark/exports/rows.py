"""Rows: tuples written as a Parquet file, for tables that are small beside the entries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

HELD: Final = 1 << 16  # rows of a row group


class RowWriter:
    """Gathers tuples in the order of a schema, and writes them to a file that pyarrow can write to.

    count   how many were added
    """

    def __init__(self, sink: Any, schema: pa.Schema, **options: Any) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(sink, schema, compression="zstd", **options)
        self._held: list[tuple[Any, ...]] = []
        self.count = 0

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            self._held.append(row)
            self.count += 1
            if len(self._held) == HELD:
                self._flush()

    def close(self) -> None:
        """Write what is held, and the end of the file."""
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._held:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self._held), self._schema)
            ]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            self._held.clear()
