"""Combine: a whole export and the incremental ones after it, as the entries of the last snapshot.

An entry of an export is in the result unless a later export removed it. In each export, removals come before
additions, so an export's own removals do not concern its additions. A stream that was copied has the entries that its
source had at the export before, and its own changes after that. So each file is filtered alone, in any order, by ranges
of IDs: the same code runs here and in Spark's workers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.engine.ids import SEQ_MAX
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.files import ENTRIES
from tidelog.spark.exports.formats import parquet_batches
from tidelog.spark.exports.incremental import COPIED, ENDED
from tidelog.spark.exports.plan import ADDED
from tidelog.spark.exports.request import KEYS, REMOVED
from tidelog.spark.exports.seal import Export, ExportFile, not_whole, read_export, verify
from tidelog.spark.exports.target import EXPORT, HASH_BYTES, target_of, telling
from tidelog.spark.source import schemas

BATCH_ROWS: Final = 64 << 10

Ranges = list[tuple[int, int]]  # (first ID, last ID), in ascending order, with gaps between them
Name = tuple[int, bytes]  # database and key


@dataclass
class Later:
    """The effect of one incremental export on the entries before it, by stream number.

    removed   ranges of IDs            ended     streams that are gone
    copies    source -> numbers of the streams that were copied from it
    names     streams whose name changed, or that are new
    """

    removed: dict[int, Ranges] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    copies: dict[int, list[int]] = field(default_factory=dict)
    names: dict[int, Name] = field(default_factory=dict)


def chain(exports: Sequence[str]) -> list[Export]:
    """Read the seals of exports and check that each continues the one before. Raises TidelogSparkError."""
    if not exports:
        raise TidelogSparkError(EXPORT, "name at least one export")
    found = [read_export(each) for each in exports]
    first = found[0]
    if first.seal.since is not None:
        raise TidelogSparkError(
            EXPORT,
            f"{first.name} holds only what changed since {first.seal.since.path}; begin with a whole export",
        )
    for before, after in pairwise(found):
        since = after.seal.since
        if since is None:
            raise TidelogSparkError(
                EXPORT, f"{after.name} is a whole export; leave out the exports before it"
            )
        if since.check != before.seal.check:
            raise TidelogSparkError(
                EXPORT,
                f"{after.name} continues {since.path} (LSN {since.lsn}), not {before.name} (LSN "
                f"{before.seal.snapshot.position.lsn}). Name the exports in the order in which they were made",
            )
    for each in found:
        if ENTRIES not in each.seal.tables or each.seal.write["format"] != "parquet":
            raise TidelogSparkError(
                EXPORT,
                f"{each.name} cannot be combined, because it does not have the table entries in Parquet",
            )
    return found


class Files(NamedTuple):
    """The files of a chain of exports, and what each export did to those before it."""

    exports: list[str]
    files: list[list[ExportFile]]
    later: list[Later]

    def places(self) -> list[tuple[int, int]]:
        """Each file: the number of its export, and its own number there."""
        return [(at, number) for at, files in enumerate(self.files) for number in range(len(files))]

    def read(self, at: int, number: int) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a file that no later export removed. Raises TidelogSparkError.

        The file is read whole and its checksum compared: the end of a Parquet file has no checksum of its own.
        """
        place, file = self.exports[at], self.files[at][number]
        surviving = Surviving(self.later[at:])
        with telling(f"{place}/{file.name}"):
            target = target_of(place)
            data = target.read(file.name)
            if blake2b(data, digest_size=HASH_BYTES).hexdigest() != file.blake2b:
                raise not_whole(target, file)
            yield from surviving.of(
                parquet_batches(pq.ParquetFile(pa.BufferReader(data)), BATCH_ROWS)
            )

    def columns(self) -> dict[str, pa.DataType]:
        """The columns of the entries. Raises TidelogSparkError."""
        for place, files in zip(self.exports, self.files):
            if not files:
                continue
            with telling(f"{place}/{files[0].name}"), target_of(place).source(files[0].name) as source:  # fmt: skip
                return {each.name: each.type for each in pq.read_schema(source)}
        return {**schemas.TABLES[ENTRIES], **ADDED}


def files_of(exports: Sequence[str]) -> Files:
    """Read the seals of a chain of exports, and what each removed. Raises TidelogSparkError."""
    found = chain(exports)
    return Files(
        list(exports),
        [export.seal.of_table(ENTRIES) for export in found],
        [_later(export) for export in found[1:]],
    )


