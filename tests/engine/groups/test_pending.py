"""Pending entries against a plain model: a dict, sorted whenever an order is asked for.

Small chunks and a small range of IDs make every border case common: runs that straddle chunks, splits,
chunks that empty, deliveries of what is already pending. Some runs meet an ID that has no key.
"""

from __future__ import annotations

from collections.abc import Iterator

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

from tidelog.engine.groups.pending import NOBODY, Pending
from tidelog.engine.idlist import pack, unpack


class PendingMachine(RuleBasedStateMachine):
    load = 4

    def __init__(self) -> None:
        super().__init__()
        set_load(self.load)
        self.pending = Pending()
        self.model: dict[int, tuple[int, int, int]] = {}  # id -> time, owner, count
        self.zone: list[int] = []  # NACKed ids in order
        self.owners = [self.pending.orders.add_owner() for _ in range(3)]

    def teardown(self) -> None:
        set_load(64)

    def owner(self, n: int) -> int:
        return self.owners[n % len(self.owners)]

    @rule(run=runs, n=st.integers(0, 2), time=times, count=st.integers(1, 3), each=st.booleans())
    def deliver(self, run: list[int], n: int, time: int, count: int, each: bool) -> None:
        counts = [count + i for i in range(len(run))]
        self.pending.deliver(pack(run), self.owner(n), time, counts if each else count)
        for id, own in zip(run, counts):
            self.model[id] = time, self.owner(n), own if each else count
            if id in self.zone:
                self.zone.remove(id)

    @rule(n=st.integers(0, 2), time=times, size=st.sampled_from([1, 1, 1, 2, 3, 5, 20]))
    def deliver_new(self, n: int, time: int, size: int) -> None:
        """As `>` delivers: above everything pending, later than everything."""
        first = max(self.model, default=1 << 64) + 1
        self.deliver(list(range(first, min(first + size, 1 << 128))), n, time + 10, 1, False)

    @rule(some=some_ids)
    def remove(self, some: list[int]) -> None:
        self.pending.remove(pack(some))
        self.forget(some)

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 100), n=st.integers(1, 40), skip=st.booleans())
    def remove_stretch(self, at: int, n: int, skip: bool) -> None:
        held = sorted(self.model)
        some = held[at % len(held) :][:n]
        if skip:
            del some[len(some) // 2 : len(some) // 2 + 1]
        self.remove(some)

    @precondition(lambda self: self.model)
    @rule(at=st.integers(0, 100), n=st.integers(1, 40), to=st.integers(0, 2), time=times)
    def claim_stretch(self, at: int, n: int, to: int, time: int) -> None:
        held = sorted(self.model)
        self.deliver(held[at % len(held) :][:n], to, time, 2, False)

    def forget(self, some: list[int]) -> None:
        for id in some:
            self.model.pop(id, None)
            if id in self.zone:
                self.zone.remove(id)

    @rule(some=st.lists(ids, max_size=10, unique=True), count=st.integers(0, 3))
    def nack(self, some: list[int], count: int) -> None:
        self.pending.nack(pack(some), count)
        for id in some:
            self.model[id] = -1, NOBODY, count
            if id in self.zone:
                self.zone.remove(id)
            self.zone.append(id)

    @rule(n=st.integers(0, 2))
    def drop_owner(self, n: int) -> None:
        owner = self.owners.pop(n % len(self.owners))
        self.pending.drop_owner(owner)
        self.forget([id for id, row in self.model.items() if row[1] == owner])
        self.owners.append(self.pending.orders.add_owner())

    @precondition(lambda self: not self.pending.orders.wide)
    @rule(id=st.sampled_from(WIDE), n=st.integers(0, 2), luck=st.integers(0, 9))
    def deliver_wide(self, id: int, n: int, luck: int) -> None:
        if luck == 0:
            self.deliver([id], n, 3, 1, False)

    @rule(some=st.lists(st.one_of(ids, st.sampled_from(WIDE)), max_size=20))
    def ask_for_some(self, some: list[int]) -> None:
        held = sorted({id for id in some if id in self.model})
        assert self.pending.among(some) == held
        assert unpack(self.pending.present(pack(some))) == held
        for id in some:
            assert self.pending.contains(id) == (id in self.model)
            row = self.pending.get(id)
            if row is not None and row[1] != NOBODY:
                assert row == self.model[id]

    @rule(
        start=st.one_of(ids, st.sampled_from(WIDE)),
        end=st.one_of(ids, st.sampled_from(WIDE)),
        count=st.integers(-1, 30),
        n=st.one_of(st.none(), st.integers(0, 2)),
        time_max=st.one_of(st.none(), st.integers(0, 20)),
    )
    def page(self, start: int, end: int, count: int, n: int | None, time_max: int | None) -> None:
        owner = None if n is None else self.owner(n)
        expected = [
            (id, *row)
            for id, row in sorted(self.model.items())
            if start <= id <= end
            and owner in (None, row[1])
            and (time_max is None or row[0] <= time_max)
        ][: max(count, 0)]
        page = self.pending.page(start, end, count, owner, time_max)
        assert [(id, max(time, -1), *rest) for id, time, *rest in page] == expected

    @rule(start=st.one_of(ids, st.sampled_from(WIDE)))
    def walk(self, start: int) -> None:
        seen = [
            self.pending.to_id(key) for column, *_ in self.pending.slices(start) for key in column
        ]
        assert seen == [id for id in sorted(self.model) if id >= start]

    @rule()
    def copy(self) -> None:
        old, self.pending = self.pending, self.pending.copy()
        old.remove(pack(list(self.model)))
        old.check()

    @invariant()
    def agrees(self) -> None:
        self.pending.check()
        assert len(self.pending) == len(self.model)
        assert self.pending.nacked() == len(self.zone)
        rows = {id: (max(row[0], -1), *row[1:]) for id, *row in self.pending.entries()}
        assert rows == self.model
        by_age = [id for _, id in self.pending.by_age()]
        aged = sorted((row[0], id) for id, row in self.model.items() if row[0] >= 0)
        assert by_age == self.zone + [id for _, id in aged]
        for owner in self.owners:
            held = sum(row[1] == owner for row in self.model.values())
            assert self.pending.held_by(owner) == held
        if self.model:
            assert (self.pending.first(), self.pending.last()) == (
                min(self.model),
                max(self.model),
            )


class LargerChunks(PendingMachine):
    load = 16


FEW = settings(
    max_examples=25, stateful_step_count=40, suppress_health_check=list(HealthCheck), deadline=None
)
TestSmallChunks = PendingMachine.TestCase
TestSmallChunks.settings = FEW
TestLargerChunks = LargerChunks.TestCase
TestLargerChunks.settings = FEW


@pytest.mark.slow
@pytest.mark.parametrize("machine", [PendingMachine, LargerChunks])
def test_more_chunks(machine: type[PendingMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(FEW, max_examples=60))


@pytest.fixture
def many() -> Iterator[Pending]:
    """Ten consumers, deliveries by 100 in turn, 20,000 entries."""
    pending = Pending()
    owners = [pending.orders.add_owner() for _ in range(10)]
    for n in range(200):
        run = [(1000 + n) << 64 | seq for seq in range(100)]
        pending.deliver(pack(run), owners[n % 10], 1000 + n, 1)
    yield pending
    pending.check()


def test_a_consumer_with_many_entries_goes_in_one_sweep(many: Pending) -> None:
    many.drop_owner(3)
    assert len(many) == 18_000
    assert many.page(0, 1 << 128, 10**9, 4)[0][2] == 4


def test_whole_deliveries_are_acknowledged_wherever_they_lie(many: Pending) -> None:
    for n in (0, 199, 77):
        many.remove(pack([(1000 + n) << 64 | seq for seq in range(100)]))
    assert len(many) == 19_700


def test_deliveries_above_the_chunk_size(many: Pending) -> None:
    run = [5000 << 64 | seq for seq in range(1000)]
    many.deliver(pack(run), 1, 5000, 1)
    many.deliver(pack(run), 2, 4000, list(range(1, 1001)))
    assert many.page(run[10], run[12], 5) == [
        (run[10], 4000, 2, 11),
        (run[11], 4000, 2, 12),
        (run[12], 4000, 2, 13),
    ]
    many.remove(pack(run[1:]))
    assert len(many) == 20_001
