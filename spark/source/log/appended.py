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
from tidelog.spark.source.batch.columns import Batches, Origin, bigint, texts, times
from tidelog.spark.source.log.pieces import ADDS, Pieces, Row, fields_of, nodes_of

_COLUMNS: Final = tuple(schemas.ENTRIES)


class Appended:
    """The entries that records append."""

    def __init__(self, rows: int) -> None:
        self._pieces = Pieces(rows)
        self._rows_max = rows
        self._path = Path()
        self._nodes: list[tuple[Origin, StoredNode]] = []
        self._clear()

    def _clear(self) -> None:
        self._dbs: list[int] = []
        self._keys: list[bytes] = []
        self._ms: list[int] = []
        self._seq: list[int] = []
        self._rows: list[Row] = []

    def begin(self, path: Path, frames: Sequence[FrameTuple]) -> None:
        self._path = path

    def take(self, records: list[Effect]) -> None:
        for record in records:
            opcode = record[0] & OPCODE
            if opcode in ADDS:
                if self._nodes:
                    self._put_blocks()
                self._dbs.append(record[1])
                self._keys.append(record[2])
                self._ms.append(record[3])
                self._seq.append(record[4])
                self._rows.append(record[5])
            elif opcode == e.XADD_MANY:
                self._take_many(record)
            elif not is_known(record[0]):
                raise UnknownEffect(record[0])

    def _take_many(self, record: Effect) -> None:
        _, db, key, ms, seq, head, _, tail = record
        nodes, before = nodes_of(self._path, record)
        self._take_rows(db, key, ms, seq, head)
        if nodes:
            self._put_rows()
            self._nodes += nodes
        self._take_rows(db, key, ms, seq + before, tail)

    def _take_rows(self, db: int, key: bytes, ms: int, seq: int, rows: Sequence[Row]) -> None:
        if rows:
            if self._nodes:
                self._put_blocks()
            count = len(rows)
            self._dbs += [db] * count
            self._keys += [key] * count
            self._ms += [ms] * count
            self._seq += range(seq, seq + count)
            self._rows += rows

    def _put_blocks(self) -> None:
        for batch in Batches(_COLUMNS, rows=self._rows_max).of(self._nodes):
            self._pieces.put(batch)
        self._nodes = []

    def _put_rows(self) -> None:
        if not self._rows:
            return
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
        self._pieces.put(pa.RecordBatch.from_arrays(list(made.values()), list(made)))
        self._clear()

    def ready(self, whole: bool = False) -> Iterator[pa.RecordBatch]:
        if whole or len(self._rows) >= self._rows_max or len(self._nodes) >= self._rows_max >> 6:
            self._put_rows()
            self._put_blocks()
        yield from self._pieces.ready(whole)
