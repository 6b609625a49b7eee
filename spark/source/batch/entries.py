"""Entries: read the pieces of a partition as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def nodes(cold: ColdStore, part: Part, span: Span) -> Iterator[tuple[Origin, StoredNode]]:
    """Yield the nodes of a partition that may hold entries of `span`. Raises CorruptBlock."""
    for piece, stream in streams(cold, part.pieces):
        origin = Origin(piece.db, piece.key, piece.number, part.path, part.lsn)
        if stream.nodes:
            for page in stored_pages(cold, stream, piece.first, piece.until):
                if page.first > span.end:
                    break
                bounds = nodes_of(cold, stream, page, data=False)
                if any(span.meets(node) for node in bounds):
                    for node in nodes_of(cold, stream, page):
                        yield origin, node
        if piece.until is None:
            tail = tail_node(stream)
            if tail is not None:
                yield origin, tail


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
