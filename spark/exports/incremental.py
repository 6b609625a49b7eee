"""Incremental: which entries came and went between an index and a newer snapshot of the same store.

Both list the nodes of each stream by number and ordinal (spark/exports/index.py), so they are merged:

    the same block in both          the entries that the newer one marks as deleted were removed
    the block has grown             the open node of the base got more entries; known by encoding its first slots again
    any other difference            all entries of the base's node were removed, all of the newer one's were added
    only in the base                all entries were removed
    only in the newer snapshot      all entries were added

The result is exact if removals are applied before additions: an ID may have been removed and given again. Entries of
whole nodes are removed as one range of IDs. The last slot of a node may be a deleted one with a greater ID than what
follows it, so a range ends below the first ID of the base's next node.

A stream whose number the base does not have may have been copied. If one of its nodes equals a node of a stream of the
base, its entries are told as differences from that stream's at the base. Why an entry was removed (deleted, trimmed)
no snapshot knows; the log does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple

from tidelog.aof.reading.reader import Epoch
from tidelog.aof.segment import Position
from tidelog.engine.cold import ColdStore
from tidelog.engine.ids import MAX
from tidelog.engine.rowkeys import page_prefix, page_row
from tidelog.engine.streams.block import CRC_BYTES, Decoded, encode
from tidelog.engine.streams.pages import Page, unpack_page
from tidelog.engine.streams.stored import StoredStream, stored_stream
from tidelog.spark.exports.index import (
    Head,
    Indexed,
    IndexNode,
    blocks_of,
    index_nodes,
)

SAMPLES: Final = 32  # look for at most this many nodes of a new stream in the base

CREATED: Final = "created"
RENAMED: Final = "renamed"
COPIED: Final = "copied"
ENDED: Final = "ended"


class Removal(NamedTuple):
    """The entries of a stream of the base with IDs from `first` to `last` were removed; they were `entries`."""

    first: int
    last: int
    entries: int


class Piece(NamedTuple):
    """Nodes of the newer snapshot, from ordinal `start` to `stop` - 1, whose entries are exported.

    first   ID of the first slot; None if it is not known
    hide    slots that are not exported; None for the deleted ones. If it is set, the piece is one node
    """

    start: int
    stop: int
    first: int | None = None
    hide: int | None = None


class Change(NamedTuple):
    """One stream that is not as it was.

    head      the stream; as the base has it if it ended
    was       the stream as the base has it; None if the base does not have its number
    event     CREATED, RENAMED (its key or database is another), COPIED, ENDED or ""
    source    COPIED: the number of the stream whose entries at the base it had
    removed   of the base's entries of this stream, or of `source`; ascending
    added     entries of the newer snapshot; ascending
    entries   how many entries `added` has
    """

    head: Head
    was: Head | None
    event: str
    source: int | None
    removed: list[Removal]
    added: list[Piece]
    entries: int


def continues(
    base: tuple[bytes, Position, Sequence[Epoch]], newer: tuple[bytes, Position, Sequence[Epoch]]
) -> str:
    """Say why the base is not an earlier moment of the newer snapshot's store; "" if it is.

    Each is (uuid, position, epochs). A store that was restored to an earlier LSN has the same uuid, and the same LSNs
    again for other records. Its next life begins with an epoch that the base does not have.
    """
    uuid, position, epochs = base
    newer_uuid, newer_position, newer_epochs = newer
    if uuid != newer_uuid:
        return f"it is of store {uuid.hex()}, and the snapshot is of store {newer_uuid.hex()}"
    lsn, newer_lsn = position.lsn, newer_position.lsn
    if lsn > newer_lsn:
        return (
            f"it holds everything through LSN {lsn}, and the snapshot only through LSN {newer_lsn}"
        )
    known, line = tuple(epochs), tuple(epoch for epoch in newer_epochs if epoch.lsn <= lsn)
    if known != line:
        pairs = zip_longest(known, line)
        one, other = next(pair for pair in pairs if pair[0] != pair[1])
        parted = min(life.lsn for life in (one, other) if life is not None)
        return (
            f"it is of another history: at LSN {parted} the store went on otherwise, as after a restore or the loss "
            "of records"
        )
    if lsn == newer_lsn and position.crc != newer_position.crc:
        return f"it is of another history: its record {lsn} is not that of the snapshot"
    return ""


def compare(
    base: Callable[[], Iterable[Indexed]], newer: Iterable[Indexed], cold: ColdStore
) -> Iterator[Change]:
    """Yield the streams that differ, by number; those that the base does not have come last.

    `base()` is called again if streams may have been copied. `newer` is iterated over once, to its end; its blocks are
    read from `cold` where needed. Both are sorted by number. Raises CorruptBlock.
    """
    fresh: list[tuple[Head, list[IndexNode]]] = []
    theirs = iter(base())
    was = next(theirs, None)
    for head, nodes in newer:
        while was is not None and was.head.number < head.number:
            yield _ended(was)
            was = next(theirs, None)
        if was is None or was.head.number != head.number:
            fresh.append((head, _samples(nodes)))
            continue
        change = _compared(was, Indexed(head, nodes), cold)
        if change.event or change.removed or change.added:
            yield change
        was = next(theirs, None)
    while was is not None:
        yield _ended(was)
        was = next(theirs, None)
    yield from _fresh(base, fresh, cold)


def _ended(was: Indexed) -> Change:
    removed, head = _Removals(), was.head
    for node in was.nodes:
        removed.whole(node)
    return Change(head, head, ENDED, None, removed.done(), [], 0)


def _compared(was: Indexed, now: Indexed, cold: ColdStore, source: int | None = None) -> Change:
    """The change of one stream, or of a copy of `source`."""
    event = COPIED if source is not None else RENAMED if was.head != now.head else ""
    blocks = _Blocks(cold, now.head.number)
    removed, added = _Removals(), _Additions()
    old = next(was.nodes, None)
    for node in now.nodes:
        while old is not None and old.ordinal < node.ordinal:
            removed.whole(old)
            old = next(was.nodes, None)
        if old is None or old.ordinal != node.ordinal:
            added.whole(node)
            continue
        if old.same_block(node):
            removed.kept(old)
            if old.deleted != node.deleted:
                _differ(old, node, blocks.decoded(node), removed, added)
        elif (grown := _grown(old, node, blocks)) is not None:
            removed.kept(old)
            _differ(old, node, grown, removed, added)
        else:
            removed.whole(old)
            added.whole(node)
        old = next(was.nodes, None)
    while old is not None:
        removed.whole(old)
        old = next(was.nodes, None)
    return Change(
        now.head,
        None if source is not None else was.head,
        event,
        source,
        removed.done(),
        added.pieces,
        added.entries,
    )


def _grown(old: IndexNode, node: IndexNode, blocks: _Blocks) -> Decoded | None:
    """The entries of `node` if its first slots are the block of `old`."""
    if node.first != old.first or node.slots <= old.slots or node.length <= old.length // 2:
        return None
    decoded = blocks.decoded(node)
    if decoded.id_at(old.slots - 1) != old.last:
        return None
    sealed = encode(decoded.ids()[: old.slots], decoded.rows(0, old.slots))
    crc = int.from_bytes(sealed[-CRC_BYTES:], "little")
    return decoded if (len(sealed), crc) == (old.length, old.crc) else None


def _differ(
    old: IndexNode, node: IndexNode, decoded: Decoded, removed: _Removals, added: _Additions
) -> None:
    """Two versions of one node; `old` may have fewer slots, and those are equal."""
    had = _mask(old.slots) & ~old.deleted
    has = _mask(node.slots) & ~node.deleted
    gone, came = had & ~has, has & ~had
    while gone:
        slot = (gone & -gone).bit_length() - 1
        removed.single(decoded.id_at(slot))
        gone &= gone - 1
    if came:
        added.part(node, came)


def _mask(slots: int) -> int:
    return (1 << slots) - 1


class _Removals:
    """Gathers what was removed from one stream of the base. Its nodes are named in order: removed, or kept."""

    def __init__(self) -> None:
        self._done: list[Removal] = []
        self._run: Removal | None = None

    def whole(self, node: IndexNode) -> None:
        run = self._run
        if run is None:
            self._run = Removal(node.first, node.last, node.live)
        else:
            self._run = Removal(run.first, node.last, run.entries + node.live)

    def kept(self, node: IndexNode) -> None:
        self._end(node.first - 1)

    def single(self, entry_id: int) -> None:
        self._done.append(Removal(entry_id, entry_id, 1))

    def done(self) -> list[Removal]:
        self._end(MAX)
        return self._done

    def _end(self, last: int) -> None:
        run, self._run = self._run, None
        if run is not None:
            self._done.append(run._replace(last=min(run.last, last)))


class _Additions:
    """Gathers what was added to one stream."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.entries = 0

    def whole(self, node: IndexNode) -> None:
        self.entries += node.live
        last = self.pieces[-1] if self.pieces else None
        if last is not None and last.hide is None and last.stop == node.ordinal:
            self.pieces[-1] = last._replace(stop=node.ordinal + 1)
        else:
            self.pieces.append(Piece(node.ordinal, node.ordinal + 1, node.first))

    def part(self, node: IndexNode, shown: int) -> None:
        self.entries += shown.bit_count()
        hide = _mask(node.slots) & ~shown
        self.pieces.append(Piece(node.ordinal, node.ordinal + 1, node.first, hide))


