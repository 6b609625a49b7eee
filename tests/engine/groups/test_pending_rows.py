"""Pending entries that are frozen, written, evicted and reloaded at random points, against a plain `Pending`.

Every change is made to both. The one keeps everything in memory and is never frozen; the other goes through checkpoints
that hold or fail, and loses what memory does not need. Beside them lie the states at each freeze.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.engine.groups.entries import WIDE, ids, runs, set_load, some_ids, times
from tests.engine.rows_in_memory import RowsInMemory

from tidelog.engine.errors import CorruptBlock
from tidelog.engine.groups.group import Group, load_group
from tidelog.engine.groups.group_row import FrozenGroup
from tidelog.engine.groups.pending import NOBODY, Pending
from tidelog.engine.idlist import pack
from tidelog.engine.rowkeys import chunk_prefix, chunk_row, group_row

STREAM = 7
NUMBER = 3
NAMES = [b"alice", b"bob", b"carol"]


def everything(group: Group) -> Any:
    """All that can be seen of a group."""
    pending = group.pending
    consumers = [(c.name, c.seen_time, c.active_time) for c in group.listed()]
    rows = [
        (id, time, group.owner_name(owner), count) for id, time, owner, count in pending.entries()
    ]
    held = [(c.name, pending.held_by(c.index)) for c in group.listed()]
    of_each = [
        [(row[0], row[1], row[3]) for row in pending.page(0, 1 << 128, 10**6, c.index)]
        for c in group.listed()
    ]
    by_age = list(pending.by_age())
    last = pending.last() if rows else None
    return (
        *(group.name, group.last_id, group.entries_read, consumers, rows, held, of_each, by_age),
        *(len(pending), pending.nacked(), pending.orders.wide, last),
    )


class CheckpointMachine(RuleBasedStateMachine):
    load = 4

    def __init__(self) -> None:
        super().__init__()
        set_load(self.load)
        self.rows = RowsInMemory()
        self.plain = Group(b"g", 0, 0, NUMBER)
        self.group = Group(b"g", 0, 0, NUMBER)
        self.frozen: FrozenGroup | None = None  # a checkpoint in flight, with what it must hold
        self.at_freeze: Any = None
        self.stored = False  # whether a checkpoint ever held

    def teardown(self) -> None:
        set_load(64)

    def both(self, method: str, *args: Any) -> None:
        for group in (self.plain, self.group):
            getattr(group, method)(*args)

    def held(self) -> list[int]:
        return [row[0] for row in self.plain.pending.entries()]

    def owner(self, n: int) -> int | None:
        consumer = self.group.consumers.get(NAMES[n])
        return None if consumer is None else consumer.index

    # --- changes

    @rule(run=runs, n=st.integers(0, 2), time=times, count=st.integers(1, 3), each=st.booleans())
    def deliver(self, run: list[int], n: int, time: int, count: int, each: bool) -> None:
        counts = [count + i for i in range(len(run))]
        held = self.held() if each else []
        removed = pack([id for id in held[2:9] if id not in run])
        self.group.pending.orders.prepare_remove(removed)
        self.group.pending.orders.prepare_deliver(pack(run), self.owner(n), time, [removed])
        reads = self.rows.reads
        for group in (self.plain, self.group):
            group.pending.remove(removed)
        self.both("deliver", NAMES[n], pack(run), time, counts if each else count, time)
        assert self.rows.reads == reads  # apply found in memory what it needed

    @rule(
        n=st.integers(0, 2),
        time=times,
        size=st.sampled_from([1, 1, 1, 2, 3, 5, 20]),
        ready=st.booleans(),
    )
    def deliver_new(self, n: int, time: int, size: int, ready: bool) -> None:
        first = max(self.held(), default=1 << 64) + 1
        run = pack(list(range(first, min(first + size, 1 << 128))))
        if ready:
            self.group.pending.orders.prepare_deliver(run, self.owner(n), time + 10)
        self.both("deliver", NAMES[n], run, time + 10, 1, time)

    @rule(some=some_ids, ready=st.booleans())
    def remove(self, some: list[int], ready: bool) -> None:
        if ready:  # an effect names what is pending, and nothing else
            some = self.plain.pending.among(some)
            self.group.pending.orders.prepare_remove(pack(some))
        reads = self.rows.reads
        self.plain.pending.remove(pack(some))
        self.group.pending.remove(pack(some))
        assert not ready or self.rows.reads == reads

    @precondition(lambda self: len(self.plain.pending) > 0)
    @rule(at=st.integers(0, 100), n=st.integers(1, 40), ready=st.booleans())
    def remove_stretch(self, at: int, n: int, ready: bool) -> None:
        held = self.held()
        self.remove(held[at % len(held) :][:n], ready)

    @precondition(lambda self: len(self.plain.pending) > 0)
    @rule(at=st.integers(0, 100), n=st.integers(1, 40), to=st.integers(0, 2), time=times)
    def claim_stretch(self, at: int, n: int, to: int, time: int) -> None:
        held = self.held()
        self.deliver(held[at % len(held) :][:n], to, time, 2, False)

    @rule(some=st.lists(ids, max_size=10, unique=True), count=st.integers(0, 3))
    def nack(self, some: list[int], count: int) -> None:
        self.group.pending.orders.prepare_deliver(pack(some), NOBODY, 0)
        reads = self.rows.reads
        self.plain.pending.nack(pack(some), count)
        self.group.pending.nack(pack(some), count)
        assert self.rows.reads == reads

    @precondition(lambda self: bool(self.plain.consumers))
    @rule(n=st.integers(0, 2))
    def drop_consumer(self, n: int) -> None:
        name = NAMES[n]
        if name in self.plain.consumers:
            self.group.pending.orders.prepare_drop(self.group.consumers[name].index)
            reads = self.rows.reads
            self.both("drop_consumer", name)
            assert self.rows.reads == reads

    @precondition(lambda self: not self.plain.pending.orders.wide)
    @rule(id=st.sampled_from(WIDE), n=st.integers(0, 2), luck=st.integers(0, 9))
    def deliver_wide(self, id: int, n: int, luck: int) -> None:
        if luck == 0:
            self.deliver([id], n, 3, 1, False)

    @rule(id=ids)
    def move(self, id: int) -> None:
        self.both("set_position", id, id & 7)

    # --- checkpoints

    @precondition(lambda self: self.frozen is None)
    @rule()
    def freeze(self) -> None:
        self.frozen = self.group.freeze()
        self.at_freeze = everything(self.plain)

    @precondition(lambda self: self.frozen is not None)
    @rule()
    def commit(self) -> None:
        assert self.frozen is not None
        self.rows.write(self.frozen.rows(STREAM))
        self.frozen = None
        self.stored = True
        again = load_group(self.rows, STREAM, NUMBER)
        assert everything(again) == self.at_freeze
        again.pending.check()
        written = len(list(self.rows.rows(chunk_prefix(STREAM, NUMBER))))
        assert written == sum(len(order.serials) for order in again.pending.orders.all())

    @precondition(lambda self: self.frozen is not None)
    @rule(part=st.booleans())
    def fail(self, part: bool) -> None:
        """The checkpoint fails; with `part` its rows were half made, which must leave no trace."""
        assert self.frozen is not None
        if part:
            next(iter(self.frozen.rows(STREAM)), None)
        self.group.thaw(self.frozen)
        self.frozen = None

    @precondition(lambda self: self.frozen is None and self.stored)
    @rule()
    def evict(self) -> None:
        self.group.evict(self.rows, STREAM)
        assert 0 <= self.group.pending.resident() <= len(self.group.pending)

    @precondition(lambda self: self.frozen is None)
    @rule()
    def checkpoint_and_evict(self) -> None:
        self.freeze()
        self.commit()
        self.evict()
        assert not self.group.pending.resident()

    @precondition(lambda self: self.frozen is None)
    @rule()
    def reload(self) -> None:
        self.freeze()
        self.commit()
        self.group = load_group(self.rows, STREAM, NUMBER)

    @rule()
    def copy(self) -> None:
        copy = self.group.copy()
        copy.pending.check()
        assert everything(copy) == everything(self.plain)

    # --- looking

    @rule(some=st.lists(st.one_of(ids, st.sampled_from(WIDE)), max_size=20))
    def ask_for_some(self, some: list[int]) -> None:
        one, other = self.plain.pending, self.group.pending
        assert one.among(some) == other.among(some)
        assert one.present(pack(some)) == other.present(pack(some))
        for id in some:
            assert one.contains(id) == other.contains(id)
            row, same = one.get(id), other.get(id)
            assert (row is None) == (same is None)
            if row is not None and same is not None:
                assert (row[0], row[2]) == (same[0], same[2])
        if len(one):
            assert (one.first(), one.last()) == (other.first(), other.last())

    @rule(
        start=st.one_of(ids, st.sampled_from(WIDE)),
        end=st.one_of(ids, st.sampled_from(WIDE)),
        count=st.integers(-1, 30),
        name=st.sampled_from([None, *NAMES]),
        time_max=st.one_of(st.none(), st.integers(0, 20)),
    )
    def page(
        self, start: int, end: int, count: int, name: bytes | None, time_max: int | None
    ) -> None:
        pages: list[list[Any]] = []
        for group in (self.plain, self.group):
            consumer = None if name is None else group.consumers.get(name)
            owner = None if consumer is None else consumer.index
            page = group.pending.page(start, end, count, owner, time_max)
            pages.append([(id, time, group.owner_name(own), n) for id, time, own, n in page])
            slices = group.pending.slices(start)
            pages[-1] += [group.pending.to_id(key) for column, *_ in slices for key in column]
            pages[-1] += group.pending.by_age(time_max or 0)
        assert pages[0] == pages[1]

    @invariant()
    def agrees(self) -> None:
        resident = self.group.pending.resident()
        self.group.pending.check()
        assert resident == self.group.pending.resident()
        assert list(self.plain.pending.entries()) == [
            (id, time, self.owner_in_plain(owner), count)
            for id, time, owner, count in self.group.pending.entries()
        ]

    def owner_in_plain(self, owner: int) -> int:
        name = self.group.owner_name(owner)
        return self.plain.consumers[name].index if name else NOBODY


class LargerChunks(CheckpointMachine):
    load = 16


OFTEN = settings(
    max_examples=18, stateful_step_count=50, suppress_health_check=list(HealthCheck), deadline=None
)
TestSmallChunks = CheckpointMachine.TestCase
TestSmallChunks.settings = OFTEN
TestLargerChunks = LargerChunks.TestCase
TestLargerChunks.settings = OFTEN


@pytest.mark.slow
@pytest.mark.parametrize("machine", [CheckpointMachine, LargerChunks])
def test_more_chunks(machine: type[CheckpointMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(OFTEN, max_examples=40))


# --- damage


def stored_group(deliveries: int = 40) -> tuple[Group, RowsInMemory]:
    """Deliveries of 100 by two consumers in turn, in a checkpoint and out of memory."""
    group = Group(b"workers", 0, 0, NUMBER)
    for n in range(deliveries):
        run = [(1000 + n) << 64 | seq for seq in range(100)]
        group.deliver(NAMES[n % 2], pack(run), 5000 + n, 1, 5000 + n)
    rows = RowsInMemory()
    rows.write(group.freeze().rows(STREAM))
    return load_group(rows, STREAM, NUMBER), rows


def serial_of(group: Group, order: str, i: int) -> int:
    pending = group.pending
    orders = {
        "id": pending.orders.by_id,
        "time": pending.orders.by_time,
        "owner": pending.orders.owner(1),
    }
    return orders[order].serials[i]


@pytest.mark.parametrize(
    "payload", [None, b"", b"\xc0", b"\x91\x01", b"\x95\x40\x01\x01\x01\x01", b"\x81\x01\x02"]
)
def test_a_damaged_chunk_is_named_and_others_stay_usable(payload: bytes | None) -> None:
    group, rows = stored_group()
    assert group.pending.resident() == 0
    serial = serial_of(group, "id", 3)
    rows.put(chunk_row(STREAM, NUMBER, serial), payload)
    with pytest.raises(CorruptBlock) as caught:
        group.pending.present(pack([1003 << 64 | 5]))
    said = str(caught.value)
    assert f"stream number {STREAM}, group 'workers' (number {NUMBER})" in said
    assert "IDs after 1002-99 up to 1003-99" in said
    assert f"chunk {serial}" in said
    with pytest.raises(CorruptBlock):
        list(group.pending.entries())
    for n in (2, 4, 39):
        run = pack([(1000 + n) << 64 | seq for seq in range(100)])
        assert group.pending.present(run) == run
        group.pending.remove(run)
    group.deliver(b"alice", pack([2000 << 64]), 6000, 1, 6000)
    assert len(group.pending) == 3701
    again = group.freeze()
    rows.write(again.rows(STREAM))
    assert len(load_group(rows, STREAM, NUMBER).pending) == 3701


@pytest.mark.parametrize("order", ["time", "owner"])
def test_a_damaged_chunk_is_found_before_anything_changes(order: str) -> None:
    group, rows = stored_group()
    rows.put(chunk_row(STREAM, NUMBER, serial_of(group, order, 0)), None)
    run = pack([1000 << 64 | seq for seq in range(100)])
    with pytest.raises(CorruptBlock, match="group 'workers'.*1000-99"):
        group.pending.orders.prepare_remove(run)
    with pytest.raises(CorruptBlock, match="group 'workers'.*1000-99"):
        group.pending.orders.prepare_deliver(run, 2, 7000)
    with pytest.raises(CorruptBlock, match="group 'workers'.*1000-99"):
        group.pending.orders.prepare_drop(1)
    group.pending.orders.prepare_remove(pack([1001 << 64]))
    group.pending.remove(pack([1001 << 64]))
    assert len(group.pending) == 3999


def test_a_chunk_in_the_place_of_another_is_found() -> None:
    group, rows = stored_group()
    for order in ("id", "time", "owner"):
        one, other = (chunk_row(STREAM, NUMBER, serial_of(group, order, i)) for i in (0, 1))
        payload = rows.get(one)
        rows.put(one, rows.get(other))
        rows.put(other, payload)
    with pytest.raises(CorruptBlock, match="other entries"):
        group.pending.get(1000 << 64)
    with pytest.raises(CorruptBlock, match="other entries"):
        next(group.pending.by_age())
    with pytest.raises(CorruptBlock, match="other entries"):
        group.pending.page(0, 1 << 128, 1, 1)


@pytest.mark.parametrize("payload", [None, b"", b"\xc0", b"\x95\xc4\x01g\xc4\x00\x00\x90\x90"])
def test_a_damaged_group_is_named(payload: bytes | None) -> None:
    _, rows = stored_group()
    rows.put(group_row(STREAM, NUMBER), payload)
    with pytest.raises(CorruptBlock, match=f"stream number {STREAM}, group number {NUMBER}"):
        load_group(rows, STREAM, NUMBER)


# --- what a checkpoint writes, and reads


def test_a_freeze_writes_what_changed_and_nothing_else() -> None:
    group, rows = stored_group()
    group.freeze()
    assert list(group.freeze().rows(STREAM)) == []
    group.deliver(b"alice", pack([1007 << 64 | 3]), 9000, 2, 9000)
    group.pending.remove(pack([1020 << 64 | 3]))
    operations = list(group.freeze().rows(STREAM))
    assert len([each for each in operations if each[0] == "put"]) <= 9
    assert len([each for each in operations if each[0] == "delete"]) <= 7
    group.set_position(5, 5)
    done = [each[0] for each in group.freeze().rows(STREAM)]
    assert [each for each in done if each != "rest"] == ["put"]


def test_a_group_is_loaded_without_its_chunks() -> None:
    group, rows = stored_group(400)
    reads = rows.reads
    assert len(group.pending) == 40_000
    assert group.pending.held_by(1) == 20_000
    assert group.pending.last() == 1399 << 64 | 99
    group.deliver(b"alice", pack([2000 << 64]), 9000, 1, 9000)
    assert rows.reads == reads
    group.pending.remove(group.pending.present(pack([1200 << 64 | 50])))
    assert rows.reads <= reads + 4


def test_many_entries_of_one_time_are_found_without_reading_them_all() -> None:
    group = Group(b"g", 0, 0, NUMBER)
    group.deliver(b"alice", pack([1 << 64 | n for n in range(100_000)]), 5, 1, 5)
    rows = RowsInMemory()
    rows.write(group.freeze().rows(STREAM))
    group = load_group(rows, STREAM, NUMBER)
    reads = rows.reads
    some = random.Random(1).sample(range(100_000), 50)
    for n in some:
        group.pending.remove(pack([1 << 64 | n]))
    assert rows.reads <= reads + 3 * len(some)
    group.pending.check()


def test_a_plain_pending_needs_no_rows() -> None:
    pending = Pending()
    pending.deliver(pack([1, 2, 3]), pending.orders.add_owner(), 5, 1)
    pending.orders.prepare_remove(pack([1]))
    pending.orders.prepare_drop(1)
    assert not pending.orders.away
    assert pending.resident() == 3
