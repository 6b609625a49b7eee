"""The entries that records of the log append, with the columns of a snapshot's entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from tidelog.aof.reading.reader import FrameTuple
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.apply import is_known
from tidelog.engine.effects.effect import OPCODE, Effect
from tidelog.engine.errors import UnknownEffect
from tidelog.engine.streams.stored import StoredNode
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.columns import BATCH_BYTES, Batches, Origin, bigint, texts, times
from tidelog.spark.source.log.pieces import (
    ADDS,
    Pieces,
    Row,
    bytes_of,
    fields_of,
    many_of,
    nodes_of,
)

_COLUMNS: Final = tuple(schemas.ENTRIES)


class Appended:
    """The entries that records append.

    Entries come as rows, or in sealed blocks. Converting few of them costs about as much as converting thousands. So
    rows and blocks wait, each with their kind, until there are enough; then they are put in order again.
    """

    def __init__(self, rows: int) -> None:
        self._pieces = Pieces(rows)
        self._rows_max = rows
        self._path = Path()
        self._clear()

    def _clear(self) -> None:
        self._dbs: list[int] = []
        self._keys: list[bytes] = []
        self._ms: list[int] = []
        self._seq: list[int] = []
        self._rows: list[Row] = []
        self._nodes: list[tuple[Origin, StoredNode]] = []
        # (entries, whether they are in nodes) of each run of one kind, but the last run if it is of rows
        self._runs: list[tuple[int, bool]] = []
        self._in_runs = 0  # rows in them
        self._waiting = 0  # entries in nodes
        self._bytes = 0  # of the log, since the last batch was made

    def begin(self, path: Path, frames: Sequence[FrameTuple]) -> None:
        self._path = path
        self._bytes += bytes_of(frames)

    def take(self, records: list[Effect]) -> None:
        if {record[0] & OPCODE for record in records} <= ADDS:
            columns = list(zip(*records))
            self._dbs += columns[1]
            self._keys += columns[2]
            self._ms += columns[3]
            self._seq += columns[4]
            self._rows += columns[5]
            return
        for record in records:
            opcode = record[0] & OPCODE
            if opcode in ADDS:
                self._dbs.append(record[1])
                self._keys.append(record[2])
                self._ms.append(record[3])
                self._seq.append(record[4])
                self._rows.append(record[5])
            elif opcode == e.XADD_MANY:
                self._take_many(record)
            elif not is_known(record[0]):
                raise UnknownEffect(record[0])

    def count(self, record: Effect) -> int:
        """The number of rows that `take` makes of a record."""
        opcode = record[0] & OPCODE
        return many_of(record) if opcode == e.XADD_MANY else opcode in ADDS

    def _take_many(self, record: Effect) -> None:
        _, db, key, ms, seq, head, _, tail = record
        nodes, before = nodes_of(self._path, record)
        self._take_rows(db, key, ms, seq, head)
        if nodes:
            self._end_rows()
            self._nodes += nodes
            self._runs.append((before - len(head), True))
            self._waiting += before - len(head)
        self._take_rows(db, key, ms, seq + before, tail)

    def _take_rows(self, db: int, key: bytes, ms: int, seq: int, rows: Sequence[Row]) -> None:
        if rows:
            count = len(rows)
            self._dbs += [db] * count
            self._keys += [key] * count
            self._ms += [ms] * count
            self._seq += range(seq, seq + count)
            self._rows += rows

    def _end_rows(self) -> None:
        count = len(self._rows) - self._in_runs
        if count:
            self._runs.append((count, False))
            self._in_runs += count

    def ready(self, whole: bool = False) -> Iterator[pa.RecordBatch]:
        waiting = len(self._rows) + self._waiting
        if waiting and (whole or waiting >= self._rows_max or self._bytes >= BATCH_BYTES):
            self._end_rows()
            rows = _Cut(iter((self._rows_batch(),)))
            blocks = _Cut(Batches(_COLUMNS, rows=self._rows_max).of(self._nodes))
            for count, in_nodes in self._runs:
                for batch in (blocks if in_nodes else rows).take(count):
                    self._pieces.put(batch)
            self._clear()
        yield from self._pieces.ready(whole)

    def _rows_batch(self) -> pa.RecordBatch:
        ms, seq = np.array(self._ms, np.uint64), np.array(self._seq, np.uint64)
        made = {
            "db": pa.array(self._dbs, schemas.INT),
            "stream": pa.array(self._keys, schemas.BYTES),
            "id": texts(ms, seq),
            "ms": bigint(ms),
            "seq": bigint(seq),
            "ts": times(ms),
            "fields": fields_of(self._rows),
        }
        return pa.RecordBatch.from_arrays(list(made.values()), list(made))


class _Cut:
    """Batches, taken in pieces of given numbers of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None
        self._at = 0

    def take(self, count: int) -> Iterator[pa.RecordBatch]:
        """The next `count` rows."""
        while count:
            if self._batch is None or self._at == len(self._batch):
                self._batch, self._at = next(self._batches), 0
            some = self._batch.slice(self._at, count)
            self._at += len(some)
            count -= len(some)
            yield some
