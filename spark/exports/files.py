"""Files: the rows of one task as files.

Rows are gathered until they fill a file, so a task needs the same memory whatever the size of its part. Entries are
sorted by stream and ID within a file.

A batch that is larger than a file holds one large entry, or a block of them. It becomes a file of its own, which is not
compressed: while an entry is compressed, it is in memory five times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.engine.ids import text
from tidelog.spark.exports.formats import FORMATS
from tidelog.spark.exports.seal import ExportFile
from tidelog.spark.exports.target import HELD_BYTES, Sink, Target

FILE_BYTES: Final = 64 << 20  # of rows as Arrow has them
RUNS: Final = 256  # if a file has at most this many streams, sort it stream by stream
KEY_BYTES: Final = 100  # a longer key is named by its hash in a path
DAY_MS: Final = 86_400_000
NO_DATE: Final = "__HIVE_DEFAULT_PARTITION__"
ENTRIES: Final = "entries"
_SORT_KEYS: Final = ("stream", "db", "id_key")
_FOLDERS: Final = {"stream": "stream_key", "date": "date"}


class Shape(NamedTuple):
    """Where the rows of a task go.

    table, part    name the files: TABLE/part-00007.parquet
    partition_by   any of "stream" and "date"
    drop           columns that are not written
    """

    table: str
    part: int
    format: str
    partition_by: tuple[str, ...]
    drop: tuple[str, ...]


def write_files(
    target: Target, shape: Shape, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[ExportFile]:
    """Write the rows and yield the files: at least one, unless they are in folders."""
    number = 0
    for table in _filled(schema, batches):
        named = _named(shape, number, table)
        del table  # free its memory before the next rows are read
        while files := _write(target, shape, islice(named, target.together)):
            yield from files
        number += 1


def _filled(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Gather batches into the tables of one file each; without rows, one empty table."""
    held: list[pa.RecordBatch] = []
    nbytes = 0
    some = False

    def taken() -> Any:
        nonlocal nbytes, some
        table = pa.Table.from_batches(held, schema)
        held.clear()
        nbytes, some = 0, True
        return table

    for batch in batches:
        if held and nbytes + batch.nbytes > FILE_BYTES:
            yield taken()
        held.append(batch)
        nbytes += batch.nbytes
        del batch
        if nbytes >= FILE_BYTES:
            yield taken()
    if held or not some:
        yield taken()


def _named(shape: Shape, number: int, table: Any) -> Iterator[tuple[str, Any]]:
    """(name, rows) of each file that the table with this number becomes."""
    again = f"-{number}" if number else ""
    file = f"part-{shape.part:05d}{again}{FORMATS[shape.format].suffix}"
    for folder, rows in _folders(shape, table):
        yield f"{shape.table}/{folder}{file}", rows


def _folders(shape: Shape, table: Any) -> Iterator[tuple[str, Any]]:
    """(folder, rows) of each file that a table becomes."""
    if shape.table != ENTRIES:
        yield "", table
    elif shape.partition_by:
        yield from _partitioned(table, shape.partition_by)
    else:
        yield "", in_order(table)


def _write(target: Target, shape: Shape, named: Iterable[tuple[str, Any]]) -> list[ExportFile]:
    """Write some files, and publish them together."""
    sinks: list[Sink] = []
    try:
        made = [_fill(target, shape, name, table, sinks) for name, table in named]
        written = target.publish(sinks)
    except BaseException:
        for sink in sinks:
            sink.drop()
        raise
    return [
        file._replace(nbytes=nbytes, blake2b=digest)
        for file, (nbytes, digest) in zip(made, written)
    ]


