"""LaterMachine: delayed jobs beside a model of them, in random order, with time in the test's hands.

The store lies on the simulated disk, so a crash is: leave it as it is and open a copy of the disk; under `always` also
a power cut. A job is delivered once, not before its time, and a worker that finds nothing leaves none that is due.

`test_later_stateful.py` runs it for the embedded queue, `tests/client/faces/test_faces_stateful.py` for other faces.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk

ROOT = Path("/store")
MOVES = (0.001, 0.5, 3.0, 10.0, 61.0, 3600.0)
SLACK = 0.005  # times are stored in whole milliseconds

picks = st.integers(0, 1 << 16)
delays = st.sampled_from((0.0, 0.002, 1.0, 5.0, 5.0, 60.0, 7200.0, 86_400.0))


class LaterMachine(RuleBasedStateMachine):
    """One queue, one worker that finishes what it gets, one schedule.

    db       the store, embedded
    store    the face of it whose queues are tried
    """

    @initialize(policy=st.sampled_from(("no", "always")), seed=picks)
    def start(self, policy: str, seed: int) -> None:
        self.clock, self.dice = testing.Clock(), random.Random(seed)
        self.disk, self.policy = SimulatedDisk(seed), policy
        self.number = 0
        self.later: dict[str, tuple[Any, float]] = {}  # ID -> value, when it is due
        self.now_jobs: list[Any] = []  # values that are due in the order of their puts
        self.limits: dict[Any, float] = {}  # value -> until when it may be delivered
        self.ticks: list[str] = []
        self.open()
        self.store.schedule("poll", every=60, queue="ticks", catch_up="all")
        self.began = self.clock.now()

    def open(self) -> None:
        self.db: Any = tidelog.open(ROOT, fsync=self.policy, disk=self.disk, clock=self.clock)
        self.store: Any = self.connect()
        self.queue = self.store.queue("jobs", retry_after=5, max_deliveries=1000)

    def connect(self) -> Any:
        """A face of the store that was opened."""
        return self.db

    def close(self) -> None:
        """The counterpart of `open`."""
        self.db.close()

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.close()

    def now(self) -> float:
        return self.clock.monotonic()

    def fresh(self) -> int:
        self.number += 1
        return self.number

    @rule(delay=delays, ttl=st.sampled_from((None, None, 30.0)), once=st.booleans())
    def put(self, delay: float, ttl: float | None, once: bool) -> None:
        value = self.fresh()
        dedup_id = f"d{value}" if once else None
        id = self.queue.put(value, delay=delay, ttl=ttl, dedup_id=dedup_id)
        if once:
            assert self.queue.put("again", delay=1, dedup_id=dedup_id) == id
        if ttl is not None:
            self.limits[value] = self.now() + delay + ttl
        if delay:
            self.later[id] = value, self.now() + delay
        else:
            self.now_jobs.append(value)

    @rule(delay=delays, count=st.integers(1, 5))
    def put_many(self, delay: float, count: int) -> None:
        values = [self.fresh() for _ in range(count)]
        self.queue.put_many(values, delay=delay)
        if not delay:
            self.now_jobs += values
            return
        known = {job.value: job.id for job in self.queue.peek(10_000, scheduled=True)}
        self.later.update({known[value]: (value, self.now() + delay) for value in values})

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        if self.later:
            id = sorted(self.later)[pick % len(self.later)]
            assert self.queue.cancel(id)
            del self.later[id]

    @rule(pick=picks, delay=delays)
    def move(self, pick: int, delay: float) -> None:
        if self.later:
            id = sorted(self.later)[pick % len(self.later)]
            assert self.queue.move(id, delay=delay)
            value, _ = self.later[id]
            self.later[id] = value, self.now() + delay

    @rule(seconds=st.sampled_from(MOVES))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(batch=st.sampled_from((1, 3, 100)))
    def work(self, batch: int) -> None:
        got = []
        for job in self.queue.consume("anna", batch, block=0):
            with job:
                got.append((job.value, job.origin))
        now = self.now()
        expected = list(self.now_jobs)
        for id, (value, due) in sorted(self.later.items(), key=lambda each: each[1][1]):
            if due <= now + SLACK:
                expected.append(value)
        sure = [v for v in expected if self.limits.get(v, now + 1) > now + SLACK]
        values = [value for value, _ in got]
        assert len(set(values)) == len(values), "delivered twice"
        assert set(values) <= set(expected), "delivered, and not due"
        almost = {v for v, due in self.later.values() if due > now - SLACK}
        assert set(sure) - set(values) <= almost, "due, and not delivered"
        at_once = [value for value in values if value in self.now_jobs]
        assert at_once == [value for value in self.now_jobs if value in at_once]
        by_value = {value: id for id, (value, _) in self.later.items()}
        for value, origin in got:
            assert origin == by_value.get(value)
        dues = [self.later[origin][1] for _, origin in got if origin is not None]
        assert all(a <= b + SLACK for a, b in zip(dues, dues[1:])), "not in the order of times"
        self.now_jobs.clear()
        gone = {*values, *(dead.value for dead in self.queue.dead)}
        for value in gone & set(by_value):
            del self.later[by_value[value]]

    @rule()
    def tick(self) -> None:
        for job in self.store.queue("ticks").consume("anna", 10, block=0):
            with job:
                self.ticks.append(job.headers["tick"])
        passed = int((self.clock.now() - self.began).total_seconds() + SLACK) // 60
        assert len(set(self.ticks)) == len(self.ticks), "a tick was made twice"
        assert passed - 1 <= len(self.ticks) <= passed

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        lossy = power and self.policy == "always"
        left = self.disk.power_loss(self.dice) if lossy else self.disk.killed()
        self.close()
        self.disk = left
        self.open()

    @invariant()
    def the_figures_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        stats, now = self.queue.stats(), self.now()
        dues = [due for _, due in self.later.values()]
        assert sum(due > now + SLACK for due in dues) <= stats.scheduled
        assert stats.scheduled <= sum(due > now - SLACK for due in dues)
        shown = [job.id for job in self.queue.peek(10_000, scheduled=True)]
        assert set(shown) <= set(self.later) and len(shown) == stats.scheduled


def run(machine: type[LaterMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