def combined(exports: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the entries of the last export's snapshot, read in this process. The order is that of the files.

    Raises TidelogSparkError.
    """
    files = files_of(exports)
    for place in files.places():
        yield from files.read(*place)


class Surviving:
    """Filters the entries of one export by what later ones removed, and gives them the names of the last."""

    def __init__(self, later: Sequence[Later]) -> None:
        self._later = later
        self._fates: dict[int, list[tuple[int, Name | None, Ranges]]] = {}

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what is left of the batches."""
        if not self._later:
            yield from batches
            return
        for batch in batches:
            numbers = batch.column("stream_number").to_numpy(zero_copy_only=False)
            cuts = np.flatnonzero(np.diff(numbers)) + 1
            for start, stop in pairwise([0, *cuts.tolist(), len(numbers)]):
                if start < stop:
                    yield from self._run(batch.slice(start, stop - start), int(numbers[start]))

    def _run(self, batch: pa.RecordBatch, number: int) -> Iterator[pa.RecordBatch]:
        """Entries of one stream, ascending."""
        fates = self._fates.get(number)
        if fates is None:
            fates = self._fates[number] = self._fate(number)
        for final, name, ranges in fates:
            left = batch.filter(pa.array(_outside(batch, ranges))) if ranges else batch
            if len(left):
                yield _named(left, final, name)

    def _fate(self, number: int) -> list[tuple[int, Name | None, Ranges]]:
        """The streams that have the entries of this one in the end: number, name if it changed, ranges removed."""
        states: list[tuple[int, Name | None, list[Ranges]]] = [(number, None, [])]
        for change in self._later:
            following: list[tuple[int, Name | None, list[Ranges]]] = []
            for held, name, gone in states:
                for copy in change.copies.get(held, ()):
                    removed = change.removed.get(copy, [])
                    following.append((copy, change.names[copy], [*gone, removed]))
                if held not in change.ended:
                    removed = change.removed.get(held, [])
                    following.append((held, change.names.get(held, name), [*gone, removed]))
            states = following
        return [(held, name, _union(gone)) for held, name, gone in states]


def _later(export: Export) -> Later:
    found = Later()
    for file in (*export.seal.of_table(REMOVED), *export.seal.of_table(KEYS)):
        verify(export, file)
    for row in _rows(export, KEYS):
        number, event = row["stream_number"], row["event"]
        if event == ENDED:
            found.ended.add(number)
            continue
        found.names[number] = row["db"], row["stream"]
        if event == COPIED:
            found.copies.setdefault(row["source_number"], []).append(number)
    for row in _rows(export, REMOVED):
        pair = int.from_bytes(row["first_key"], "big"), int.from_bytes(row["last_key"], "big")
        found.removed.setdefault(row["stream_number"], []).append(pair)
    return found


def _rows(export: Export, table: str) -> Iterator[dict[str, Any]]:
    for file in export.seal.of_table(table):
        with telling(export.name), export.target.source(file.name) as source:
            for batch in parquet_batches(pq.ParquetFile(source), BATCH_ROWS):
                yield from batch.to_pylist()


def _union(gone: list[Ranges]) -> Ranges:
    """All ranges, ascending; those that meet are one."""
    found: Ranges = []
    for first, last in sorted(pair for ranges in gone for pair in ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found


def _outside(batch: pa.RecordBatch, ranges: Ranges) -> Any:
    """True for each entry whose ID is in no range. The entries ascend."""
    ids = _Ids(batch.column("id_key"))
    keep = np.ones(len(ids), bool)
    least, most = ids[0], ids[len(ids) - 1]
    at = bisect_left(ranges, least, key=lambda pair: pair[1])
    while at < len(ranges) and ranges[at][0] <= most:
        first, last = ranges[at]
        keep[ids.place(first) : ids.place(last + 1)] = False
        at += 1
    return keep


class _Ids(Sequence[int]):
    """A column of ascending IDs of 16 bytes."""

    def __init__(self, column: Any) -> None:
        joined = b"".join(column.to_pylist()) if column.offset else _bytes(column)
        both = np.frombuffer(joined, ">u8").reshape(-1, 2)
        self._ms, self._seq = both[:, 0].astype(np.uint64), both[:, 1].astype(np.uint64)

    def __len__(self) -> int:
        return len(self._ms)

    def __getitem__(self, at: Any) -> Any:
        return int(self._ms[at]) << 64 | int(self._seq[at])

    def place(self, entry_id: int) -> int:
        """The first place whose ID is `entry_id` or greater."""
        if entry_id >> 128:
            return len(self)
        ms, seq = np.uint64(entry_id >> 64), np.uint64(entry_id & SEQ_MAX)
        low, high = np.searchsorted(self._ms, ms, "left"), np.searchsorted(self._ms, ms, "right")
        return int(low + np.searchsorted(self._seq[low:high], seq, "left"))


def _bytes(column: Any) -> bytes:
    found: bytes = column.buffers()[2].to_pybytes()[: 16 * len(column)]
    return found


def _named(batch: pa.RecordBatch, number: int, name: Name | None) -> pa.RecordBatch:
    """The batch with another stream number and name."""
    if name is None:
        return batch
    changed: dict[str, Any] = {"db": name[0], "stream": name[1], "stream_number": number}
    columns = [
        pa.repeat(pa.scalar(changed[each.name], each.type), len(batch))
        if each.name in changed
        else column
        for each, column in zip(batch.schema, batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
