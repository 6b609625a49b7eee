"""Machine: the queue beside a model of it, in random order, with time in the test's hands.

The store lies on the simulated disk, so a crash is: leave it as it is and open a copy of the disk; under `always`
also a power cut. After every step the stream, its group and stats() are compared with the model.

`test_queue_stateful.py` runs it for the embedded queue, `tests/client/faces/test_faces_stateful.py` for other faces.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests import inside
from tests.jobs.controls import Controls
from tests.jobs.model import (
    CANCELLED,
    DEAD,
    DONE,
    FLIGHT,
    GONE,
    PAUSED,
    SLACK,
    UNFINISHED,
    WAITING,
    Model,
    Task,
)

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.dedup import MODES, UNTIL_DONE
from tidelog.jobs.work.fetch import FAIR
from tidelog.jobs.work.leases import leases_of

ROOT = Path("/store")
RETRY_AFTER = 8.0
DEDUP_SURE = 80_000.0  # seconds for which an ID is certainly remembered
WORKERS = ("anna", "ben", "cleo")
MOVES = (0.001, 0.5, RETRY_AFTER / 3, RETRY_AFTER - 0.1, RETRY_AFTER, 13.0, 70.0, 3600.0, 100_000.0)
JUMPS = (-1e6, -7200.0, -60.0, -0.5, 0.5, 60.0, 7200.0, 1e6)
HEADERS: tuple[dict[str, str], ...] = ({}, {"trace": "a1"}, {"trace": "ü", "empty": ""})

POLICIES = (None, None, (1, 1.0, "constant"), (6, 3.0, "linear"), (2, 20.0, "constant"))
LANES = (0, 2, 9)  # the priorities that are used

picks = st.integers(0, 1 << 16)
priorities = st.sampled_from((0, 0, *LANES))
keys = st.sampled_from((None, "k", "k", "l"))
seconds = st.sampled_from(MOVES)
queues = st.sampled_from((0, 0, 0, 1))
workers = st.sampled_from(WORKERS)


class Held:
    """A Job object in somebody's hands, numbered, so that the model refers to it without keeping it alive."""

    def __init__(self, number: int, job: Any, task: Task, queue: int) -> None:
        self.number, self.job, self.task, self.queue = number, job, task, queue


