"""Parts that the tables of the log share: rows and sealed blocks of records as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tidelog.aof.reading.reader import FrameTuple
from tidelog.engine.effects import effect as e
from tidelog.engine.effects.effect import Effect
from tidelog.engine.streams.stored import StoredNode
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.columns import BATCH_BYTES, Origin

Array = Any  # of Arrow
Row = Sequence[bytes]  # field, value, field, value, ...

# records that add one entry; the entry's fields are at the same positions in each kind
ADDS: Final = frozenset((e.XADD, e.XADD_NODE, e.XADD_IDMP))


class Pieces:
    """Gathers small batches into larger ones, because Spark takes some time for each batch."""

    def __init__(self, rows: int) -> None:
        self.rows_max = rows
        self._pieces: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def put(self, batch: pa.RecordBatch) -> None:
        self._pieces.append(batch)
        self._rows += len(batch)
        self._bytes += batch.nbytes

    def ready(self, whole: bool) -> Iterator[pa.RecordBatch]:
        if self._pieces and (whole or self._rows >= self.rows_max or self._bytes >= BATCH_BYTES):
            pieces, self._pieces = self._pieces, []
            self._rows = self._bytes = 0
            if len(pieces) == 1:
                yield pieces[0]
            else:
                yield from pa.Table.from_batches(pieces).combine_chunks().to_batches()


def bytes_of(frames: Sequence[FrameTuple]) -> int:
    """About how many bytes the records of consecutive frames of one file have."""
    return frames[-1][0] + len(frames[-1][6]) - frames[0][0]


def many_of(effect: Effect) -> int:
    """The number of entries of an XADD_MANY."""
    _, _, _, _, _, head, blocks, tail = effect
    inside: int = sum(count for count, _ in blocks)
    return len(head) + inside + len(tail)


def nodes_of(path: Path, effect: Effect) -> tuple[list[tuple[Origin, StoredNode]], int]:
    """The sealed blocks of an XADD_MANY as nodes, and the number of entries in front of them."""
    _, db, key, ms, seq, head, blocks, _ = effect
    origin = Origin(db, key, 0, str(path), 0)
    first = (ms << 64 | seq) + len(head)
    nodes = []
    for ordinal, (count, data) in enumerate(blocks):
        nodes.append(
            (origin, StoredNode(ordinal, first, first + count - 1, count, 0, len(data), data))
        )
        first += count
    return nodes, first - (ms << 64 | seq)


def fields_of(rows: Sequence[Row | None]) -> Array:
    """The column `fields`. Null for None."""
    if None in rows:
        offsets: list[int | None] = []
        end = 0
        for row in rows:
            offsets.append(None if row is None else end)
            end += 0 if row is None else len(row) >> 1
        places = pa.array([*offsets, end], schemas.INT)
        rows = [row for row in rows if row is not None]
    else:
        lengths = np.fromiter(map(len, rows), np.int32, len(rows))  # type: ignore[arg-type]
        places = pa.array(
            np.concatenate((np.zeros(1, np.int32), np.cumsum(lengths >> 1, dtype=np.int32)))
        )
    flat = list(chain.from_iterable(rows))  # type: ignore[arg-type]
    cells = pa.StructArray.from_arrays(
        [pa.array(flat[::2], schemas.BYTES), pa.array(flat[1::2], schemas.BYTES)], ["name", "value"]
    )
    return pa.ListArray.from_arrays(places, cells, type=schemas.PAIRS)
