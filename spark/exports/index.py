"""Index: the nodes of a snapshot without their entries, so that a later snapshot can be compared with it.

An export keeps the index of its snapshot as `_index.parquet`, so the snapshot itself may be deleted. The file has one
row per live node, sorted by stream number and ordinal, and one row with a null ordinal for a stream without nodes:

    stream_number  int64     db  int32     stream  binary, the key
    ordinal        int64     of the node, null if the stream has none
    first_id       16 bytes, big-endian: the ID of the first slot, deleted or not
    last_id        the ID of the last slot
    slots          int32, deleted ones included
    length         int64, bytes of the sealed block
    crc            uint32, the checksum of the block: its last four bytes
    deleted        the deleted slots as a number, little-endian, without trailing zero bytes; empty if there are none

Two blocks with equal IDs, length and checksum are taken to be equal. A block is canonical (engine/streams/block.py), so
equal entries give equal checksums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import text
from tidelog.engine.rowkeys import data_row
from tidelog.engine.streams.block import CRC_BYTES
from tidelog.engine.streams.pages import Page, mask_bytes
from tidelog.engine.streams.stored import (
    StoredStream,
    nodes_of,
    page_data,
    stored_pages,
    stored_stream,
    tail_node,
)
from tidelog.snapshot.rows.rowfile import RowFile
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.formats import parquet_batches
from tidelog.spark.exports.rows import HELD, RowWriter
from tidelog.spark.exports.target import EXPORT

NAME: Final = "_index.parquet"
FORMAT: Final = 1
_ID: Final = pa.binary(16)
SCHEMA: Final = pa.schema(
    [
        pa.field("stream_number", pa.int64(), nullable=False),
        pa.field("db", pa.int32(), nullable=False),
        pa.field("stream", pa.binary(), nullable=False),
        ("ordinal", pa.int64()),
        ("first_id", _ID),
        ("last_id", _ID),
        ("slots", pa.int32()),
        ("length", pa.int64()),
        ("crc", pa.uint32()),
        ("deleted", pa.binary()),
    ],
    metadata={"tidelog": "index", "format": str(FORMAT)},
)


class Head(NamedTuple):
    """A stream: its number, database and key."""

    number: int
    db: int
    key: bytes


class IndexNode(NamedTuple):
    """One live node; the fields are those of the file. `deleted` is the mask as a number."""

    ordinal: int
    first: int
    last: int
    slots: int
    length: int
    crc: int
    deleted: int

    @property
    def live(self) -> int:
        """Number of entries that are not deleted."""
        return self.slots - self.deleted.bit_count()

    def same_block(self, other: IndexNode) -> bool:
        """Whether both have the same sealed bytes. The deleted slots may differ."""
        return self[1:6] == other[1:6]


class Indexed(NamedTuple):
    """A stream and its nodes. The nodes are read while they are iterated over, once, before the next stream."""

    head: Head
    nodes: Iterator[IndexNode]


# --- from a snapshot


def index_of(cold: ColdStore, heads: Iterable[Head]) -> Iterator[Indexed]:
    """Index the streams of a snapshot. `heads` is sorted by number.

    Where the rows are read by plain reads, only four bytes of each sealed block are read. Raises CorruptBlock.
    """
    for head in heads:
        yield Indexed(head, index_nodes(cold, stored_stream(cold, head.number)))


def index_nodes(cold: ColdStore, stream: StoredStream) -> Iterator[IndexNode]:
    """The live nodes of one stream, ascending, the tail last. Raises CorruptBlock."""
    for page in stored_pages(cold, stream):
        checksums = _checksums(cold, stream.number, page)
        for node in nodes_of(cold, stream, page, data=False):
            crc = checksums[node.ordinal - page.ordinal]
            yield IndexNode(*node[:4], node.length, crc, node.deleted)
    tail = tail_node(stream)
    if tail is not None:
        crc = int.from_bytes(tail.data[-CRC_BYTES:], "little")
        yield IndexNode(*tail[:4], tail.length, crc, tail.deleted)


def _checksums(cold: ColdStore, number: int, page: Page) -> list[int]:
    """The checksum of each block of a page; 0 for a node without bytes. Raises CorruptBlock."""
    ends = list(accumulate(page.lengths))
    spans = [(end - CRC_BYTES, CRC_BYTES) for end, length in zip(ends, page.lengths) if length]
    read = iter(_pieces(cold, number, page, spans))
    return [int.from_bytes(next(read), "little") if length else 0 for length in page.lengths]


def blocks_of(cold: ColdStore, number: int, page: Page, start: int, stop: int) -> bytes:
    """The sealed blocks of some nodes of a page, by ordinal; others are not read if possible. Raises CorruptBlock."""
    first, last = start - page.ordinal, stop - page.ordinal
    span = sum(page.lengths[:first]), sum(page.lengths[first:last])
    return _pieces(cold, number, page, [span])[0]


def _pieces(cold: ColdStore, number: int, page: Page, spans: list[tuple[int, int]]) -> list[bytes]:
    """Parts of the DATA row of a page."""
    if not isinstance(cold, RowFile):
        data = page_data(cold, number, page)
        return [data[start : start + nbytes] for start, nbytes in spans]
    found = cold.pieces(data_row(number, page.first), spans)
    if found is None or [len(piece) for piece in found] != [nbytes for _, nbytes in spans]:
        raise CorruptBlock(
            f"stream {number}, blocks {page.ordinal} to {page.stop - 1} (IDs {text(page.first).decode()} to "
            f"{text(page.lasts[-1]).decode()}): the data of the blocks is missing or too short"
        )
    return found


# --- the file


class IndexWriter:
    """Writes the file; `sink` is anything that pyarrow can write to. Use it as a context."""

    def __init__(self, sink: Any) -> None:
        self._rows = RowWriter(sink, SCHEMA, use_dictionary=["db", "stream", "slots"])

    def recorded(self, streams: Iterable[Indexed]) -> Iterator[Indexed]:
        """Pass streams on, and write their nodes as they are iterated over. The rest is written at the next stream."""
        for head, nodes in streams:
            passed = self._passed(head, nodes)
            yield Indexed(head, passed)
            for _ in passed:
                pass

    def _passed(self, head: Head, nodes: Iterator[IndexNode]) -> Iterator[IndexNode]:
        empty = True
        for node in nodes:
            empty = False
            first, last = node.first.to_bytes(16, "big"), node.last.to_bytes(16, "big")
            row = (*head, node.ordinal, first, last, *node[3:6], mask_bytes(node.deleted))
            self._rows.add((row,))
            yield node
        if empty:
            self._rows.add(((*head, *[None] * 7),))

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._rows.close()


def write_index(sink: Any, streams: Iterable[Indexed]) -> None:
    """Write the index of a snapshot to a file."""
    with IndexWriter(sink) as writer:
        for _ in writer.recorded(streams):
            pass


def read_index(source: Any) -> Iterator[Indexed]:
    """Iterate over the streams of an index file, by number. `source` is anything that pyarrow can read.

    The caller has verified the file's checksum. Raises TidelogSparkError for an index of another version.
    """
    file = pq.ParquetFile(source)
    told = file.schema_arrow.metadata or {}
    if told.get(b"tidelog") != b"index" or told.get(b"format") != b"%d" % FORMAT:
        raise TidelogSparkError(
            EXPORT, "the export's index is of another version of tidelog; make a whole export"
        )
    for head, rows in groupby(_rows(file), itemgetter(0)):
        yield Indexed(head, (node for _, node in rows if node is not None))


def _rows(file: Any) -> Iterator[tuple[Head, IndexNode | None]]:
    number_of = int.from_bytes
    for batch in parquet_batches(file, HELD):
        columns = [column.to_pylist() for column in batch.columns]
        for number, db, key, ordinal, first, last, slots, length, crc, deleted in zip(*columns):
            if ordinal is None:
                yield Head(number, db, key), None
                continue
            node = IndexNode(
                *(ordinal, number_of(first, "big"), number_of(last, "big"), slots, length, crc),
                number_of(deleted, "little"),
            )
            yield Head(number, db, key), node
