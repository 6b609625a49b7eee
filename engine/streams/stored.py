"""Stored streams: the STREAM row and the nodes of a stream in a checkpoint, read without loading the stream.

For readers that walk over whole streams and need the sealed bytes: exports, comparisons of two snapshots. The engine
itself reads through `engine.streams.pages`, which caches pages and follows changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgpack

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import text
from tidelog.engine.rowkeys import data_row, page_first, page_prefix, page_row, stream_row
from tidelog.engine.streams.pages import Page, unpack_page

from_bytes: Final = int.from_bytes  # big-endian, unless told otherwise


class StoredStream(NamedTuple):
    """A STREAM row (engine/streams/frozen_stream.py describes it).

    head, head_id   ordinal of the first stored node, ID of its first slot
    stop            ordinal after the last stored node; the tail, if there is one, is the node with this ordinal
    nodes           live stored nodes, without the tail
    nodes_last      no slot of the stored nodes has a greater ID
    tail            (sealed bytes, deleted slots, whether its size bound is void), or None
    idmp            packed, or None
    groups          number and name of each group
    """

    number: int
    length: int
    last_id: int
    max_deleted_id: int
    entries_added: int
    removed_max: int
    next_group: int
    head: int
    head_id: int
    stop: int
    nodes: int
    nodes_last: int
    tail: tuple[bytes, int, bool] | None
    idmp: Any
    groups: list[tuple[int, bytes]]


class StoredNode(NamedTuple):
    """One node. All of its slots are listed, deleted ones too.

    first, last    IDs of the first and last slot          slots     number of slots
    deleted        bit i set = slot i is deleted           length    bytes of the sealed block
    data           the sealed block (engine/streams/block.py); b"" if only the nodes were asked for
    """

    ordinal: int
    first: int
    last: int
    slots: int
    deleted: int
    length: int
    data: bytes

    @property
    def live(self) -> int:
        """Number of entries that are not deleted."""
        return self.slots - self.deleted.bit_count()

    @property
    def is_run(self) -> bool:
        """Whether its IDs are ms-seq, ms-(seq+1), ..., so that `first` and `slots` say them all."""
        first, last = self.first, self.last
        return last - first == self.slots - 1 and last >> 64 == first >> 64


def unpack_stream(number: int, row: bytes) -> StoredStream:
    """Decode a STREAM row. Raises ValueError or any exception of msgpack if the bytes are damaged."""
    length, last_id, deleted_id, added, removed, next_group, nodes, tail, idmp, groups = (
        msgpack.unpackb(row)
    )
    head, head_id, stop, live, nodes_last = nodes
    if tail is not None:
        sealed, deleted, void = tail
        tail = sealed, from_bytes(deleted, "little"), void
    return StoredStream(
        number,
        length,
        from_bytes(last_id),
        from_bytes(deleted_id),
        added,
        from_bytes(removed),
        next_group,
        head,
        from_bytes(head_id),
        stop,
        live,
        from_bytes(nodes_last),
        tail,
        idmp,
        groups,
    )


def stored_stream(cold: ColdStore, number: int) -> StoredStream:
    """Read a STREAM row. Raises CorruptBlock if it is missing or damaged."""
    row = cold.get(stream_row(number))
    if row is None:
        raise CorruptBlock(f"stream {number}: its row is missing")
    try:
        return unpack_stream(number, row)
    except Exception as error:
        raise CorruptBlock(f"stream {number}: its row is unreadable: {error}") from error


def stored_pages(
    cold: ColdStore, stream: StoredStream, first: int | None = None, until: int | None = None
) -> Iterator[Page]:
    """Yield the pages from the one whose first slot has the ID `first`, up to but without the one of `until`.

    By default all, beginning with the page of the head; it may hold nodes before the head, too. The tail is in no page.
    Raises CorruptBlock for a damaged or missing page.
    """
    number = stream.number
    if not stream.nodes:
        return
    if first is None:
        first = page_with(cold, stream, stream.head).first
    at: int | None = None
    for row, payload in cold.rows(page_prefix(number), page_row(number, first)):
        page = _page(number, page_first(row), payload)
        if page.ordinal != at and (at is not None or page.first != first):
            break
        if page.first == until:
            return
        yield page
        at = page.stop
    if until is not None or at is None or at < stream.stop:
        raise _missing(stream, stream.head if at is None else at, stream.stop)


def page_with(cold: ColdStore, stream: StoredStream, ordinal: int) -> Page:
    """Find the page that holds a stored node, by bisecting the IDs. Raises CorruptBlock.

    Ordinals ascend with IDs, and each step reads one PAGE row.
    """
    low, high = stream.head_id, stream.nodes_last
    middle = low
    while low <= high:
        found = cold.before(page_row(stream.number, middle), page_prefix(stream.number))
        if found is None:
            break
        page = _page(stream.number, page_first(found[0]), found[1])
        if page.ordinal <= ordinal < page.stop:
            return page
        if ordinal < page.ordinal:
            high = min(page.first, middle) - 1
        else:
            low = max(page.firsts[-1], middle) + 1
        middle = (low + high) // 2
    raise _missing(stream, ordinal, ordinal + 1)


def stored_nodes(
    cold: ColdStore, stream: StoredStream, *, data: bool = True
) -> Iterator[StoredNode]:
    """Yield the live nodes of a stream, ascending, the tail last. Without `data`, their blocks are not read.

    Raises CorruptBlock for a damaged or missing row. Checksums of blocks are not verified.
    """
    for page in stored_pages(cold, stream):
        yield from nodes_of(cold, stream, page, data=data)
    tail = tail_node(stream)
    if tail is not None:
        yield tail


def nodes_of(
    cold: ColdStore, stream: StoredStream, page: Page, *, data: bool = True
) -> Iterator[StoredNode]:
    """Yield the live nodes of one page. Raises CorruptBlock."""
    # Take each block out of the list: an entry may have 100 MB, and a waiting generator must not keep it.
    blocks = _blocks(cold, stream.number, page) if data else [b""] * len(page.lengths)
    for ordinal, (first, last, count, length, deleted) in enumerate(
        zip(page.firsts, page.lasts, page.counts, page.lengths, page.masks), page.ordinal
    ):
        if deleted.bit_count() < count and stream.head <= ordinal < stream.stop:
            yield StoredNode(ordinal, first, last, count, deleted, length, blocks.pop())
        else:
            blocks.pop()


def _blocks(cold: ColdStore, number: int, page: Page) -> list[bytes]:
    """The blocks of a page, the last one first. Raises CorruptBlock."""
    data = page_data(cold, number, page)
    end = len(data)
    found = []
    for length in reversed(page.lengths):
        found.append(data[end - length : end])
        end -= length
    return found


def page_data(cold: ColdStore, number: int, page: Page) -> bytes:
    """Read the blocks of a page, one after the other. Raises CorruptBlock."""
    data = cold.get(data_row(number, page.first))
    if data is None or len(data) != sum(page.lengths):
        found = "missing" if data is None else f"{len(data)} bytes instead of {sum(page.lengths)}"
        raise CorruptBlock(
            f"stream {number}, blocks {page.ordinal} to {page.stop - 1} (IDs {text(page.first).decode()} to "
            f"{text(page.lasts[-1]).decode()}): the data of the blocks is {found}"
        )
    return data


def tail_node(stream: StoredStream) -> StoredNode | None:
    """The open node, sealed as the checkpoint wrote it; None if the stream has none. Raises CorruptBlock."""
    if stream.tail is None:
        return None
    sealed, deleted, _ = stream.tail
    first, last, count = _bounds(stream.number, sealed)
    if deleted.bit_count() >= count:
        return None
    return StoredNode(stream.stop, first, last, count, deleted, len(sealed), sealed)


def _bounds(number: int, sealed: bytes) -> tuple[int, int, int]:
    """(first ID, last ID, slots) of a sealed block, from its IDs alone."""
    try:
        unpacker = msgpack.Unpacker(raw=True, max_buffer_size=len(sealed))
        unpacker.feed(sealed)
        unpacker.read_array_header()
        ms, seq, count, *more = unpacker.unpack()
    except Exception as error:
        raise CorruptBlock(f"stream {number}: its open node is unreadable: {error}") from error
    first = ms << 64 | seq
    if not more:
        return first, first + count - 1, count
    return first, (ms + more[0][-1]) << 64 | (more[1][-1] if len(more) > 1 else 0), count


def _page(number: int, first: int, payload: bytes) -> Page:
    try:
        return unpack_page(first, payload)
    except Exception as error:
        raise CorruptBlock(
            f"stream {number}: the page row at ID {text(first).decode()} is unreadable: {error}"
        ) from error


def _missing(stream: StoredStream, start: int, stop: int) -> CorruptBlock:
    return CorruptBlock(
        f"stream {stream.number}, blocks {start} to {stop - 1} (IDs {text(stream.head_id).decode()} to "
        f"{text(stream.nodes_last).decode()}): the page of the first block is missing"
    )
