"""Columns: sealed blocks of streams as Arrow batches of entries, without Python code per entry.

A block holds its values row by row, as the value child of an Arrow `array<struct<name, value>>` does. So values
become a column in one piece. Names repeat from entry to entry, and IDs are runs or lists of numbers: NumPy makes their
columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelog.engine.crc32c import crc32c_of
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import MAX, SEQ_MAX, text
from tidelog.engine.streams.block import CRC_BYTES
from tidelog.engine.streams.stored import StoredNode
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source import schemas

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
BIGINT_MAX: Final = (1 << 63) - 1

Shape = tuple[bytes, ...]  # the field names of an entry
Array = Any  # of NumPy or Arrow


class Origin(NamedTuple):
    """The stream that entries come from. `snapshot`: the path of its snapshot, `lsn`: the snapshot's."""

    db: int
    key: bytes
    number: int
    snapshot: str
    lsn: int


class Span(NamedTuple):
    """A range of IDs, both ends included."""

    start: int = 0
    end: int = MAX

    def meets(self, node: StoredNode) -> bool:
        """Whether a node may hold entries of the range."""
        return node.first <= self.end and node.last >= self.start

    def covers(self, node: StoredNode) -> bool:
        """Whether all entries of a node are certainly in the range."""
        return self.start <= node.first and node.last <= self.end


EVERYTHING: Final = Span()


class Cells(NamedTuple):
    """The fields of all entries of a batch, one after the other.

    names, values   binary arrays of equal length
    offsets         where each entry's fields begin, and the end of the last: int32
    shapes          the distinct field names, shape_of: one index into them per entry; None if there is one shape
    """

    names: Callable[[], Array]
    values: Array
    offsets: Array
    shapes: list[Shape]
    shape_of: Array | None


FieldColumns = Callable[[Cells], Mapping[str, Array]]


def as_pairs(cells: Cells) -> Mapping[str, Array]:
    """The column `fields` as an array of (name, value)."""
    parts = pa.StructArray.from_arrays([cells.names(), cells.values], ["name", "value"])
    return {"fields": pa.ListArray.from_arrays(cells.offsets, parts, type=schemas.PAIRS)}


