"""Plan: the partitions of a read, as numbers and keys.

A big stream is cut at its pages; small streams share a partition. The plan reads the keys of rows and the sizes of
their values, so its cost grows with streams and pages, not with entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidelog.engine.glob import matcher
from tidelog.engine.rowkeys import DATA, STREAM, data_prefix, key_prefix, page_first, stream_row
from tidelog.snapshot.rows.rowfile import RowFile
from tidelog.snapshot.sealed import Sealed
from tidelog.spark.source.batch.catalog import Key, keys
from tidelog.spark.source.batch.columns import Span
from tidelog.spark.source.options import Options

STREAM_BYTES: Final = 400  # the fixed cost of reading a stream, expressed as a number of bytes
KEYS: Final = 4_000  # keys in a partition of a small table


class Piece(NamedTuple):
    """A part of a stream: the pages from the one of `first` up to but without the one of `until`.

    first   ID of the first slot of the first page; None: begin with the head
    until   None: to the end, with the tail
    """

    db: int
    key: bytes
    number: int
    first: int | None
    until: int | None


@dataclass(frozen=True)
class Part:
    """The content of one partition: pieces of streams of one snapshot, in the order of stream numbers."""

    path: str
    lsn: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class KeysPart:
    """The content of one partition of a small table: the keys of a database whose rows lie in a range of row keys."""

    path: str
    lsn: int
    db: int
    start: bytes
    stop: bytes | None


class Selection(NamedTuple):
    """Which keys and entries a read wants."""

    dbs: frozenset[int] | None = None
    names: frozenset[bytes] | None = None
    pattern: bytes | None = None
    span: Span = Span()

    def keys(self, sealed: Sealed, rows: tuple[bytes, bytes | None] = (b"", None)) -> Iterator[Key]:
        """The wanted keys of a snapshot, those of a range of KEY rows if given. Raises CorruptBlock."""
        matches = matcher(self.pattern) if self.pattern is not None else None
        return keys(
            sealed.rows, sealed.meta, dbs=self.dbs, names=self.names, matches=matches, rows=rows
        )


def selection(options: Options) -> Selection:
    """The selection that the options name."""
    return Selection(
        None if options.db is None else frozenset((options.db,)),
        None if options.streams is None else frozenset(options.streams),
        options.pattern,
        Span(options.start, options.end),
    )


def parts(sealed: Sealed, wanted: Selection, options: Options, snapshots: int = 1) -> list[Part]:
    """The partitions of the entries of one snapshot. Raises CorruptBlock.

    snapshots   how many snapshots share `partitions_max`
    """
    streams = sorted(
        (key.number, key.db, key.key) for key in wanted.keys(sealed) if key.number is not None
    )
    sizes = _tail_sizes(sealed.rows, [number for number, _, _ in streams])
    cuts = _pages(sealed.rows, [number for number, _, _ in streams])
    target = options.target_bytes
    if options.partitions_max is not None:
        total = sum(sizes.values()) + sum(size for pages in cuts.values() for _, size in pages)
        target = max(target, -(-total * snapshots // options.partitions_max))
    packed: list[Part] = []
    open_pieces: list[Piece] = []
    held = 0

    def close() -> None:
        nonlocal held
        if open_pieces:
            packed.append(Part(sealed.place.name, sealed.manifest.lsn, tuple(open_pieces)))
            open_pieces.clear()
            held = 0

    for number, db, key in streams:
        for first, until, size in _pieces(cuts.get(number, []), wanted.span, target):
            size += sizes.get(number, 0) if until is None else 0
            if held and held + size > target:
                close()
            open_pieces.append(Piece(db, key, number, first, until))
            held += size
    close()
    return packed


def keys_parts(sealed: Sealed, wanted: Selection) -> list[KeysPart]:
    """The partitions of a small table of one snapshot. Raises CorruptBlock."""
    found: list[KeysPart] = []
    for db, (table, count, _) in enumerate(sealed.meta.tables["tables"]):
        if not count or (wanted.dbs is not None and db not in wanted.dbs):
            continue
        cuts = [b""]
        if wanted.names is None and count > KEYS:
            rows = sealed.rows.sizes(key_prefix(table))
            cuts += [row for at, (row, _) in enumerate(rows) if at and at % KEYS == 0]
        for start, stop in zip(cuts, [*cuts[1:], None]):
            found.append(KeysPart(sealed.place.name, sealed.manifest.lsn, db, start, stop))
    return found


def _pieces(
    pages: list[tuple[int, int]], span: Span, target: int
) -> Iterator[tuple[int | None, int | None, int]]:
    """(first, until, bytes) of the pieces of a stream. `pages`: (first ID, bytes) of each, ascending.

    Pages without entries of the span are left out. The last piece has `until` None, and the tail.
    """
    # Leave `first` None for page 0: the page may begin before the stream's head, and a reader finds the head itself.
    first: int | None = None
    size = 0
    begun = False
    for at, (page_id, nbytes) in enumerate(pages):
        following = pages[at + 1][0] if at + 1 < len(pages) else None
        if following is not None and following <= span.start:
            continue  # all live entries of this page have IDs below the first ID of the next page
        if page_id > span.end:
            yield first, page_id, size
            return
        if not begun:
            first, begun = (page_id if at else None), True
        elif size and size + nbytes > target:
            yield first, page_id, size
            first, size = page_id, 0
        size += nbytes
    yield first, None, size


def _tail_sizes(rows: RowFile, numbers: list[int]) -> dict[int, int]:
    """About how many bytes each STREAM row costs to read."""
    if len(numbers) == 1:
        payload = rows.get(stream_row(numbers[0])) or b""
        return {numbers[0]: len(payload) + STREAM_BYTES}
    wanted = set(numbers)
    return {
        number: size + STREAM_BYTES
        for number, size in ((_number(key), size) for key, size in _between(rows, STREAM, numbers))
        if number in wanted
    }


def _pages(rows: RowFile, numbers: list[int]) -> dict[int, list[tuple[int, int]]]:
    """(first ID, bytes) of each stored page, by stream number; streams without pages are left out."""
    found: dict[int, list[tuple[int, int]]] = {}
    if len(numbers) <= 16:
        for number in numbers:
            pages = [(page_first(key), size) for key, size in rows.sizes(data_prefix(number))]
            if pages:
                found[number] = pages
        return found
    wanted = set(numbers)
    for key, size in _between(rows, DATA, numbers):
        number = _number(key)
        if number in wanted:
            found.setdefault(number, []).append((page_first(key), size))
    return found


def _between(rows: RowFile, kind: bytes, numbers: list[int]) -> Iterator[tuple[bytes, int]]:
    """The keys of one kind from the first to the last of ascending stream numbers, with the sizes of their values."""
    if not numbers:
        return
    start, stop = (kind + number.to_bytes(8, "big") for number in (numbers[0], numbers[-1] + 1))
    for key, size in rows.sizes(kind, start):
        if key >= stop:
            return
        yield key, size


def _number(key: bytes) -> int:
    return int.from_bytes(key[1:9], "big")