def _fill(target: Target, shape: Shape, name: str, table: Any, sinks: list[Sink]) -> ExportFile:
    """Write a file that is not published yet."""
    kept = table.select([each for each in table.column_names if each not in shape.drop])
    ranges = None
    if shape.table == ENTRIES and len(table):
        first, last = _place(table, 0), _place(table, len(table) - 1)
        ranges = {"stream": [first[0], last[0]], "id": [first[1], last[1]]}
    rows, large = len(table), kept.nbytes > FILE_BYTES
    sink = target.create(name)
    sinks.append(sink)
    # Parquet comes in thirty pieces: those of a small file are joined by Arrow, which is much faster than Python.
    small, held = kept.nbytes < HELD_BYTES, pa.BufferOutputStream()
    writer = FORMATS[shape.format].writer(
        held if small else sink, kept.schema, compressed=not large
    )
    writer.write(kept)
    writer.close()
    if small:
        sink.write(held.getvalue())
    if large:
        del kept, table, writer
        pa.default_memory_pool().release_unused()
    return ExportFile(name, shape.table, rows, 0, "", ranges)


def _place(table: Any, at: int) -> tuple[Any, str]:
    """Stream and ID of a row, as JSON has them."""
    key = table["stream"][at].as_py()
    entry_id = int.from_bytes(table["id_key"][at].as_py(), "big")
    try:
        return key.decode(), text(entry_id).decode()
    except UnicodeDecodeError:
        return {"hex": key.hex()}, text(entry_id).decode()


def in_order(table: Any) -> Any:
    """Sort rows by stream and ID. The rows of one stream are together, and in order."""
    numbers = table["stream_number"].to_numpy()
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    if not len(cuts):
        return table
    if len(cuts) >= RUNS:
        whole = table.combine_chunks()
        return whole.take(pc.sort_indices(whole, sort_keys=[(key, "ascending") for key in _SORT_KEYS]))  # fmt: skip
    starts = [0, *cuts.tolist(), len(table)]
    runs = sorted(
        (table["stream"][start].as_py(), table["db"][start].as_py(), start, stop)
        for start, stop in pairwise(starts)
    )
    return pa.concat_tables([table.slice(start, stop - start) for _, _, start, stop in runs])


def _partitioned(table: Any, by: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """(folder, rows) of each partition, the rows in order."""
    table = in_order(table)
    keys: dict[tuple[Any, ...], int] = {}
    parts = [_stream_keys(table) if each == "stream" else _dates(table) for each in by]
    group = np.array([keys.setdefault(each, len(keys)) for each in zip(*parts)], np.int64)
    bounds = np.concatenate(([0], np.cumsum(np.bincount(group)))).tolist()
    # The rows of a partition may be together already: always if streams come first and each key is in one database.
    order = None if (np.diff(group) >= 0).all() else np.argsort(group, kind="stable")
    for values, (start, stop) in zip(keys, pairwise(bounds)):
        folder = "".join(f"{_FOLDERS[each]}={value}/" for each, value in zip(by, values))
        if order is None:
            yield folder, table.slice(start, stop - start)
        else:
            yield folder, table.take(pa.array(order[start:stop]))


def _stream_keys(table: Any) -> list[str]:
    """A name for each row's stream that every reader of paths takes as it is: `k-` and hex digits."""
    coded = table["stream"].combine_chunks().dictionary_encode()
    names = [stream_key(key) for key in coded.dictionary.to_pylist()]
    return [names[at] for at in coded.indices.to_pylist()]


def stream_key(key: bytes) -> str:
    """The encoded name of a stream in a path; of a long key its hash."""
    if len(key) > KEY_BYTES:
        return f"h-{blake2b(key, digest_size=16).hexdigest()}"
    return f"k-{key.hex()}"


def _dates(table: Any) -> list[str]:
    days = pc.divide(table["ms"], DAY_MS)
    coded = days.combine_chunks().dictionary_encode(null_encoding="encode")
    names = [_date(day) for day in coded.dictionary.to_pylist()]
    return [names[at] for at in coded.indices.to_pylist()]


def _date(day: int | None) -> str:
    if day is None:
        return NO_DATE
    try:
        return str(np.datetime64(day, "D"))
    except (ValueError, OverflowError):
        return NO_DATE
