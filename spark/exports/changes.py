"""Changes: the tables `removed` and `keys` of an incremental export, and its additions packed into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pyarrow as pa

from tidelog.engine.ids import text
from tidelog.spark.exports.incremental import Change, Piece
from tidelog.spark.exports.index import Head
from tidelog.spark.exports.request import KEYS, REMOVED
from tidelog.spark.exports.rows import RowWriter
from tidelog.spark.exports.seal import ExportFile
from tidelog.spark.exports.target import Target, writing
from tidelog.spark.source import schemas

REMOVED_SCHEMA: Final = pa.schema(
    [
        ("stream_number", schemas.LONG),
        ("db", schemas.INT),
        ("stream", schemas.BYTES),
        ("id", schemas.TEXT),
        ("first_id", schemas.TEXT),
        ("last_id", schemas.TEXT),
        ("first_key", schemas.BYTES),
        ("last_key", schemas.BYTES),
        ("count", schemas.LONG),
    ]
)
KEYS_SCHEMA: Final = pa.schema(
    [
        ("stream_number", schemas.LONG),
        ("event", schemas.TEXT),
        ("db", schemas.INT),
        ("stream", schemas.BYTES),
        ("was_db", schemas.INT),
        ("was_stream", schemas.BYTES),
        ("source_number", schemas.LONG),
    ]
)


class RemovedAndKeys:
    """Writes both tables. `files` describes them afterwards."""

    def __init__(self, target: Target) -> None:
        self._removed = _Table(target, REMOVED, REMOVED_SCHEMA)
        self._keys = _Table(target, KEYS, KEYS_SCHEMA)

    def add(self, change: Change) -> None:
        """Write the rows of one stream."""
        self._removed.rows.add(_removed_rows(change))
        self._keys.rows.add(_key_rows(change))

    @property
    def files(self) -> tuple[ExportFile, ExportFile]:
        return self._removed.file, self._keys.file

    def __enter__(self) -> RemovedAndKeys:
        with ExitStack() as entered:
            entered.enter_context(self._removed)
            entered.enter_context(self._keys)
            self._entered = entered.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._entered.__exit__(kind, error, trace)


class _Table:
    """One table as one file."""

    file: ExportFile

    def __init__(self, target: Target, table: str, schema: pa.Schema) -> None:
        self._table, self._schema = table, schema
        self._name = f"{table}/part-00000.parquet"
        self._writing = writing(target, self._name)

    def __enter__(self) -> _Table:
        self._sink = self._writing.__enter__()
        self.rows = RowWriter(self._sink, self._schema)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None:
                self.rows.close()
                self.file = ExportFile(
                    self._name, self._table, self.rows.count, *self._sink.publish()
                )
        except BaseException as failed:
            self._writing.__exit__(type(failed), failed, failed.__traceback__)
            raise
        self._writing.__exit__(kind, error, trace)


def _removed_rows(change: Change) -> Iterator[tuple[Any, ...]]:
    head = change.was or change.head
    for first, last, count in change.removed:
        texts = text(first).decode(), text(last).decode()
        only = texts[0] if first == last else None
        keys = first.to_bytes(16, "big"), last.to_bytes(16, "big")
        yield change.head.number, head.db, head.key, only, *texts, *keys, count


def _key_rows(change: Change) -> Iterator[tuple[Any, ...]]:
    if change.event:
        head, was = change.head, change.was
        before = (None, None) if was is None else (was.db, was.key)
        yield head.number, change.event, head.db, head.key, *before, change.source


class Packing:
    """Packs pieces of streams into tasks of about `nodes_max` nodes."""

    def __init__(self, nodes_max: int) -> None:
        self._max = nodes_max
        self._parts: list[tuple[tuple[Head, tuple[Piece, ...]], ...]] = []
        self._open: list[tuple[Head, list[Piece]]] = []
        self._held = 0

    def add(self, head: Head, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            start, first = piece.start, piece.first
            while start < piece.stop:
                stop = min(piece.stop, start + max(self._max - self._held, 1))
                if not self._open or self._open[-1][0] != head:
                    self._open.append((head, []))
                self._open[-1][1].append(Piece(start, stop, first, piece.hide))
                self._held += stop - start
                if self._held >= self._max:
                    self._close()
                start, first = stop, None

    def parts(self) -> list[tuple[tuple[Head, tuple[Piece, ...]], ...]]:
        self._close()
        return self._parts

    def _close(self) -> None:
        if self._open:
            self._parts.append(tuple((head, tuple(pieces)) for head, pieces in self._open))
            self._open, self._held = [], 0