class _Blocks:
    """Reads single blocks of a stream of the newer snapshot, ascending."""

    def __init__(self, cold: ColdStore, number: int) -> None:
        self._cold, self._number = cold, number
        self._stream: StoredStream | None = None
        self._page: Page | None = None

    def decoded(self, node: IndexNode) -> Decoded:
        """The entries of a node. Raises CorruptBlock."""
        stream = self._stream
        if stream is None:
            stream = self._stream = stored_stream(self._cold, self._number)
        if node.ordinal == stream.stop and stream.tail is not None:
            return Decoded(stream.tail[0])
        at = node.ordinal
        return Decoded(blocks_of(self._cold, self._number, self._page_of(node), at, at + 1))

    def _page_of(self, node: IndexNode) -> Page:
        page = self._page
        if page is None or not page.ordinal <= node.ordinal < page.stop:
            page = self._page = page_of(self._cold, self._number, node.first)
        return page


def page_of(cold: ColdStore, number: int, first: int) -> Page:
    """The page of a stored node, by the ID of the node's first slot: one seek. The node exists."""
    found = cold.before(page_row(number, first), page_prefix(number))
    assert found is not None, (number, first)
    return unpack_page(int.from_bytes(found[0][-16:], "big"), found[1])


# --- streams that the base does not have


