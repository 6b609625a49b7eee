"""Queues: workers put, take and end jobs while the store is recorded, and after a crash no job is lost, or done twice.

The time stands still, so leases do not end and pauses are not over, and all IDs are known in advance. A life begins
with what a crash left of the one before: a worker gets the jobs again that its name held.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tidelog.api.queue.face import Queue
from tidelog.api.queue.job import Job
from tidelog.api.sync import Store
from tidelog.crash.asking import PAD
from tidelog.crash.errors import BenchError
from tidelog.crash.jobs import (
    DELIVERIES_MAX,
    FIRST,
    ID,
    SEQUENCE_BITS,
    Jobs,
    Limits,
    Queued,
    number,
    priority,
)
from tidelog.crash.lives import Step, recorded
from tidelog.crash.model import Contents
from tidelog.crash.oracle import Served
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Stage, Still, content_of, keys_of, open_on
from tidelog.crash.trace import Trace, Tree, Unit
from tidelog.crash.workloads import Life
from tidelog.engine.ids import parse
from tidelog.jobs.rows import EXPIRES, VALUE, WaitingJob, milliseconds
from tidelog.jobs.rules import SCHEDULES
from tidelog.jobs.work.leases import leases_of
from tidelog.jobs.work.ticks import tick_words

QUEUES: Final = "queues"
NAMES: Final = ("mails", "bills", "calls")
PLANS: Final = ("mailing", "billing", "calling")  # their schedules
HIGH: Final = 5  # the other priority than 0 that jobs of all queues but the first have
LANE: Final = b":priority:%d" % HIGH
ENDINGS: Final = (
    *(
        b":holds",
        b":failures",
        b":dead",
        b":cancels",
        b":later",
        LANE,
        LANE + b":holds",
        b":rate:workers",
    ),
)
RESULT: Final = b":result:"
WORKERS: Final = ("ann", "bob")
GROUP: Final = "workers"
MANY: Final = 1 << 30
# The second queue has limits. As the time stands still, its rate is the number of deliveries of all lives together. The
# third one does the jobs of a key one after the other.
LIMITS: Final = (Limits(), Limits(concurrency=3, rate=12), Limits(per_key=1))
KEYED: Final = 2
KEYS: Final = (b"", b"k", b"l")
EVERY_MS: Final = 60_000  # between the ticks of a schedule
STALE: Final = b"1"  # a time of expiry that is long over
LATER_S: Final = 600.0  # a pause that is not over in any life

# The steps, and how often each is drawn. The numbers are a queue, then a size, worker or count.
WEIGHTS: Final[dict[str, int]] = {
    "put": 18, "puts": 6, "once": 8, "take": 24, "finish": 12, "retry": 10, "fail": 4, "release": 4, "extend": 3,
    "follow": 6, "batch": 8, "redrive": 4, "bury": 1, "purge": 1, "set": 3, "sync": 8,
    "later": 8, "hasten": 6, "cancel": 3, "stale": 3, "answer": 8, "plan": 2, "overdue": 4,
    "urgent": 8, "keyed": 20,
}  # fmt: skip


class Stopped(Still):
    """A clock that stands still, also for those who wait."""

    manual = True

    @staticmethod
    def monotonic() -> float:
        return 86_400.0


def long(rng: random.Random, steps: int, *, checkpoints: bool) -> list[Step]:
    """A workload of random steps."""
    weights = {**WEIGHTS, "checkpoint": 10} if checkpoints else WEIGHTS
    found: list[Step] = []
    for name in rng.choices(list(weights), list(weights.values()), k=steps):
        queue = rng.randrange(len(NAMES))
        match name:
            case "put" | "set":
                found.append([name, queue, rng.choice((1, 60, 900))])
            case "later":
                found.append([name, queue, rng.choice((1, 60, 900)), rng.randrange(2)])
            case "puts":
                # Behind that many jobs without a key, no fetch would come to those that must wait.
                found.append([name, queue % KEYED, rng.randint(1, 40)])
            case "once" | "follow":
                found.append([name, queue, rng.randrange(4)])
            case "take" | "retry":
                found.append([name, queue, rng.randrange(2)])
            case "batch":
                count = rng.randint(2, 4)
                found.append([name, queue, rng.randrange(2), count, rng.randint(1, count)])
            case "overdue":
                found.append([name, queue, rng.randrange(3)])
            case "urgent":
                found.append([name, 1 + queue % 2])
            case "keyed":
                found.append([name, KEYED, rng.randrange(len(KEYS)), rng.randrange(2)])
            case "stale":
                # A fetch with keys goes on behind them in the same unit.
                found.append([name, queue % KEYED])
            case "sync" | "checkpoint":
                found.append([name])
            case _:
                found.append([name, queue])
    return found


class QueueLife(Life):
    """A store whose queues take the steps of a workload. Workers keep the jobs that they took and did not end."""

    def __init__(self, disk: RecordingDisk, root: Path, policy: str, units: list[Unit]) -> None:
        db = open_on(disk, root, policy, Stopped())
        super().__init__(db, policy, disk.promise, units, predicts=True)
        leases_of(db._core).alone.apart = True
        self._queues = [queue_of(db, name) for name in NAMES]
        self._taken: list[list[Job]] = [[] for _ in NAMES]

    def _contents(self) -> Contents:
        return contents_of(self.db)

    def _jobs(self, queue: int) -> Jobs:
        return self._model.queues.setdefault(NAMES[queue].encode(), Jobs())

    def _next(self, queue: int, count: int, lane: int = 0) -> list[bytes]:
        """The IDs of the next jobs of a queue that have this priority."""
        before = Still.ms, (lane << SEQUENCE_BITS) - 1
        ms, sequence = max(before, self._jobs(queue).last.get(lane, before))
        return [b"%d-%d" % (ms, sequence + n) for n in range(1, count + 1)]

    def _next_of(self, queue: int, lanes: list[int]) -> list[bytes]:
        """The IDs of the next jobs, which have these priorities."""
        new = {lane: iter(self._next(queue, len(lanes), lane)) for lane in lanes}
        return [next(new[lane]) for lane in lanes]

    def _value(self, nbytes: int) -> bytes:
        return b"%d " % len(self.units) + PAD[:nbytes]

    def _first(self, queue: int) -> Job | None:
        """The job that was taken first of those that did not end."""
        taken = self._taken[queue]
        return taken[0] if taken else None

    def _told(self, kept: object, unit: Unit) -> None:
        """A job ended. `kept`: whether its worker still had the lease."""
        if kept is not True:
            raise BenchError(f"without any crash, a worker lost its job: {unit}")
        self._done(unit)

    # --- steps

    def _put(self, queue: int, nbytes: int) -> None:
        self._put_one(queue, self._value(nbytes), b"")

    def _once(self, queue: int, number: int) -> None:
        """Put a job that may be known already."""
        self._put_one(queue, self._value(10), b"once%d" % number)

    def _urgent(self, queue: int) -> None:
        """Put a job of a higher priority."""
        self._put_one(queue, self._value(10), b"", HIGH)

    def _keyed(self, queue: int, key: int, high: int) -> None:
        """Put a job with a key, perhaps with a higher priority."""
        self._put_one(queue, self._value(10), b"", HIGH if high else 0, KEYS[key])

    def _put_one(
        self, queue: int, value: bytes, dedup: bytes, lane: int = 0, key: bytes = b""
    ) -> None:
        job_id = self._jobs(queue).known(dedup) or self._next(queue, 1, lane)[0]
        unit: Unit = [["put", NAMES[queue].encode(), job_id, value, dedup, key]]
        self._begin(unit)
        found = self._queues[queue].put(
            value, dedup_id=dedup.decode() or None, priority=lane, key=key.decode() or None
        )
        if found.encode() != job_id:
            raise BenchError(f"without any crash, a job got the ID {found} and not {job_id!r}")
        self._done(unit)

    def _puts(self, queue: int, count: int) -> None:
        values = [b"%d of %b" % (n, self._value(20)) for n in range(count)]
        ids = self._next(queue, count)
        key = NAMES[queue].encode()
        unit: Unit = [
            ["put", key, job_id, value, b"", b""] for job_id, value in zip(ids, values, strict=True)
        ]
        self._begin(unit)
        self._queues[queue].put_many(values)
        self._done(unit)

    def _following(self, queue: int, worker: str, count: int) -> tuple[list[bytes], list[Unit]]:
        """The jobs that a fetch must give, and the units that it is."""
        key, name, limits = NAMES[queue].encode(), worker.encode(), LIMITS[queue]
        held = {job.id.encode() for job in self._taken[queue]}
        found = self._jobs(queue).following(name, count, held, limits)
        units: list[Unit] = [
            [
                *(["abandon", key, name, job_id] for job_id in each.doomed),
                *(["expired", key, job_id] for job_id in each.stale),
                *(["aside", key, job_id] for job_id in each.passed),
                *(["take", key, name, job_id] for job_id in each.taken),
            ]
            for each in found
        ]
        taken = found[-1].taken
        if taken and limits.rate != math.inf:
            units[-1].append(["counted", key, len(taken)])
        return taken, units

    def _fetch(self, queue: int, worker: int, count: int, fetch: Callable[[], Job | None]) -> Any:
        """Fetch jobs. Returns (the first one, the IDs of all)."""
        self.unknown = None
        # Ticks and jobs that are due come first, each in a unit of its own. So the last units are known only then.
        arriving = self._jobs(queue).arriving()
        before = [*self._ticks(), *([[]] if arriving else [])]
        # All units are in the store when the call returns, and are told one by one.
        self._under_way = len(self.units) + len(before) + len(self._jobs(queue).jobs) + 2
        self._promise(self._under_way)
        # One fetch in ten begins with another lane. Which one that is, no model of the documentation can tell.
        self._queues[queue]._engine.known.turns = 0
        job = fetch()
        for unit in before:
            if not unit:
                lanes = [self._jobs(queue).delayed[job_id].priority for job_id in arriving]
                unit = [["arrive", NAMES[queue].encode(), self._next_of(queue, lanes)]]
            self._model.apply(unit)
            self.units.append(unit)
        ids, units = self._following(queue, WORKERS[worker], count)
        self._same_jobs([job] if job else [], ids[:1])
        for unit in units[:-1]:
            self._done(unit)
        self._under_way = 0
        self._done(units[-1])
        return job, ids

    def _ticks(self) -> list[Unit]:
        """The units of the ticks that are due, of the schedules of both queues."""
        found: list[tuple[int, Unit]] = []
        for queue, name in enumerate(NAMES):
            for plan, each in self._jobs(queue).plans.items():
                if each.next_ms > Still.ms:
                    continue
                ticks = range(each.next_ms, Still.ms + 1, EVERY_MS)
                new = iter(self._next(queue, len(ticks)))
                put = []
                for tick in ticks:
                    dedup = plan + b"@%d" % tick
                    put.append([dedup, self._jobs(queue).known(dedup) or next(new)])
                unit: Unit = [["tick", name.encode(), plan, put, ticks[-1] + EVERY_MS]]
                found.append((each.next_ms, unit))
        return [unit for _, unit in sorted(found, key=lambda each: each[0])]

    def _take(self, queue: int, worker: int) -> None:
        get = self._queues[queue].get
        job, _ = self._fetch(queue, worker, 1, lambda: get(WORKERS[worker], block=0))
        if job is not None:
            self._taken[queue].append(job)

    def _same_jobs(self, found: list[Job], ids: list[bytes]) -> None:
        if [job.id.encode() for job in found] != ids:
            raise BenchError(f"without any crash, the jobs {found} came, and not {ids}")

    def _ended(self, queue: int, *rest: Any) -> Unit:
        """The unit that ends the first job, which is no longer held."""
        job = self._taken[queue].pop(0)
        name, *more = rest
        return [[name, NAMES[queue].encode(), job.id.encode(), *more]]

    def _finish(self, queue: int) -> None:
        job = self._first(queue)
        if job is not None:
            unit = self._ended(queue, "done")
            self._begin(unit)
            self._told(job.ack(), unit)

    def _answer(self, queue: int) -> None:
        """End a job with a result, both or neither."""
        job = self._first(queue)
        if job is not None:
            result = b"result %d" % len(self.units)
            answer = ["answer", NAMES[queue].encode(), job.id.encode(), result]
            unit: Unit = [answer, *self._ended(queue, "done")]
            self._begin(unit)
            self._told(job.ack(result=result), unit)

    def _stale(self, queue: int) -> None:
        """Put a job that is too old to be delivered."""
        key, value = NAMES[queue].encode(), self._value(10)
        unit: Unit = [["stale", key, self._next(queue, 1)[0], value]]
        self._begin(unit)
        self.db.xadd(key, {VALUE: value, EXPIRES: STALE})
        self._done(unit)

    def _plan(self, queue: int) -> None:
        """Make a schedule that puts jobs into the queue."""
        name, plans = PLANS[queue], self._jobs(queue).plans
        if name.encode() not in plans:
            value = self._value(10)
            following = Still.ms + EVERY_MS
            unit: Unit = [["plan", NAMES[queue].encode(), name.encode(), value, following]]
            self._begin(unit)
            self.db.schedule(
                name,
                every=EVERY_MS / 1000,
                queue=NAMES[queue],
                value=value,
                catch_up="all",
                codec="bytes",
            )
            self._done(unit)

    def _overdue(self, queue: int, ticks: int) -> None:
        """Make a schedule tick: its next tick was some time ago, as after a time without workers."""
        name, tick = PLANS[queue].encode(), Still.ms - ticks * EVERY_MS
        plan = self._jobs(queue).plans.get(name)
        if plan is None:
            return
        unit: Unit = [["overdue", NAMES[queue].encode(), name, tick]]
        self._begin(unit)
        rows = self.db.xrange(SCHEDULES)
        entry = next(entry for entry, row in rows if row[b"name"] == name)
        self.db.execute_command(*tick_words(parse(entry), tick, plan.ticks))
        core = self.db._core
        leases_of(core).ticks_of(0).hear(core, tick, Still.ms)  # as the store does for its own
        self._done(unit)

    def _retry(self, queue: int, later: int) -> None:
        job = self._first(queue)
        if job is not None:
            error = "try %d" % len(self.units)
            unit = self._ended(queue, "retry", error.encode(), not later)
            self._begin(unit)
            self._told(job.nack(error, LATER_S if later else 0), unit)

    def _fail(self, queue: int) -> None:
        job = self._first(queue)
        if job is not None:
            unit = self._ended(queue, "fail", b"bad")
            self._begin(unit)
            self._told(job.fail("bad"), unit)

    def _release(self, queue: int) -> None:
        job = self._first(queue)
        if job is not None:
            unit = self._ended(queue, "release")
            self._begin(unit)
            self._told(job.release(), unit)

    def _extend(self, queue: int) -> None:
        job = self._first(queue)
        if job is not None:
            unit: Unit = [["extend", NAMES[queue].encode(), job.id.encode()]]
            self._begin(unit)
            self._told(job.extend(LATER_S), unit)

    def _follow(self, queue: int, number: int) -> None:
        """End a job and put the next one into another queue, both or neither."""
        job, other = self._first(queue), (queue + 1) % len(NAMES)
        if job is not None:
            value, dedup = self._value(10), b"once%d" % number
            job_id = self._jobs(other).known(dedup) or self._next(other, 1)[0]
            put = ["put", NAMES[other].encode(), job_id, value, dedup, b""]
            unit: Unit = [*self._ended(queue, "done"), put]
            self._begin(unit)
            following = self._queues[other].new(value, dedup_id=dedup.decode())
            self._told(job.done_and(following), unit)

    def _batch(self, queue: int, worker: int, count: int, used: int) -> None:
        """Fetch some jobs together, end some of them, and give the others back."""
        key = NAMES[queue].encode()
        with self._queues[queue].consume(WORKERS[worker], count, 0) as jobs:
            first, ids = self._fetch(queue, worker, count, lambda: next(jobs, None))
            if first is None:
                return
            used = min(used, len(ids))
            rest: Unit = [
                *(["done", key, job_id] for job_id in ids[:used]),
                *(["release", key, job_id] for job_id in ids[used:]),
            ]
            self._begin(rest)
            done = []
            for job in [first, *(next(jobs) for _ in range(used - 1))]:
                with job:
                    done.append(job)
        self._same_jobs(done, ids[:used])
        self._done(rest)

    def _later(self, queue: int, nbytes: int, high: int = 0) -> None:
        """Put a job that is due later than any life, perhaps with a higher priority."""
        value, lane = self._value(nbytes), HIGH if high and queue else 0
        key = KEYS[1] if queue == KEYED else b""
        self._begin(None)
        job_id = self._queues[queue].put(
            value, delay=LATER_S, priority=lane, key=key.decode() or None
        )
        self._done([["later", NAMES[queue].encode(), job_id.encode(), value, lane, key]])

    def _hasten(self, queue: int) -> None:
        """Make the last delayed job due."""
        self._change_delayed(
            queue, "hasten", lambda job_id: self._queues[queue].move(job_id, delay=0)
        )

    def _cancel(self, queue: int) -> None:
        """Cancel the last delayed job, or one that a worker has."""
        cancel, job = self._queues[queue].cancel, self._first(queue)
        if job is None or any(not each.due for each in self._jobs(queue).delayed.values()):
            self._change_delayed(queue, "cancel", cancel)
            return
        unit = self._ended(queue, "cancel")
        self._begin(unit)
        self._told(cancel(job.id), unit)
        if job.ack() or not job.cancelled:
            raise BenchError(
                f"without any crash, a worker may end a job that was cancelled: {unit}"
            )

    def _change_delayed(self, queue: int, name: str, change: Callable[[str], bool]) -> None:
        waiting = [i for i, job in self._jobs(queue).delayed.items() if not job.due]
        if waiting:
            unit: Unit = [[name, NAMES[queue].encode(), waiting[-1]]]
            self._begin(unit)
            self._told(change(waiting[-1].decode()), unit)

    def _redrive(self, queue: int) -> None:
        dead = self._jobs(queue).dead
        if dead:
            lanes = [priority(job_id) for job_id, _ in dead]
            unit: Unit = [["redrive", NAMES[queue].encode(), self._next_of(queue, lanes)]]
            self._begin(unit)
            self._queues[queue].dead.redrive()
            self._done(unit)

    def _bury(self, queue: int) -> None:
        unit: Unit = [["bury", NAMES[queue].encode()]]
        self._begin(unit)
        self._queues[queue].dead.purge()
        self._done(unit)

    def _purge(self, queue: int) -> None:
        jobs = self._jobs(queue)
        if jobs.delayed:  # they are deleted by further units
            return
        waiting = {priority(job_id) for job_id, job in jobs.jobs.items() if not job.worker}
        if len(waiting) < 2:  # the jobs of each priority are deleted by a unit of their own
            unit: Unit = [["purge", NAMES[queue].encode()]]
            self._begin(unit)
            self._queues[queue].purge()
            self._done(unit)


def queue_of(db: Store, name: str) -> Queue:
    """A queue with the options of these workloads."""
    limits = LIMITS[NAMES.index(name)]
    options: dict[str, Any] = {}
    if limits.concurrency != math.inf:
        options = {"concurrency": limits.concurrency, "rate": f"{limits.rate}/d"}
    if limits.per_key != math.inf:
        options["concurrency_per_key"] = limits.per_key
    return db.queue(
        name, GROUP, codec="bytes", max_deliveries=DELIVERIES_MAX, retry_after=3600, **options
    )


def contents_of(db: Store) -> Contents:
    """Everything that a store serves: its queues in the form of crash/jobs.py, and other keys as in crash/served.py."""
    found: Contents = {}
    keys = keys_of(db)
    names = [name.encode() for name in NAMES]
    for key in keys:
        ours = any(
            key in (name, *(name + ending for ending in ENDINGS)) or key.startswith(name + RESULT)
            for name in names
        )
        if not ours and key != SCHEDULES:
            found[key] = content_of(db, key)
    for name in names:
        queued = _queued(db, name, keys)
        if any(queued):
            found[name] = queued
    return found


def _queued(db: Store, name: bytes, keys: list[bytes]) -> Queued:
    queue = queue_of(db, name.decode())
    peeked = queue.peek(MANY)
    due = {job.id.encode() for job in peeked}
    pending: dict[bytes, Any] = {}
    entries: list[tuple[bytes, dict[bytes, bytes]]] = []
    held_back: set[bytes] = set()  # by a pause, or by a lease that was extended
    for lane in {name, name + LANE} & set(keys):
        entries += db.xrange(lane)
        held_back.update(fields[b"job"] for _, fields in db.xrange(lane + b":holds"))
        if db.xinfo_groups(lane):
            found = db.xpending_range(lane, GROUP, min="-", max="+", count=MANY)
            pending.update((each["message_id"], each) for each in found)
    entries.sort(key=lambda each: number(each[0]))
    places = [(lane, *place) for lane in (0, HIGH) if (place := _place(db, name, lane, keys))]
    jobs = [
        (
            job_id,
            fields[b"value"],
            fields.get(b"origin", b""),
            fields.get(b"key", b""),
            pending[job_id]["times_delivered"] if job_id in pending else 0,
            pending[job_id]["consumer"] if job_id in pending else b"",
            job_id in due,
            job_id in held_back and bool(job_id in pending and pending[job_id]["consumer"]),
        )
        for job_id, fields in entries
    ]
    failures = [
        (
            each.job_id.encode(),
            each.worker.encode(),
            each.deliveries,
            each.error.partition(":")[0].encode(),
        )
        for each in reversed(queue.failures(count=MANY))
    ]
    dead = [
        (each.original_id.encode(), each.raw, (each.key or "").encode(), each.deliveries)
        for each in queue.dead
    ]
    cancelled = [
        (row[b"id"], row[b"value"], row.get(b"key", b""), int(row[b"deliveries"]))
        for _, row in db.xrange(name + b":cancels")
    ]
    delayed = [
        *(_delayed(job, False) for job in queue.peek(MANY, scheduled=True)),
        *(_delayed(job, True) for job in peeked if job.id.encode() not in dict(entries)),
    ]
    delayed.sort(key=lambda each: number(each[0]))
    results = sorted(
        (key.removeprefix(name + RESULT), db.get(key))
        for key in keys
        if key.startswith(name + RESULT)
    )
    plans = [
        (each.name.encode(), each.raw, _ms(each.next_at), each.ticks)
        for each in db.schedules.list()
        if each.queue.encode() == name
    ]
    return (
        *(tuple(jobs), tuple(failures), tuple(dead), tuple(delayed)),
        *(tuple(results), tuple(plans), _counted(db, name), tuple(places)),
        tuple(cancelled),
    )


def _delayed(job: WaitingJob, due: bool) -> tuple[bytes, bytes, bool, int, bytes]:
    return job.id.encode(), job.raw, due, job.priority, (job.key or "").encode()


def _place(db: Store, name: bytes, lane: int, keys: list[bytes]) -> tuple[ID, ID] | None:
    """The last ID of the jobs of a priority, and the one up to which the group has come; None if there were no jobs."""
    key = name + LANE if lane else name
    last = number(db.xinfo_stream(key)["last-generated-id"]) if key in keys else FIRST
    if last == FIRST:
        return None
    groups = db.xinfo_groups(key)
    return last, number(groups[0]["last-delivered-id"]) if groups else FIRST


def _ms(at: datetime | None) -> int:
    return -1 if at is None else milliseconds(at)


def _counted(db: Store, name: bytes) -> int:
    """How many deliveries are counted against the rate of a queue."""
    stored = db.get(name + ENDINGS[-1])
    slices = stored.split()[1:] if isinstance(stored, bytes) else []
    return sum(int(each.partition(b":")[2]) for each in slices)


def record(
    stage: Stage,
    policy: str,
    steps: list[Step],
    about: dict[str, Any],
    base: Tree | None = None,
    before: list[Unit] | None = None,
) -> Trace:
    """Run a workload and record it. Raises BenchError if a queue is wrong without any crash."""

    def begin(disk: RecordingDisk, root: Path, units: list[Unit]) -> QueueLife:
        return QueueLife(disk, root, policy, units)

    return recorded(stage, policy, steps, about, base, before, begin)[0]


def serve(stage: Stage, image: Tree) -> Served:
    """Open the store that a crash left, and read its queues."""
    disk, root = stage.lay(image)
    try:
        with open_on(disk, root, "no", Stopped()) as db:
            return Served(contents_of(db))
    except Exception as error:  # whatever it is, a legal crash must not cause it
        return Served(None, f"{type(error).__name__}: {error}")
