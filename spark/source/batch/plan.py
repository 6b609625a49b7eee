"""Plan: the partitions of a read, as numbers and keys.

A big stream is cut at its pages; small streams share a partition. The plan reads the keys of rows and the sizes of
their values, so its cost grows with streams and pages, not with entries.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final, NamedTuple

import msgpack

from tidelog.engine.glob import matcher
from tidelog.engine.rowkeys import DATA, STREAM, data_prefix, key_prefix, page_first, stream_row
from tidelog.snapshot.rows.rowfile import RowFile
from tidelog.snapshot.sealed import Sealed
from tidelog.spark.source.batch.catalog import Key, check_count, keys
from tidelog.spark.source.batch.columns import Span
from tidelog.spark.source.options import TARGET_BYTES, Options

STREAM_BYTES: Final = 400  # the fixed cost of reading a stream, expressed as a number of bytes
KEYS: Final = 4_000  # keys in a partition of a small table
PARTS_PER_CORE: Final = 3  # partitions of different sizes end at about one time
TARGET_BYTES_MIN: Final = 1 << 20  # below, starting a task costs more than reading
FEW: Final = 16  # up to this number, streams are looked up one by one, and not all rows between the first and the last
_BEHIND: Final = (b"\xff" * 9, 0)  # a key behind all others


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
    """The content of one partition: pieces of streams of one snapshot, in the order of stream numbers.

    packed   the pieces, one after the other. A plan may have a million; as objects they take 200 bytes each
    """

    path: str
    lsn: int
    packed: bytes

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces, as objects."""
        return tuple(
            Piece(db, key, number, _id_of(first), _id_of(until))
            for db, key, number, first, until in self._unpacker()
        )

    def cut(self, pieces: int) -> Iterator[Part]:
        """Parts with at most `pieces` pieces, in their order."""
        found = self._unpacker()
        start = 0
        while start < len(self.packed):
            for _ in range(pieces):
                if found.tell() == len(self.packed):
                    break
                found.skip()
            stop = found.tell()
            yield replace(self, packed=self.packed[start:stop])
            start = stop

    def _unpacker(self) -> msgpack.Unpacker:
        unpacker = msgpack.Unpacker(use_list=False, max_buffer_size=max(len(self.packed), 1))
        unpacker.feed(self.packed)
        return unpacker


def _id_bytes(entry_id: int | None) -> bytes | None:
    return None if entry_id is None else entry_id.to_bytes(16, "big")


def _id_of(told: bytes | None) -> int | None:
    return None if told is None else int.from_bytes(told, "big")


@dataclass(frozen=True)
class KeysPart:
    """The content of one partition of a small table: the keys of a database whose rows lie in a range of row keys.

    keys   how many there are
    """

    path: str
    lsn: int
    db: int
    start: bytes
    stop: bytes | None
    keys: int


class Selection(NamedTuple):
    """Which keys and entries a read wants."""

    dbs: frozenset[int] | None = None
    names: frozenset[bytes] | None = None
    pattern: bytes | None = None
    span: Span = Span()

    @property
    def every(self) -> bool:
        """Whether all keys are wanted."""
        return self.dbs is None and self.names is None and self.pattern is None

    def keys(self, sealed: Sealed, part: KeysPart | None = None) -> Iterator[Key]:
        """The wanted keys of a snapshot, those of a partition if given. Raises CorruptBlock."""
        return keys(
            sealed.rows,
            sealed.meta,
            sealed.manifest.moment_ms,
            dbs=self.dbs if part is None else frozenset((part.db,)),
            names=self.names,
            matches=matcher(self.pattern) if self.pattern is not None else None,
            rows=(b"", None) if part is None else (part.start, part.stop),
            expected=None if part is None else part.keys,
        )


def selection(options: Options) -> Selection:
    """The selection that the options name."""
    return Selection(
        None if options.db is None else frozenset((options.db,)),
        None if options.streams is None else frozenset(options.streams),
        options.pattern,
        Span(options.start, options.end),
    )


def spread(nbytes: int) -> int:
    """Bytes of a partition, so that the cores of this machine share `nbytes`."""
    share = nbytes // (PARTS_PER_CORE * len(os.sched_getaffinity(0)))
    return min(max(share, TARGET_BYTES_MIN), TARGET_BYTES)