def _samples(nodes: Iterator[IndexNode]) -> list[IndexNode]:
    """At most SAMPLES nodes, evenly spread."""
    found: list[IndexNode] = []
    step = 1
    for at, node in enumerate(nodes):
        if at % step == 0:
            found.append(node)
            if len(found) > SAMPLES:
                found = found[::2]
                step *= 2
    return found


def _fresh(
    base: Callable[[], Iterable[Indexed]],
    fresh: list[tuple[Head, list[IndexNode]]],
    cold: ColdStore,
) -> Iterator[Change]:
    sources = _sources(base, fresh)
    changes: dict[int, Change] = {}
    if sources:
        heads = {head.number: head for head, _ in fresh}
        copies: dict[int, list[int]] = {}
        for number, source in sources.items():
            copies.setdefault(source, []).append(number)
        for was in base():
            if was.head.number not in copies:
                continue
            nodes = list(was.nodes)
            for number in copies[was.head.number]:
                now = Indexed(heads[number], index_nodes(cold, stored_stream(cold, number)))
                changes[number] = _compared(
                    Indexed(was.head, iter(nodes)), now, cold, was.head.number
                )
    for head, samples in fresh:
        if head.number in changes:
            yield changes[head.number]
            continue
        added = _Additions()
        if samples:
            for node in index_nodes(cold, stored_stream(cold, head.number)):
                added.whole(node)
        yield Change(head, None, CREATED, None, [], added.pieces, added.entries)


def _sources(
    base: Callable[[], Iterable[Indexed]], fresh: list[tuple[Head, list[IndexNode]]]
) -> dict[int, int]:
    """The number of the stream of the base that shares the most sampled nodes with each new stream, if any does."""
    wanted: dict[tuple[int, ...], list[int]] = {}
    for head, samples in fresh:
        for node in samples:
            wanted.setdefault(node[:6], []).append(head.number)
    votes: dict[int, Counter[int]] = {}
    if wanted:
        for was in base():
            for node in was.nodes:
                for number in wanted.get(node[:6], ()):
                    votes.setdefault(number, Counter())[was.head.number] += 1
    return {number: found.most_common(1)[0][0] for number, found in votes.items()}