class Batches:
    """Makes batches of the wanted columns from nodes.

    columns       names of the columns, in order
    fields        makes the columns of the fields, or None if no column needs them
    span          only entries with these IDs
    verify        verify the checksum of each block
    """

    def __init__(
        self,
        columns: Sequence[str],
        fields: FieldColumns | None = as_pairs,
        span: Span = EVERYTHING,
        *,
        verify: bool = True,
        rows: int = BATCH_ROWS,
        nbytes: int = BATCH_BYTES,
    ) -> None:
        self._columns = columns
        self._fields = fields
        self._span = span
        self._narrow = span != EVERYTHING
        self._verify = verify
        self._rows_max = rows
        self._bytes_max = nbytes
        self._needs_ids = self._narrow or not _MADE.keys().isdisjoint(columns)
        self._clear()

    def _clear(self) -> None:
        self._rows = self._bytes = 0
        self._origins: list[Origin] = []
        self._origin_rows: list[int] = []
        # for each node: (ms and seq of its first slot, number of slots)
        self._runs: list[tuple[int, int, int]] = []
        self._listed: list[tuple[int, list[int], list[int] | None]] = []  # (first row, dms, seqs)
        self._ordinals: list[int] = []
        self._deleted: list[tuple[int, int, int]] = []  # (first row, slots, mask)
        self._values: list[bytes] = []
        self._shapes: dict[Shape, int] = {}
        self._shape_runs: list[tuple[int, int]] = []  # (index of the shape, entries)
        self._mixed: list[tuple[int, list[int]]] = []  # (first row, shape of each entry)
        self._narrowed = False

    def of(self, nodes: Iterable[tuple[Origin, StoredNode]]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of nodes. Raises CorruptBlock."""
        for origin, node in nodes:
            if self._narrow and not self._span.meets(node):
                continue
            # End the batch first, because one large node could double its size.
            if self._rows and self._bytes + node.length > self._bytes_max:
                yield self._batch()
            self._add(origin, node)
            del node  # its block may have 100 MB, and it is not needed while the caller works
            if self._rows >= self._rows_max or self._bytes >= self._bytes_max:
                yield self._batch()
        if self._rows:
            yield self._batch()

    def _add(self, origin: Origin, node: StoredNode) -> None:
        try:
            span, shapes, values, shape_of = self._read(node)
        except CorruptBlock as damage:
            raise self._damaged(origin, node, str(damage)) from damage
        except Exception as error:
            raise self._damaged(origin, node, f"the block cannot be read: {error!r}") from error
        ms, seq, slots, *listed = span
        if slots != node.slots or ms << 64 | seq != node.first:
            raise self._damaged(
                origin, node, "the block's entries are not those that its page lists"
            )
        start = self._rows
        if not self._origins or self._origins[-1] != origin:
            self._origins.append(origin)
            self._origin_rows.append(start)
        self._runs.append((ms, seq, slots))
        if listed:
            self._listed.append((start, listed[0], listed[1] if len(listed) > 1 else None))
        self._ordinals.append(node.ordinal)
        if node.deleted:
            self._deleted.append((start, slots, node.deleted))
        if self._narrow and not self._span.covers(node):
            self._narrowed = True
        if self._fields is not None:
            self._add_fields(start, slots, shapes, shape_of)
            self._values += values
        self._rows += slots
        self._bytes += node.length

    def _add_fields(
        self,
        start: int,
        slots: int,
        shapes: list[Shape],
        shape_of: list[int] | None,
    ) -> None:
        known = self._shapes
        runs = self._shape_runs
        if shape_of is None:
            number = known.setdefault(shapes[0], len(known))
            if runs and runs[-1][0] == number:
                slots += runs.pop()[1]
            runs.append((number, slots))
        else:
            numbers = [known.setdefault(shape, len(known)) for shape in shapes]
            runs.append((numbers[0], slots))
            self._mixed.append((start, [numbers[shape] for shape in shape_of]))

    def _read(
        self, node: StoredNode
    ) -> tuple[Sequence[Any], list[Shape], list[bytes], list[int] | None]:
        """(IDs, shapes, values, shape of each entry or None) of a node."""
        data = node.data
        if self._verify:
            packed = data[:-CRC_BYTES]
            if crc32c_of(packed).to_bytes(CRC_BYTES, "little") != data[-CRC_BYTES:]:
                raise CorruptBlock(f"the block of {len(data)} bytes does not match its checksum")
        if self._fields is None and node.is_run:
            return (node.first >> 64, node.first & SEQ_MAX, node.slots), [], [], None
        if self._fields is None:
            unpacker = msgpack.Unpacker(raw=True, max_buffer_size=len(data))
            unpacker.feed(data)
            unpacker.read_array_header()
            return unpacker.unpack(), [], [], None
        span, names, values, *more = msgpack.unpackb(
            packed if self._verify else data[:-CRC_BYTES], raw=True
        )
        if more:
            return span, [tuple(shape) for shape in names], values, more[0]
        return span, [tuple(names)], values, None

    @staticmethod
    def _damaged(origin: Origin, node: StoredNode, what: str) -> CorruptBlock:
        return CorruptBlock(
            f"{origin.snapshot}: stream {origin.number} ({origin.key!r} in database {origin.db}), block {node.ordinal} "
            f"(IDs {text(node.first).decode()} to {text(node.last).decode()}): {what}"
        )

    # --- making a batch

    def _batch(self) -> pa.RecordBatch:
        rows = self._rows
        found: dict[str, Array] = {}
        keep: Array | None = None
        if self._deleted:
            keep = _live(rows, self._deleted)
        if self._needs_ids:
            ms, seq = self._ids()
            found = {name: _MADE[name](ms, seq) for name in self._columns if name in _MADE}
            if self._narrowed:
                inside = _inside(ms, seq, self._span)
                keep = inside if keep is None else keep & inside
        if self._fields is not None:
            found.update(self._made_fields(self._fields, self._cells(), keep))
        for name in self._columns:
            if name in _ORIGIN:
                kind, of = _ORIGIN[name]
                found[name] = self._by_origin([of(origin) for origin in self._origins], kind)
        if "ordinal" in self._columns:
            found["ordinal"] = pa.array(np.repeat(self._ordinals, [run[2] for run in self._runs]))
        batch = pa.RecordBatch.from_arrays(
            [found[name] for name in self._columns], list(self._columns)
        )
        self._clear()
        return batch if keep is None else batch.filter(pa.array(keep))

    def _made_fields(
        self, make: FieldColumns, cells: Cells, keep: Array | None
    ) -> Mapping[str, Array]:
        """The columns of the fields. Raises TidelogSparkError for a bad value of an entry that is kept."""
        try:
            try:
                return make(cells)
            except TidelogSparkError:
                if keep is None:
                    raise
            # The value may be that of an entry that is deleted, or outside of the range.
            return make(_without(cells, keep))
        except TidelogSparkError as error:
            raise TidelogSparkError(error.code, f"{self._where()}: {error.message}") from None

    def _where(self) -> str:
        """The place of the batch in its snapshot."""
        first, (ms, seq, _) = self._origins[0], self._runs[0]
        keys = " and ".join(repr(each.key[:100]) for each in self._origins[:3])
        more = " and others" if len(self._origins) > 3 else ""
        return f"{first.snapshot}: {keys}{more} in database {first.db}, from ID {ms}-{seq} on"

    def _ids(self) -> tuple[Array, Array]:
        """ms and seq of all entries, as uint64."""
        first_ms, first_seq, slots = (np.array(each, np.uint64) for each in zip(*self._runs))
        slots = slots.astype(np.int64)
        starts = np.cumsum(slots) - slots
        ms = np.repeat(first_ms, slots)
        # may wrap below 0; the sum in the next line wraps back
        seq = np.repeat(first_seq - starts.astype(np.uint64), slots)
        seq += np.arange(self._rows, dtype=np.uint64)
        for start, dms, seqs in self._listed:
            end = start + len(dms)
            ms[start:end] += np.array(dms, np.uint64)
            seq[start:end] = 0 if seqs is None else np.array(seqs, np.uint64)
        return ms, seq

    def _cells(self) -> Cells:
        values = pa.array(self._values, schemas.BYTES)
        shapes = list(self._shapes)
        if len(shapes) == 1:
            width = len(shapes[0])
            offsets = np.arange(0, self._rows * width + 1, width, dtype=np.int32)
            return Cells(lambda: _repeated(shapes[0], self._rows), values, pa.array(offsets), shapes, None)  # fmt: skip
        numbers, counts = zip(*self._shape_runs)
        shape_of = np.repeat(np.array(numbers, np.int32), counts)
        for start, of in self._mixed:
            shape_of[start : start + len(of)] = of
        widths = np.array([len(shape) for shape in shapes], np.int32)
        per_row = widths[shape_of]
        ends = np.cumsum(per_row, dtype=np.int64)
        offsets = np.concatenate((np.zeros(1, np.int32), ends.astype(np.int32)))

        def names() -> Array:
            flat = pa.array([name for shape in shapes for name in shape], schemas.BYTES)
            first = (np.cumsum(widths) - widths)[shape_of]
            places = np.repeat(first - offsets[:-1], per_row) + np.arange(len(values))
            return flat.take(pa.array(places))

        return Cells(names, values, pa.array(offsets), shapes, shape_of)

    def _by_origin(self, each: list[Any], kind: pa.DataType) -> Array:
        if len(each) == 1:
            return pa.repeat(pa.scalar(each[0], kind), self._rows)
        counts = np.diff(np.array([*self._origin_rows, self._rows]))
        return pa.array(each, kind).take(pa.array(np.repeat(np.arange(len(each)), counts)))


# For each shape: its field names repeated in a long array, of which each batch takes a slice.
_repeats: dict[Shape, Array] = {}


def _repeated(shape: Shape, rows: int) -> Array:
    """The names of `rows` entries of one shape."""
    found = _repeats.get(shape)
    if found is None or len(found) < rows * len(shape):
        if len(_repeats) > 16:
            _repeats.clear()
        found = _repeats[shape] = pa.array(list(shape) * max(rows, BATCH_ROWS), schemas.BYTES)
    return found[: rows * len(shape)]


def _without(cells: Cells, keep: Array) -> Cells:
    """The same cells, with null values and empty names in the entries that are not kept."""
    kept = pa.array(np.repeat(keep, np.diff(np.asarray(cells.offsets))))
    names = cells.names
    return cells._replace(
        names=lambda: pc.if_else(kept, names(), b""),
        values=pc.if_else(kept, cells.values, pa.scalar(None, schemas.BYTES)),
    )


def _live(rows: int, deleted: list[tuple[int, int, int]]) -> Array:
    """True for each entry that is not deleted."""
    keep = np.ones(rows, bool)
    for start, slots, mask in deleted:
        packed = np.frombuffer(mask.to_bytes((slots + 7) // 8, "little"), np.uint8)
        keep[start : start + slots] = ~np.unpackbits(packed, count=slots, bitorder="little").view(
            bool
        )
    return keep


def _inside(ms: Array, seq: Array, span: Span) -> Array:
    low, high = np.uint64(span.start >> 64), np.uint64(span.end >> 64)
    first, last = np.uint64(span.start & SEQ_MAX), np.uint64(span.end & SEQ_MAX)
    after = (ms > low) | ((ms == low) & (seq >= first))
    return after & ((ms < high) | ((ms == high) & (seq <= last)))


def bigint(numbers: Array) -> Array:
    """Unsigned numbers as bigint; null beyond its range."""
    return _signed(numbers, BIGINT_MAX)


def _signed(numbers: Array, most: int) -> Array:
    if len(numbers) and int(numbers.max()) > most:
        beyond = numbers > np.uint64(most)
        return pa.array(np.where(beyond, 0, numbers).astype(np.int64), mask=beyond)
    return pa.array(numbers.view(np.int64))


def times(ms: Array) -> Array:
    signed = _signed(ms, schemas.TIME_MS_MAX)
    return pc.multiply(signed, 1000).view(schemas.TIME)


def texts(ms: Array, seq: Array) -> Array:
    return pc.binary_join_element_wise(
        pc.cast(pa.array(ms), schemas.TEXT), pc.cast(pa.array(seq), schemas.TEXT), "-"
    )


def _keys(ms: Array, seq: Array) -> Array:
    """IDs as 16 bytes that sort as the IDs do."""
    rows = len(ms)
    both = np.empty((rows, 2), ">u8")
    both[:, 0], both[:, 1] = ms, seq
    offsets = np.arange(0, 16 * rows + 1, 16, dtype=np.int32)
    return pa.Array.from_buffers(
        schemas.BYTES, rows, [None, pa.py_buffer(offsets), pa.py_buffer(both.tobytes())]
    )


_MADE: Final[Mapping[str, Callable[[Array, Array], Array]]] = {
    "id": texts,
    "ms": lambda ms, seq: bigint(ms),
    "seq": lambda ms, seq: bigint(seq),
    "ts": lambda ms, seq: times(ms),
    "id_key": _keys,
}
_ORIGIN: Final[Mapping[str, tuple[pa.DataType, Callable[[Origin], Any]]]] = {
    "db": (schemas.INT, lambda origin: origin.db),
    "stream": (schemas.BYTES, lambda origin: origin.key),
    "stream_number": (schemas.LONG, lambda origin: origin.number),
    "snapshot": (schemas.TEXT, lambda origin: origin.snapshot),
    "snapshot_lsn": (schemas.LONG, lambda origin: origin.lsn),
}