def parts(sealed: Sealed, wanted: Selection, options: Options, snapshots: int = 1) -> list[Part]:
    """The partitions of the entries of one snapshot. Raises CorruptBlock.

    snapshots   how many snapshots share `partitions_max`
    """
    # Bytes, because a tuple of each would take three times as much. Their order is that of the numbers.
    streams = sorted(
        key.number.to_bytes(8, "big") + bytes((key.db,)) + key.key
        for key in wanted.keys(sealed)
        if key.number is not None
    )
    target = options.target_bytes or spread(sealed.manifest.data_bytes)
    if options.partitions_max is not None:
        total = sum(
            tail + sum(size for _, size in pages)
            for _, tail, pages in _sizes(sealed.rows, streams, every=wanted.every)
        )
        target = max(target, -(-total * snapshots // options.partitions_max))
    planned: list[Part] = []
    pack = msgpack.Packer().pack
    packed = bytearray()
    held = 0

    def close() -> None:
        nonlocal held
        if packed:
            planned.append(Part(sealed.place.name, sealed.manifest.lsn, bytes(packed)))
            packed.clear()
            held = 0

    for stream, tail, pages in _sizes(sealed.rows, streams, every=wanted.every):
        number, db, key = int.from_bytes(stream[:8], "big"), stream[8], stream[9:]
        for first, until, size in _pieces(pages, wanted.span, target):
            size += tail if until is None else 0
            if held and held + size > target:
                close()
            packed += pack((db, key, number, _id_bytes(first), _id_bytes(until)))
            held += size
    close()
    return planned


def keys_parts(sealed: Sealed, wanted: Selection) -> list[KeysPart]:
    """The partitions of a small table of one snapshot. Raises CorruptBlock."""
    found: list[KeysPart] = []
    for db, (table, count, _) in enumerate(sealed.meta.tables["tables"]):
        if not count or (wanted.dbs is not None and db not in wanted.dbs):
            continue
        cuts = [b""]
        if wanted.names is None and count > KEYS:
            number = -1
            for number, (row, _) in enumerate(sealed.rows.sizes(key_prefix(table))):
                if number and number % KEYS == 0:
                    cuts.append(row)
            check_count(table, number + 1, count)
        for at, (start, stop) in enumerate(zip(cuts, [*cuts[1:], None])):
            held = count - at * KEYS if stop is None else KEYS
            found.append(KeysPart(sealed.place.name, sealed.manifest.lsn, db, start, stop, held))
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


def _sizes(
    rows: RowFile, streams: list[bytes], *, every: bool
) -> Iterator[tuple[bytes, int, list[tuple[int, int]]]]:
    """Yield each stream with the cost of its STREAM row in bytes, and (first ID, bytes) of each of its stored pages.

    `streams` begin with their numbers, and are sorted. every: they are about all streams of the snapshot.
    """
    if len(streams) <= FEW:
        for stream in streams:
            number = int.from_bytes(stream[:8], "big")
            tail = sum(size + STREAM_BYTES for _, size in rows.sizes(stream_row(number)))
            pages = rows.sizes(data_prefix(number))
            yield stream, tail, [(page_first(key), size) for key, size in pages]
        return
    found = _between(rows, DATA, streams)
    page_of, page = next(found, _BEHIND)
    for stream, tail in zip(streams, (_shares if every else _tails)(rows, streams)):
        own: list[tuple[int, int]] = []
        while page_of[1:9] <= stream[:8]:
            if page_of[1:9] == stream[:8]:
                own.append((page_first(page_of), page))
            page_of, page = next(found, _BEHIND)
        yield stream, tail + STREAM_BYTES, own


def _tails(rows: RowFile, streams: list[bytes]) -> Iterator[int]:
    """The sizes of the STREAM rows of streams."""
    found = _between(rows, STREAM, streams)
    tail_of, tail = next(found, _BEHIND)
    for stream in streams:
        while tail_of[1:9] < stream[:8]:
            tail_of, tail = next(found, _BEHIND)
        yield tail if tail_of[1:9] == stream[:8] else 0


def _shares(rows: RowFile, streams: list[bytes]) -> Iterator[int]:
    """About the sizes of the STREAM rows of all streams: all rows of a leaf count the same.

    The rows of short streams lie in leaves, so that their exact sizes would cost as much as reading these streams.
    """
    leaves = rows.leaves(STREAM)
    _, nbytes = next(leaves)
    start = 0
    for low, following in leaves:
        end = bisect_left(streams, low[1:9], start)
        yield from repeat(nbytes // max(end - start, 1), end - start)
        start, nbytes = end, following
    yield from repeat(nbytes // max(len(streams) - start, 1), len(streams) - start)


def _between(rows: RowFile, kind: bytes, streams: list[bytes]) -> Iterator[tuple[bytes, int]]:
    """The keys of one kind from the first to the last of the streams, with the sizes of their values."""
    last = kind + streams[-1][:8]
    for key, size in rows.sizes(kind, kind + streams[0][:8]):
        if key[:9] > last:
            return
        yield key, size
