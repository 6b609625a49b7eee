"""Young deliveries, which lie before the orders: nobody can tell them from those that are in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.groups.entries import WIDE, ids, runs, set_load, some_ids, times
from tests.engine.rows_in_memory import RowsInMemory

from tidelog.engine.groups.chunk_rows import pack_chunk
from tidelog.engine.groups.group import Group, load_group
from tidelog.engine.groups.pending import YOUNG, Pending
from tidelog.engine.idlist import id_of, keys, pack

END = 1 << 128
OWNERS = 3

Step = tuple[Any, ...]

# Mostly what is young for a while, and goes again; among it everything else.
new = st.tuples(st.just("new"), st.integers(1, OWNERS), st.integers(0, 2), st.integers(1, 3))
steps = st.lists(
    st.one_of(
        *[new] * 4,
        *[st.tuples(st.just("done"), st.integers(0, 100), st.integers(1, 4))] * 3,
        st.tuples(st.just("deliver"), runs, st.integers(1, OWNERS), times, st.integers(1, 3)),
        st.tuples(st.just("deliver"), some_ids, st.integers(1, OWNERS), times, st.integers(1, 3)),
        st.tuples(st.just("remove"), some_ids),
        st.tuples(st.just("nack"), st.lists(ids, max_size=4, unique=True)),
        st.tuples(st.just("drop"), st.integers(1, OWNERS)),
        st.tuples(st.just("wide"), st.sampled_from([0] * 20 + WIDE)),
    ),
    max_size=40,
)


@pytest.fixture(params=[4, 64])
def load(request: pytest.FixtureRequest) -> Iterator[int]:
    set_load(request.param)
    yield request.param
    set_load(64)


def change(pending: Pending, step: Step, held: list[int]) -> None:
    """One step. held: what is pending before it."""
    kind, *args = step
    if kind == "new":
        owner, later, n = args
        first = max(held, default=4 << 64) + 1
        time = max((time for time, _ in pending.by_age()), default=10) + later
        pending.deliver(pack(list(range(first, min(first + n, END)))), owner, max(time, 0), 1)
    elif kind == "done":
        at, n = args
        pending.remove(pack(held[at % len(held) :][:n] if held else []))
    elif kind == "deliver":
        some, owner, time, count = args
        pending.deliver(pack(sorted(set(some))), owner, time, count)
    elif kind == "remove":
        pending.remove(pack(args[0]))
    elif kind == "nack":
        pending.nack(pack(args[0]), 1)
    elif kind == "drop":
        pending.drop_owner(args[0])
        assert pending.orders.add_owner() == args[0]
    elif args[0]:
        pending.deliver(pack([args[0]]), 1, 5, 1)


def answers(pending: Pending, held: list[int]) -> Iterator[Any]:
    """All that can be asked."""
    asked = [*held, 1 << 64, 2 << 64 | 19, *WIDE]
    borders = [0, *held[:: len(held) // 3 + 1], WIDE[0]]
    yield len(pending), pending.orders.wide, pending.nacked(), pending.resident(), pending.oldest()
    yield [pending.held_by(owner) for owner in range(1, OWNERS + 1)]
    yield list(pending.entries())
    yield [(pending.get(id), pending.contains(id)) for id in asked]
    yield pending.among(asked), pending.present(pack(asked))
    if held:
        yield pending.first(), pending.last()
    for time in (-1, 5, 12):
        yield list(pending.by_age(time))
        for owner in (None, 1, 2):
            for start in borders[:2]:
                yield [pending.page(start, END, count, owner, time) for count in (1, 3, 1000)]
    for at, start in enumerate(borders):
        # How they lie in chunks shows nowhere.
        chunks = list(pending.slices(start))
        yield [[value for chunk in chunks for value in chunk[i]] for i in range(4)]
        yield [pending.page(start, borders[-at], 1000, owner) for owner in (None, 1, 2)]
        some = [id for id in held if id >= start][:3]
        yield pending.present(pack(some)), pending.present(pack([*some, WIDE[0]]))


@settings(max_examples=100, deadline=None)
@given(steps)
def same(steps: list[Step]) -> None:
    """A group whose deliveries go into the orders at once, beside one where they are young."""
    ordered, pending = Pending(), Pending()
    for each in (ordered, pending):
        assert [each.orders.add_owner() for _ in range(OWNERS)] == [1, 2, 3]
    for step in steps:
        held = [id for id, *_ in ordered.entries()]
        change(ordered, step, held)
        ordered._flush()
        change(pending, step, held)
        pending.check()
        held = [id for id, *_ in ordered.entries()]
        young = dict(pending.young)
        assert list(answers(ordered, held)) == list(answers(pending, held))
        assert pending.young == young  # who looks changes nothing
        for some in (held[-1:], held[-2:], held[-4:-1]):
            rows = [pending.get(id) for id in some]
            for owner in (1, 2):
                # It may say no where it would have to look at each, which is not so with what is young.
                said = pending.are_held(pack(some), owner, 1)
                if (
                    not said
                    and young
                    and some
                    and some[0] >= min(map(id_of, keys(b"".join(young))))
                ):
                    assert {(owner, 1)} != {row[1:] for row in rows if row}
                assert not said or {(owner, 1)} == {row[1:] for row in rows if row}
    copy = pending.copy()
    copy.check()
    held = [id for id, *_ in ordered.entries()]
    assert list(answers(copy, held)) == list(answers(ordered, held))
    frozen = pending.freeze()
    assert sum(len(chunk[0]) for _, chunk in frozen.by_id.new_chunks()) == len(pending)
    assert list(answers(pending, held)) == list(answers(ordered, held))


def test_nobody_can_tell_what_is_young(load: int) -> None:
    same()


# --- beside chunks that are not in memory


def ids_of(first: int, n: int) -> list[int]:
    return [(first + i) << 64 for i in range(n)]


@pytest.fixture
def cold() -> tuple[Group, RowsInMemory]:
    """100 entries of alice's and bob's each, none of them in memory."""
    group = Group(b"g", 0, 0, 3)
    for first, name in ((1000, b"alice"), (1100, b"bob")):
        group.deliver(name, pack(ids_of(first, 100)), first, 1, first)
    rows = RowsInMemory()
    rows.write(group.freeze().rows(7))
    return load_group(rows, 7, 3), rows


def test_what_is_young_reads_nothing_and_changes_no_chunk(
    cold: tuple[Group, RowsInMemory],
) -> None:
    group, rows = cold
    pending = group.pending
    group.freeze()
    reads = rows.reads
    for n in range(YOUNG * 2):
        (job,) = ids_of(2000 + n, 1)
        group.deliver(b"alice", pack([job]), 2000 + n, 1, 2000 + n)
        assert pending.get(job) == (2000 + n, 1, 1)
        assert pending.present(pack([job])) == pack([job])
        pending.orders.prepare_remove(pack([job]))
        pending.remove(pack([job]))
    assert rows.reads == reads
    assert len(pending) == 200
    assert not pending.freeze().changed()


def test_young_ones_go_behind_what_is_not_in_memory(cold: tuple[Group, RowsInMemory]) -> None:
    group, rows = cold
    pending = group.pending
    reads = rows.reads
    for n in range(YOUNG):
        group.deliver(b"alice", pack(ids_of(2000 + n, 1)), 2000 + n, 1, 2000 + n)
    assert not pending.young
    assert rows.reads == reads
    assert pending.held_by(1) == 100 + YOUNG
    pending.check()


@pytest.mark.parametrize("name", [b"alice", b"bob"])
def test_a_consumer_with_young_deliveries_goes(
    cold: tuple[Group, RowsInMemory], name: bytes
) -> None:
    group, rows = cold
    for n in range(20):
        group.deliver(b"alice", pack(ids_of(2000 + n, 1)), 2000 + n, 1, 2000 + n)
    group.pending.orders.prepare_drop(group.consumers[name].index)
    reads = rows.reads
    group.drop_consumer(name)
    assert rows.reads == reads
    assert len(group.pending) == (100 if name == b"alice" else 120)
    group.pending.check()


def test_how_a_consumer_goes_is_decided_before_the_young_are_in_the_orders() -> None:
    """All that is young is hers: no longer a small part of the group, as she has of what is in the orders."""
    group = Group(b"g", 0, 0, 3)
    group.deliver(b"alice", pack(ids_of(1, 1)), 1, 1, 1)
    group.deliver(b"bob", pack(ids_of(1000, 900)), 1000, 1, 1000)
    rows = RowsInMemory()
    rows.write(group.freeze().rows(7))
    group = load_group(rows, 7, 3)
    for n in range(100):
        group.deliver(b"alice", pack(ids_of(3000 + n, 1)), 3000, 1, 3000)
    group.pending.orders.prepare_drop(group.consumers[b"alice"].index)
    reads = rows.reads
    group.drop_consumer(b"alice")
    assert rows.reads == reads
    assert len(group.pending) == 900
    group.pending.check()


@pytest.mark.parametrize("n", [1, 2, 15, 16])
def test_many_that_are_never_acknowledged_lie_in_full_chunks(n: int) -> None:
    pending = Pending()
    pending.orders.add_owner()
    for first in range(1, 10_000, n):
        pending.deliver(pack(ids_of(first, n)), 1, first, 1)
        assert len(pending.young) < YOUNG
    for order in pending.orders.all():
        sizes = [len(order.peek(i)[0]) for i in range(len(order.chunks))]
        assert sum(sizes) / len(sizes) > 60
    assert len(pack_chunk(pending.orders.by_id.peek(0))) > 64


def test_a_time_in_the_past_is_put_in_its_place() -> None:
    pending = Pending()
    pending.orders.add_owner()
    for n, time in ((1, 50), (2, 40), (3, 45), (4, 60)):
        pending.deliver(pack(ids_of(n, 1)), 1, time, 1)
    assert [time for time, _ in pending.by_age()] == [40, 45, 50, 60]
    assert pending.oldest() == 40
    pending.check()


def test_an_entry_that_is_no_longer_young_is_removed_by_its_id() -> None:
    pending = Pending()
    pending.orders.add_owner()
    first = pack(ids_of(1, 1))
    pending.deliver(first, 1, 1, 1)
    pending.deliver(pack(ids_of(2, 10 * YOUNG)), 1, 2, 1)
    assert first not in pending.young and len(pending) == 10 * YOUNG + 1
    pending.remove(first)
    assert len(pending) == 10 * YOUNG
    pending.check()
