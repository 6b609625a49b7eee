"""Entries: read the pieces of a partition as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.rowkeys import STREAM, stream_row
from tidelog.engine.streams.stored import (
    StoredNode,
    StoredStream,
    nodes_of,
    stored_pages,
    stored_stream,
    tail_node,
    unpack_stream,
)
from tidelog.spark.source.batch.columns import Origin, Span
from tidelog.spark.source.batch.plan import Part, Piece

# If at least one of this many STREAM rows is wanted, all are read in order; otherwise each wanted one is looked up.
DENSE: Final = 4
LARGE_BYTES: Final = 1 << 20  # a STREAM row of more than this is read again instead of being held


def nodes(cold: ColdStore, part: Part, span: Span) -> Iterator[tuple[Origin, StoredNode]]:
    """Yield the nodes of a partition that may hold entries of `span`. Raises CorruptBlock.

    While the caller works on a node, nothing here refers to its block, since an entry may have 100 MB.
    """
    for piece, stream in streams(cold, part.pieces):
        origin = Origin(piece.db, piece.key, piece.number, part.path, part.lsn)
        tail = stream.tail
        if stream.nodes or (tail is not None and len(tail[0]) > LARGE_BYTES):
            with_origin = partial(_with_origin, origin)
            last = _Last(cold, stream) if piece.until is None else ()
            del tail
            stream = stream._replace(tail=None)
            for page in stored_pages(cold, stream, piece.first, piece.until):
                if page.first > span.end:
                    break
                bounds = nodes_of(cold, stream, page, data=False)
                if any(span.meets(node) for node in bounds):
                    yield from map(with_origin, nodes_of(cold, stream, page))
            yield from map(with_origin, last)
        elif piece.until is None and (node := tail_node(stream)) is not None:
            yield origin, node


def _with_origin(origin: Origin, node: StoredNode) -> tuple[Origin, StoredNode]:
    return origin, node


class _Last:
    """Iterates over the tail of a stream, if it has one. A large tail is not held: it is read again."""

    def __init__(self, cold: ColdStore, stream: StoredStream) -> None:
        self._cold, self._number = cold, stream.number
        tail = stream.tail
        self._stream = None if tail is not None and len(tail[0]) > LARGE_BYTES else stream

    def __iter__(self) -> Iterator[StoredNode]:
        stream, self._stream = self._stream, None
        node = tail_node(stream or stored_stream(self._cold, self._number))
        del stream
        held = [] if node is None else [node]
        del node
        while held:
            yield held.pop()


def streams(cold: ColdStore, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, StoredStream]]:
    """Yield each piece with its STREAM row. Pieces are in the order of stream numbers. Raises CorruptBlock."""
    if len(pieces) < DENSE or pieces[-1].number - pieces[0].number > DENSE * len(pieces):
        for piece in pieces:
            yield piece, stored_stream(cold, piece.number)
        return
    rows = cold.rows(STREAM, stream_row(pieces[0].number))
    key, payload = next(rows, (b"", b""))
    for piece in pieces:
        wanted = stream_row(piece.number)
        while key and key < wanted:
            key, payload = next(rows, (b"", b""))
        if key == wanted and not 0 < len(payload) <= LARGE_BYTES:
            payload = b""
            yield piece, stored_stream(cold, piece.number)
            continue
        if key != wanted:
            raise CorruptBlock(f"stream {piece.number} ({piece.key!r}): its row is missing")
        try:
            yield piece, unpack_stream(piece.number, payload)
        except CorruptBlock:
            raise
        except Exception as error:
            raise CorruptBlock(
                f"stream {piece.number} ({piece.key!r}): its row is unreadable: {error}"
            ) from error
