"""Additions and removals between two snapshots of random histories are exact."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from tests.engine.rows_in_memory import RowsInMemory
from tests.engine.test_stored_histories import Pair

from tidelog.engine.keys.freeze import load_state
from tidelog.engine.streams.block import Decoded, EntryRow, rows_of
from tidelog.engine.streams.stored import stored_nodes, stored_stream
from tidelog.engine.streams.stream import Stream
from tidelog.spark.exports.incremental import Change, Piece, compare
from tidelog.spark.exports.index import Head, Indexed, index_of, read_index, write_index

Entries = dict[int, EntryRow]


class Moment(NamedTuple):
    """A snapshot: its rows, its streams, and their entries as the engine says them."""

    rows: RowsInMemory
    heads: list[Head]
    entries: dict[int, Entries]

    def indexed(self) -> bytes:
        file = io.BytesIO()
        write_index(file, index_of(self.rows, self.heads))
        return file.getvalue()


def moment(pair: Pair) -> Moment:
    stirred = pair.stirred
    stirred.fail()
    stirred.freeze()
    stirred.commit()
    rows = stirred.rows.copy()
    heads: list[Head] = []
    entries: dict[int, Entries] = {}
    for db, database in enumerate(load_state(rows, stirred.meta).databases):
        for key, value in database.keys.items():
            if isinstance(value, Stream):
                heads.append(Head(value.number, db, key))
                found = entries[value.number] = {}
                for node in value.walk():
                    for slot, (entry_id, row) in enumerate(zip(node.ids(), node.rows())):
                        if not node.deleted >> slot & 1:
                            found[entry_id] = row
    return Moment(rows, sorted(heads), entries)


def gently(pair: Pair, r: random.Random) -> None:
    """A few changes of one stream."""
    key = r.choice((b"s", b"t", b"v"))
    entries = pair.run(b"XRANGE", key, b"-", b"+")
    for entry_id, _ in entries if isinstance(entries, list) else ():
        if r.random() < 0.05:
            pair.run(b"XDEL", key, entry_id)
    if r.random() < 0.3:
        pair.run(b"XTRIM", key, b"MAXLEN", r.choice((b"=", b"~")), b"%d" % r.randrange(1, 60))
    for _ in range(r.choice((1, 3, 40))):
        pair.now += r.choice((0, 0, 1))
        pair.run(b"XADD", key, b"*", *r.choice(((b"f", b"1"), (b"f", b"2", b"g", b"x"))))


def moments(seed: int, counts: Counter[str], turns: int) -> Iterator[Moment]:
    """Snapshots of one random history."""
    pair = Pair(seed, counts)
    pair.limits()
    r = random.Random(seed)
    yield moment(pair)
    for _ in range(turns):
        for _ in range(r.choice((1, 2, 4))):
            way = r.random()
            if way < 0.3:
                pair.again()
            elif way < 0.85:
                gently(pair, r)
            elif way < 0.93:
                pair.many()
            elif way < 0.94:
                pair.run(b"FLUSHALL")
            else:
                key, other = r.sample((b"s", b"t", b"v", b"w"), 2)
                ways = (b"RENAME", key, other), (b"COPY", key, other, b"REPLACE"), (b"DEL", key)
                pair.run(*r.choice(ways))
            pair.stir()
            pair.now += r.choice((0, 1, 1000))
        yield moment(pair)


def added(rows: RowsInMemory, head: Head, pieces: list[Piece]) -> Entries:
    """The entries that the pieces name."""
    if not pieces:
        return {}
    nodes = {node.ordinal: node for node in stored_nodes(rows, stored_stream(rows, head.number))}
    found: Entries = {}
    for piece in pieces:
        for ordinal in range(piece.start, piece.stop):
            node = nodes[ordinal]
            hide = node.deleted if piece.hide is None else piece.hide
            ids = Decoded(node.data).ids()
            for slot, row in enumerate(rows_of(node.data)):
                if not hide >> slot & 1:
                    assert ids[slot] not in found
                    found[ids[slot]] = row
    return found


def applied(base: Moment, newer: Moment, changes: list[Change]) -> dict[int, Entries]:
    """The base's entries, with the removals and then the additions of each change."""
    state = {number: dict(found) for number, found in base.entries.items()}
    names = {head.number: head for head in base.heads}
    for change in changes:
        number = change.head.number
        entries = dict(base.entries[change.source if change.source is not None else number]
                       if change.event != "created" else {})  # fmt: skip
        for gone in change.removed:
            ids = [entry_id for entry_id in entries if gone.first <= entry_id <= gone.last]
            assert len(ids) == gone.entries, "a range counts what it removes"
            for entry_id in ids:
                del entries[entry_id]
        came = added(newer.rows, change.head, change.added)
        assert len(came) == change.entries
        assert not came.keys() & entries.keys()
        state[number] = dict(sorted((entries | came).items()))
        names[number] = change.head
        if change.event == "ended":
            assert not state.pop(number)
            del names[number]
    assert sorted(names.values()) == newer.heads
    return state


def pairs_are_exact(seed: int, counts: Counter[str], turns: int) -> int:
    print("seed", seed)
    r = random.Random(seed)
    known = list(moments(seed, counts, turns))
    tried = 0
    for at, newer in enumerate(known[1:], 1):
        for base in {at - 1, r.randrange(at)}:
            index = known[base].indexed()

            def streams(index: bytes = index) -> Iterator[Indexed]:
                return read_index(io.BytesIO(index))

            changes = list(compare(streams, index_of(newer.rows, newer.heads), newer.rows))
            assert applied(known[base], newer, changes) == newer.entries
            tried += 1
            for change in changes:
                counts[change.event] += 1
                counts["ranges"] += any(gone.first != gone.last for gone in change.removed)
                counts["singles"] += any(gone.first == gone.last for gone in change.removed)
                counts["parts"] += any(piece.hide is not None for piece in change.added)
    return tried


def test_additions_and_removals_are_exact() -> None:
    counts: Counter[str] = Counter()
    tried = sum(pairs_are_exact(seed, counts, 12) for seed in range(12))
    print(tried, counts)
    assert tried > 200
    for seen in (
        "created",
        "renamed",
        "copied",
        "ended",
        "ranges",
        "singles",
        "parts",
        "IDs again",
    ):
        assert counts[seen], seen


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_histories_are_exact(seed: int) -> None:
    assert pairs_are_exact(seed, Counter(), 60)