class Machine(Controls, RuleBasedStateMachine):
    """Two queues of one store; jobs of the first lead to jobs of the second.

    db       the store, embedded
    store    the face of it whose queues are tried
    """

    jumpy = False

    @initialize(policy=st.sampled_from(("no", "always")), seed=picks, shape=picks)
    def start(self, policy: str, seed: int, shape: int) -> None:
        self.clock = testing.Clock()
        self.policy, self.rng = policy, random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.jumped = False
        self.number = self.holders = 0
        self.held: list[Held] = []
        self.stale: list[Held] = []
        self.models = [
            Model("jobs", RETRY_AFTER, 3 + shape % 2, 0, (None, 1, 2)[shape // 8 % 3]),
            Model(
                *("more", RETRY_AFTER * (1, 1000)[shape // 2 % 2], 5, (0, 3)[shape // 4 % 2]),
                (None, 1)[shape // 24 % 2],
            ),
        ]
        self.open()

    def open(self) -> None:
        self.db: Any = tidelog.open(ROOT, fsync=self.policy, disk=self.disk, clock=self.clock)
        # Nothing tells the model which worker is in which process.
        leases_of(inside.core(self.db)).alone.apart = True
        self.store: Any = self.connect()
        self.queues = [
            self.store.queue(
                model.name,
                max_deliveries=model.max_deliveries,
                retry_after=model.retry_after,
                keep=model.keep,
                concurrency_per_key=model.per_key,
            )
            for model in self.models
        ]

    def connect(self) -> Any:
        """A face of the store that was opened."""
        return self.db

    def close(self) -> None:
        """The counterpart of `open`."""
        self.db.close()

    def now(self) -> float:
        return self.clock.monotonic()

    def pass_time(self, seconds: float) -> None:
        """So much time passes, and the workers that hold jobs have said that they live."""
        self.clock.advance(seconds)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.held.clear()
            self.stale.clear()
            self.close()

    # --- putting

    def fresh(self) -> dict[str, int]:
        self.number += 1
        return {"n": self.number}

    @rule(
        at=queues,
        headers=st.sampled_from(HEADERS),
        priority=priorities,
        key=keys,
        retry=st.sampled_from(POLICIES),
    )
    def put(
        self,
        at: int,
        headers: dict[str, str],
        priority: int,
        key: str | None,
        retry: tuple[int, float, str] | None,
    ) -> None:
        value, text = self.fresh(), None
        if retry is not None:
            text = "max=%d base=%g backoff=%s jitter=no" % retry
        more = {"priority": priority, "key": key}
        id = self.queues[at].put(value, headers=headers or None, retry=text, **more)
        self.models[at].add(id, value, headers=headers, retry=retry, **more)

    @rule(at=queues, name=st.sampled_from("xyz"), priority=priorities)
    def put_once(self, at: int, name: str, priority: int) -> None:
        model, value = self.models[at], self.fresh()
        id = self.queues[at].put(value, dedup_id=name, priority=priority)
        known = model.dedup.get(name)
        if known is not None and id == known[0]:
            return
        sure = known is not None and not self.jumped and self.now() - known[1] < DEDUP_SURE
        assert not sure, "put twice within the time that a dedup_id is remembered"
        model.add(id, value, priority=priority)
        model.dedup[name] = id, self.now()

    @rule(
        at=queues, name=st.sampled_from("uv"), mode=st.sampled_from(MODES[1:]), priority=priorities
    )
    def put_held(self, at: int, name: str, mode: str, priority: int) -> None:
        model, value, pending = self.models[at], self.fresh(), self.pending(at)
        old = model.tasks.get(model.held.get(name, ""))
        id = self.queues[at].put(value, dedup_id=name, dedup=mode, priority=priority)
        if mode == UNTIL_DONE and old is not None:
            if id == old.id:
                # An acknowledgement that is gathered is not in the log yet.
                assert old.where in {*UNFINISHED, DONE}, (
                    f"{id} is {old.where}, and has its dedup ID"
                )
                return
            free = old.where not in UNFINISHED or model.may_die(old, self.now())
            assert free, f"{old.id} is {old.where}, and has lost its dedup ID"
        elif old is not None and old.where in UNFINISHED:
            owner, count = pending.get(old.id, ("", 0))
            there = bool(self.db.xrange(self.lane(at, old.priority), old.id, old.id))
            assert there == bool(owner or count), f"{old.id} has begun, or it has not"
            if not there:
                old.where = GONE
        model.add(id, value, priority=priority)
        model.held[name] = id

    @rule(at=queues, count=st.sampled_from((0, 1, 5, 40)), priority=priorities, key=keys)
    def put_many(self, at: int, count: int, priority: int, key: str | None) -> None:
        values = [self.fresh() for _ in range(count)]
        assert self.queues[at].put_many(iter(values), priority=priority, key=key) == count
        self.learn(at, values, priority, key)

    @rule(at=queues, poison=st.sampled_from((False, False, True)))
    def put_by_another_client(self, at: int, poison: bool) -> None:
        model = self.models[at]
        if poison:
            fields: dict[str, str | bytes] = self.rng.choice([{"value": b"\xff{"}, {"other": "x"}])
            id: Any = self.db.xadd(model.name, fields)
            model.add(id.decode(), None, poison=True)
        else:
            value = self.fresh()
            id = self.db.xadd(model.name, {"value": b'{"n": %d}' % value["n"]})
            model.add(id.decode(), value)

    def lane(self, at: int, priority: int) -> str:
        """The key of the stream of a priority."""
        name = self.models[at].name
        return f"{name}:priority:{priority}" if priority else name

    def new_in(self, at: int, priority: int) -> list[tuple[str, dict[bytes, bytes]]]:
        """The entries of a lane that the model does not know."""
        return [
            (id.decode(), fields)
            for id, fields in self.db.xrange(self.lane(at, priority))
            if id.decode() not in self.models[at].tasks
        ]

    def learn(
        self, at: int, values: list[dict[str, int]], priority: int = 0, key: str | None = None
    ) -> None:
        """Jobs that came without their IDs being told: they are the newest of the stream, in this order."""
        model, new = self.models[at], self.new_in(at, priority)
        assert len(new) == len(values)
        for (id, fields), value in zip(new, values, strict=True):
            assert b"%d}" % value["n"] in fields[b"value"]
            model.add(id, value, priority=priority, key=key)

    # --- fetching

    @rule(at=queues, worker=workers, limit=st.booleans())
    def get(self, at: int, worker: str, limit: bool) -> None:
        time_limit = RETRY_AFTER * 1.5 if limit else None
        if limit:
            with self.queues[at].consume(worker, block=0, time_limit=time_limit) as consumer:
                job = next(iter(consumer), None)
        else:
            job = self.queues[at].get(worker, block=0)
        self.got(at, worker, job, time_limit)

    def got(
        self, at: int, worker: str, job: Any, time_limit: float | None = None, ahead: bool = False
    ) -> Held | None:
        model = self.models[at]
        freed = self.bury(at, worker)  # first, since the end of a job frees its key
        if model.stopped:
            assert job is None, f"{model.name} is paused, and delivered {job}"
            return None
        if job is None:
            left = [t for t in model.must_have_got(worker, self.now()) if t.where in UNFINISHED]
            assert not left, f"{worker} found nothing, and there was {left[0]}"
            model.looked(self.now())
            return None
        self.holders += 1
        task = model.delivered(job, self.holders, worker, self.now(), time_limit, ahead, freed)
        if model.skipped and not ahead:
            turns = self.db.queue(model.name)._engine.known.turns
            assert turns and turns % FAIR == 0, f"{task} came before jobs of a higher priority"
        model.looked(self.now())
        held = Held(self.holders, job, task, at)
        self.held.append(held)
        return held

    @precondition(lambda self: any(t.latest < inf for m in self.models for t in m.unfinished()))
    @rule(pick=picks, late=st.booleans(), worker=workers)
    def get_what_is_due(self, pick: int, late: bool, worker: str) -> None:
        """Right before a job may move, nobody gets it; right after it must have, it comes first."""
        moving = [
            (at, t) for at, m in enumerate(self.models) for t in m.unfinished() if t.latest < inf
        ]
        at, task = moving[pick % len(moving)]
        when = task.latest + 0.01 if late else task.earliest - 0.02
        self.pass_time(max(0.0, when - self.now()))
        self.get(at, worker, False)

    @rule(
        at=queues,
        worker=workers,
        batch=st.integers(1, 7),
        ways=st.lists(st.sampled_from("ack ok raise nack hold done".split()), max_size=9),
    )
    def consume(self, at: int, worker: str, batch: int, ways: list[str]) -> None:
        """A loop as workers have it, left in the middle."""
        model = self.models[at]
        with self.queues[at].consume(worker, batch, 0) as consumer:
            assert consumer.worker == worker
            for way in ways:
                job = next(consumer, None)
                held = self.got(at, worker, job, ahead=batch > 1)
                if held is None:
                    break
                task = held.task
                if way == "ok":
                    with held.job:
                        pass
                elif way == "ack":
                    assert held.job.ack() is True
                elif way == "raise":
                    with held.job:
                        raise ValueError("on purpose")
                elif way == "nack":
                    assert held.job.nack("again", delay=2.0) is True
                elif way == "done":
                    value = self.fresh()
                    assert held.job.done_and(self.queues[1].new(value)) is True
                    self.learn(1, [value])
                if way in ("ok", "ack", "done"):
                    model.done(task)
                elif way == "raise":
                    model.nacked(task, "on purpose", None, self.now())
                elif way == "nack":
                    model.nacked(task, "again", 2.0, self.now())
                if way != "hold":
                    self.settle(held)
                elif batch > 1:  # the end of its block would be gathered
                    self.answer(held, held.job.release, lambda: model.released_(task, self.now()))
                    self.settle(held)
                del job, held
        self.take_back(at, worker, batch)
        self.bury(at, worker)

    def take_back(self, at: int, worker: str, batch: int) -> None:
        """Jobs that were fetched ahead are nobody's now: behind the group's position, but not in the worker's hands."""
        model = self.models[at]
        rows = self.pending(at)
        back = 0
        for task in model.unfinished():
            row = rows.get(task.id)
            if task.where == WAITING and self.is_set_aside(at, task, row):
                continue
            if row is not None and row[0] == "" and task.where in (WAITING, FLIGHT):
                if task.where == FLIGHT:
                    own = task.holder is None and task.owner == worker
                    assert own or self.now() >= task.earliest - 0.005, f"{task} was taken away"
                model.given_back(task, self.now())
                back += 1
        assert back < batch

    def is_set_aside(self, at: int, task: Task, row: tuple[str, int] | None) -> bool:
        """Whether a waiting job is pending because the group has passed over it."""
        return bool(self.models[at].per_key and task.key and row == ("", 0))

    def bury(self, at: int, worker: str) -> set[str]:
        """A fetch may have moved jobs to the dead: those that were delivered too often, or cannot be decoded. Returns
        their keys.
        """
        model, keys = self.models[at], set[str]()
        for dead in self.queues[at].dead.list():
            if dead.id in model.deaths:
                continue
            task = model.tasks[dead.original_id]
            if task.where in UNFINISHED:
                assert model.may_die(task, self.now()), f"{task} died"
                if not task.poison and task.holder is None and task.owner != worker:
                    assert self.now() >= task.earliest - 0.005, f"{task} died too early"
                model.dies(task)
                if task.key is not None:
                    keys.add(task.key)
        return keys

    def settle(self, held: Held) -> None:
        if held in self.held:
            self.held.remove(held)
        self.stale.append(held)

    # --- what workers do with what they have

    def one(self, pick: int) -> Held:
        return self.held[pick % len(self.held)]

    def answer(self, held: Held, call: Callable[[], bool], then: Callable[[], None]) -> bool:
        """An answer counts if the job is still this worker's, and only then."""
        model = self.models[held.queue]
        right = model.holds(held.task, held.number)
        note(f"{held.task} answered by {held.job.worker}: {right}")
        assert call() is right
        if right:
            then()
        return right

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def ack(self, pick: int) -> None:
        held = self.one(pick)
        model = self.models[held.queue]
        self.answer(held, held.job.ack, lambda: model.done(held.task))
        self.settle(held)

    @precondition(lambda self: self.held)
    @rule(pick=picks, delay=st.sampled_from((None, None, 0, 0.2, 40.0)))
    def nack(self, pick: int, delay: float | None) -> None:
        held, now = self.one(pick), self.now()
        model = self.models[held.queue]
        self.answer(
            held,
            lambda: held.job.nack("no", delay=delay),
            lambda: model.nacked(held.task, "no", delay, now),
        )
        self.settle(held)

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def fail(self, pick: int) -> None:
        held = self.one(pick)
        model = self.models[held.queue]
        if self.answer(held, lambda: held.job.fail("beyond help"), lambda: model.dies(held.task)):
            dead = self.queues[held.queue].dead.list()[-1]
            assert "beyond help" in dead.reason and dead.original_id == held.task.id
        self.settle(held)

    @precondition(lambda self: self.held)
    @rule(pick=picks, by=st.sampled_from((0.1, RETRY_AFTER, 100.0)))
    def extend(self, pick: int, by: float) -> None:
        held, now = self.one(pick), self.now()
        model = self.models[held.queue]
        self.answer(held, lambda: held.job.extend(by), lambda: model.extended(held.task, by, now))

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def release(self, pick: int) -> None:
        held, now = self.one(pick), self.now()
        model = self.models[held.queue]
        self.answer(held, held.job.release, lambda: model.released_(held.task, now))
        self.settle(held)

    @precondition(lambda self: self.held)
    @rule(pick=picks, to=st.lists(st.tuples(st.integers(0, 1), priorities), max_size=3))
    def done_and(self, pick: int, to: list[tuple[int, int]]) -> None:
        held = self.one(pick)
        model = self.models[held.queue]
        values = [self.fresh() for _ in to]
        puts = [
            self.queues[at].new(value, priority=priority)
            for (at, priority), value in zip(to, values, strict=True)
        ]
        done = self.answer(held, lambda: held.job.done_and(*puts), lambda: model.done(held.task))
        for at in (0, 1):
            for priority in LANES:
                place = at, priority
                mine = [value for to_, value in zip(to, values, strict=True) if to_ == place]
                self.learn(at, mine if done else [], priority)
        self.settle(held)

    @precondition(lambda self: self.held)
    @rule(
        pick=picks,
        error=st.sampled_from((None, ValueError, KeyboardInterrupt, GeneratorExit, SystemExit)),
    )
    def work_in_a_block(self, pick: int, error: type[BaseException] | None) -> None:
        held, now = self.one(pick), self.now()
        model, task = self.models[held.queue], held.task
        right = model.holds(task, held.number)
        raised: BaseException | None = None
        try:
            with held.job:
                if error is not None:
                    raise error("on purpose")
        except BaseException as caught:
            raised = caught
        assert (raised is None) == (error in (None, ValueError)), raised
        del raised
        if right and error is None:
            model.done(task)
        elif right and error in (KeyboardInterrupt, GeneratorExit):
            model.released_(task, now)
        elif right:
            model.nacked(task, "on purpose", None, now)
        self.settle(held)

    @precondition(lambda self: self.stale)
    @rule(pick=picks, way=st.integers(0, 5))
    def a_late_answer(self, pick: int, way: int) -> None:
        """A worker that lost a job, or gave it away, cannot finish or extend it any more."""
        held = self.stale.pop(pick % len(self.stale))
        job, put = held.job, self.queues[1].new(self.fresh())
        calls: list[Callable[[], bool]] = [
            job.ack,
            lambda: job.nack("late"),
            lambda: job.fail("late"),
            lambda: job.extend(1000),
            job.release,
            lambda: job.done_and(put),
        ]
        # Saying once more that it is done does no harm, if it was.
        assert calls[way]() is (way == 0 and job.state == "acked")

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def drop(self, pick: int) -> None:
        """A worker forgets its job without a word."""
        held = self.held.pop(pick % len(self.held))
        model, task = self.models[held.queue], held.task
        if task.holder == held.number:
            model.dropped(task, self.now())
        del held
        gc.collect()

    @precondition(lambda self: any(m.of(FLIGHT) for m in self.models))
    @rule(pick=picks)
    def steal(self, pick: int) -> None:
        """Another client claims a job by force."""
        all_ = [(at, t) for at, m in enumerate(self.models) for t in m.of(FLIGHT)]
        at, task = all_[pick % len(all_)]
        model = self.models[at]
        ((id, _),) = self.db.xclaim(self.lane(at, task.priority), "workers", "thief", 0, [task.id])
        assert id.decode() == task.id
        model.stolen(task, "thief", self.now())

    # --- time

    @rule(by=seconds)
    def advance(self, by: float) -> None:
        self.pass_time(by)

    @precondition(lambda self: self.jumpy)
    @rule(by=st.sampled_from(JUMPS))
    def jump(self, by: float) -> None:
        self.clock.jump(by)
        self.jumped = True
        for model in self.models:
            model.wall_jumped(self.now())

    # --- ends

    def forget_all(self) -> None:
        self.held.clear()
        self.stale.clear()
        for model in self.models:
            model.process_died(self.now(), self.jumped)

    @rule(power=st.booleans(), at=queues, worker=workers)
    def crash(self, power: bool, at: int, worker: str) -> None:
        """kill -9, or a power cut where every answer has waited for the disk. Then a worker comes back."""
        if power and self.policy == "always":
            left = self.disk.power_loss(self.rng)
        else:
            left = self.disk.killed()
        self.forget_all()
        self.close()
        self.disk = left
        self.open()
        self.get(at, worker, False)

    @rule()
    def close_and_open(self) -> None:
        self.close()
        self.forget_all()
        self.open()

    # --- the dead

    @rule(at=queues, way=st.sampled_from("one some all".split()), dry=st.booleans())
    def redrive(self, at: int, way: str, dry: bool) -> None:
        model, queue = self.models[at], self.queues[at]
        listed = queue.dead.list()
        chosen = [d for d in listed if way == "all" or d.id.endswith(("0", "2", "4"))]
        if way == "one":
            chosen = chosen[:1]
            if not chosen:
                return
            count = queue.dead.redrive(chosen[0].id, dry_run=dry)
        elif way == "some":
            ids = {d.id for d in chosen}
            count = queue.dead.redrive(where=lambda d: d.id in ids, dry_run=dry)
        else:
            count = queue.dead.redrive(dry_run=dry)
        assert count == len(chosen)
        if dry:
            return
        for dead in chosen:
            model.deaths.pop(dead.id).where = GONE
        for priority in LANES:
            new = self.new_in(at, priority)
            back = [d for d in chosen if model.tasks[d.original_id].priority == priority]
            assert len(new) == len(back)
            for (id, fields), dead in zip(new, back, strict=True):
                old = model.tasks[dead.original_id]
                origin = fields[b"origin"].decode()
                assert origin in (old.id, old.origin)
                more: dict[str, Any] = {
                    "headers": old.headers,
                    "poison": old.poison,
                    "priority": priority,
                }
                more["key"], more["retry"] = old.key, old.retry
                more["told_progress"] = old.told_progress
                model.add(id, old.value, origin=origin, **more)

    @rule(at=queues, way=st.sampled_from("one old all waiting".split()), pick=picks)
    def purge(self, at: int, way: str, pick: int) -> None:
        model, queue = self.models[at], self.queues[at]
        if pick % 3:  # seldom: little happens to a queue that is always empty
            return
        if way == "waiting":
            self.purge_waiting(at)
            return
        listed = queue.dead.list()
        if way == "one":
            if not listed:
                return
            gone = [listed[-1]]
            count = queue.dead.purge([listed[-1].id])
        elif way == "old":
            if self.jumped:
                return
            now = self.clock.now()
            gone = [d for d in listed if (now - d.died_at).total_seconds() > 60]
            count = queue.dead.purge(older_than=60)
        else:
            gone, count = listed, queue.dead.purge()
        assert count == len(gone)
        for dead in gone:
            model.removed(model.deaths.pop(dead.id))

    def purge_waiting(self, at: int) -> None:
        model = self.models[at]
        gone = [task for task in model.unfinished() if task.where != FLIGHT]
        assert self.queues[at].purge() == len(gone)
        for task in gone:
            model.removed(task)

    # --- what must hold after every step

    def pending(self, at: int) -> dict[str, tuple[str, int]]:
        found = {}
        for name in (self.lane(at, priority) for priority in LANES):
            if self.db.exists(name) and self.db.xinfo_groups(name):
                for row in self.db.xpending_range(name, "workers", "-", "+", 100_000):
                    held = row["consumer"].decode(), row["times_delivered"]
                    found[row["message_id"].decode()] = held
        return found

    @invariant()
    def nothing_is_lost(self) -> None:
        if not hasattr(self, "db"):
            return
        for at in (0, 1):
            self.compare(at)

    def compare(self, at: int) -> None:
        model, queue = self.models[at], self.queues[at]
        lanes = [self.lane(at, priority) for priority in LANES]
        entries = {id.decode() for lane in lanes for id, _ in self.db.xrange(lane)}
        unfinished = {task.id for task in model.unfinished()}
        assert unfinished <= entries, f"lost: {unfinished - entries}"
        kept = entries - unfinished
        assert all(model.tasks[id].where in (DONE, DEAD, GONE, CANCELLED) for id in kept)
        if model.keep == 0:
            assert not kept, f"not gone with their ack: {kept}"
        pending = self.pending(at)
        for task in model.unfinished():
            row = pending.pop(task.id, None)
            if task.where == WAITING:
                aside = self.is_set_aside(at, task, row)
                assert row is None or aside, f"{task}, and pending as {row}"
            elif task.where == FLIGHT:
                assert row == (task.owner, task.deliveries), f"{task}, and pending as {row}"
            else:
                assert row == ("", task.deliveries), f"{task}, and pending as {row}"
        assert not pending
        holds = [fields for lane in lanes for _, fields in self.db.xrange(f"{lane}:holds")]
        held = [fields[b"job"].decode() for fields in holds]
        assert len(held) == len(set(held)), "held back twice"
        for id in held:
            task = model.tasks[id]
            assert task.where == PAUSED or (task.where == FLIGHT and task.kept > -inf), task
        self.compare_dead(at)
        self.look(at)
        self.compare_stats(at, len(kept))
        assert len(queue) == len(unfinished)

    def compare_dead(self, at: int) -> None:
        model = self.models[at]
        listed = self.queues[at].dead.list()
        for dead in listed:
            if dead.id not in model.deaths:
                task = model.tasks[dead.original_id]
                assert task.where == DEAD and task not in model.deaths.values(), f"{task} died"
                model.deaths[dead.id] = task
                assert dead.codec == "json" and dead.reason
                assert dict(dead.headers) == task.headers and dead.priority == task.priority
                assert dead.key == task.key
                assert int(dead.enqueued_at.timestamp() * 1000 + 0.5) == task.order[0]
                if task.poison:
                    with pytest.raises(tidelog.DecodeError):
                        dead.value
                else:
                    assert dead.value == task.value
                    assert dead.deliveries == task.deliveries
                    assert task.told <= set(dead.workers)
                    errors = iter(error.error for error in dead.errors)
                    assert all(any(why in error for error in errors) for why in task.nacks)
        assert [dead.id for dead in listed] == list(model.deaths)
        buried = {task.id for task in model.deaths.values()}
        for task in model.of(DEAD):
            assert task.id in buried, f"{task} is nowhere"

    def compare_stats(self, at: int, kept: int) -> None:
        model = self.models[at]
        stats = self.queues[at].stats()
        assert (stats.name, stats.group) == (model.name, "workers")
        assert stats.depth == len(model.unfinished())
        paused, now = model.of(PAUSED), self.now()
        due = stats.waiting - len(model.of(WAITING))  # those whose pause is over wait, too
        least = sum(now >= task.latest for task in paused)
        assert least <= due <= sum(now >= task.earliest - SLACK for task in paused)
        assert stats.paused == len(paused) - due
        assert sum(stats.by_priority.values()) == stats.waiting
        assert list(stats.by_priority) == sorted(stats.by_priority, reverse=True)
        flight: dict[str, int] = {}
        for task in model.of(FLIGHT):
            assert task.owner is not None
            flight[task.owner] = flight.get(task.owner, 0) + 1
        assert {k: v for k, v in stats.in_flight.items() if v} == flight
        assert stats.dead == len(model.deaths)
        assert stats.failures >= min(model.failures, 900)
        assert stats.kept == kept and stats.cancelled == model.cancels
        if model.unfinished():
            assert stats.oldest_seconds is not None and stats.oldest_seconds >= 0
        else:
            assert stats.oldest_seconds is None


class JumpyMachine(Machine):
    """The same, and the wall clock jumps now and then."""

    jumpy = True


def run(machine: type[Machine], examples: int, steps: int, *more: Phase) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, *more),
        ),
    )
