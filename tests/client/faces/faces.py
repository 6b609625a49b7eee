"""Faces of a queue, with one method for each step of a history: embedded, shared, both for asyncio, and the commands.

Each has a store of its own on a simulated disk, with a clock that the test moves. So `crash` is a kill of all
processes: the store goes on from what the disk has. The commands go through redis-py, as a client in another language
would.

A job in hand is known by its group and ID.
"""

from __future__ import annotations

import gc
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis
from tests import inside
from tests.client.faces.awaited import Awaited, Loop

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine import ids
from tidelog.engine.api import digest
from tidelog.jobs.dedup import MODES
from tidelog.jobs.rows import DeadJob, moment
from tidelog.jobs.verbs.find import Find, found_at_text
from tidelog.jobs.verbs.job import AskJob
from tidelog.jobs.verbs.workers import AskWorkers

RETRY_AFTER = 8.0
DEPTH = 12
WORDS = ("RETRYAFTER", 8000, "MAXDELIVERIES", 3, "MAXDEPTH", DEPTH)
OPTIONS: dict[str, Any] = {
    **{"codec": "bytes", "retry_after": RETRY_AFTER, "max_deliveries": 3, "max_depth": DEPTH}
}
GROUPS = ("workers", "audit")
ROOT = Path("/store")
LANES = ("q", *(f"q:priority:{priority}" for priority in range(1, 10)))
Taken = tuple[str, int, bytes, dict[str, str], int, str | None]


class Face:
    """A store and a queue of it with two groups. `options` are further options of the queue, `of_store` of the store.

    db      the store, embedded
    jobs    the jobs in hand
    ids     of the jobs that were put one by one
    """

    def __init__(
        self, stack: ExitStack, options: dict[str, Any], of_store: dict[str, Any] | None = None
    ) -> None:
        self.options, self.of_store = options, of_store or {}
        self.clock = testing.Clock()
        self.disk = SimulatedDisk(1)
        self.ids: list[str] = []
        self.jobs: dict[tuple[str, str], Any] = {}
        stack.callback(self.close)
        self.open()

    db: Any

    def open(self) -> None:
        """Open the store, and the queues."""
        self.db = tidelog.open(ROOT, fsync="no", disk=self.disk, clock=self.clock, **self.of_store)

    def close(self) -> None:
        """The counterpart of `open`."""
        self.db.close()

    def crash(self) -> None:
        """All processes are killed and started again. Nobody holds a job any more."""
        left = self.disk.killed()
        self.jobs.clear()
        self.close()
        self.disk = left
        self.open()

    def pass_time(self, seconds: float) -> None:
        """So much time passes, and the workers have said that they live."""
        self.clock.advance(seconds)

    def at(self, seconds: float) -> Any:
        """The time some seconds from now."""
        return self.clock.now() + timedelta(seconds=seconds)

    def state(self) -> list[Any]:
        """The view of other clients: the streams of the queue, and the holder of each job."""
        found: list[Any] = [self.db.get(f"q:rate:{group}") for group in GROUPS]
        found.append(self.db.get("q:paused"))
        found += map(self.db.xrange, ("q:dead", "q:failures", "q:later", "tidelog:schedules"))
        for key in ("q:later", "tidelog:schedules"):
            if self.db.exists(key):
                found += self._pending(key, "due")
        for lane in filter(self.db.exists, LANES):
            found += (lane, *self.db.xrange(f"{lane}:holds"), *self._jobs(lane))
        return found

    def _jobs(self, lane: str) -> list[Any]:
        """Pending entries of all groups, and the entries that a group needs: when the others are swept is left open."""
        entries = self.db.xrange(lane)
        found: list[Any] = []
        needed = set() if self.db.xinfo_groups(lane) else {id for id, _ in entries}
        for group in self.db.xinfo_groups(lane):
            pending = self._pending(lane, group["name"])
            found += pending
            last = number(group["last-delivered-id"])
            needed |= {id for id, _ in entries if number(id) > last} | {id for id, *_ in pending}
        return [*found, *(entry for entry in entries if entry[0] in needed)]

    def _pending(self, key: str, group: Any) -> list[Any]:
        return [
            (row["message_id"], row["times_delivered"], group == "due" or row["consumer"])
            for row in self.db.xpending_range(key, group, "-", "+", 100)
        ]


class Methods(Face):
    """Queue objects."""

    store: Any

    def open(self) -> None:
        super().open()
        self.open_queues()

    def open_queues(self) -> None:
        """The queues of `store`."""
        self.queues = {
            group: self.store.queue("q", group, **OPTIONS, **self.options) for group in GROUPS
        }
        self.queue: Any = self.queues["workers"]

    def subscribe(self, group: str) -> Any:
        return self.queues[group].subscribe()

    def put(self, value: bytes, **given: Any) -> Any:
        id = self.queue.put(value, timeout=0, headers={"h": "1"}, **self._times(given))
        self.ids.append(id)
        return id

    def _times(self, given: dict[str, Any]) -> dict[str, Any]:
        """`at` of a step counts from now."""
        return {k: self.at(v) if k == "at" and v is not None else v for k, v in given.items()}

    def put_many(self, values: list[bytes], **given: Any) -> Any:
        try:
            return self.queue.put_many(values, timeout=0, **self._times(given))
        except tidelog.QueueFull as full:
            return full.stored or "full"

    def cancel(self, id: str, group: str | None = None) -> Any:
        return self.queue.cancel(id, group=group)

    def progress(self, group: str, id: str, fraction: Any, text: str = "") -> Any:
        return self.jobs[group, id].progress(fraction, text)

    def forget(self, dedup_id: str) -> Any:
        return self.queue.forget(dedup_id)

    def job(self, id: str) -> Any:
        return self.queue.job(id)

    def find(self, group: str, **given: Any) -> Any:
        found = self.queues[group].find(**given)
        return found.jobs, found.until

    def workers(self, group: str) -> Any:
        return self.queues[group].workers()

    def pause(self) -> Any:
        return self.queue.pause()

    def resume(self) -> Any:
        return self.queue.resume()

    def remove(self) -> Any:
        return self.queue.remove()

    def paused_at(self) -> Any:
        return self.queue.paused_at()

    def move(self, id: str, **given: Any) -> Any:
        return self.queue.move(id, **self._times(given))

    def schedule(self, **given: Any) -> Any:
        made = self.store.schedule("s", queue="q", value=b"tick", codec="bytes", **given)
        more = made.next_at, made.ticks, made.priority
        return made.every, made.cron, made.tz, made.catch_up, *more

    def unschedule(self, how: str) -> Any:
        return getattr(self.store.schedules, how)("s")

    def take(self, group: str, worker: str, count: int, limit: float | None) -> list[Taken]:
        """Take a batch of at most `count` jobs."""
        consumer = self.queues[group].consume(worker, batch=count, block=0, time_limit=limit)
        found: list[Taken] = []
        while len(found) < count and (job := self.following(consumer)) is not None:
            self.jobs[group, job.id] = job
            found.append((job.id, job.deliveries, job.value, job.headers, job.priority, job.key))
        self.end_consumer(consumer)
        return found

    def leave(self, group: str, worker: str, count: int) -> list[Taken]:
        """Take `count` jobs as one batch, and leave the loop after the first one."""
        consumer = self.queues[group].consume(worker, batch=count, block=0)
        job = self.following(consumer)
        self.end_consumer(consumer)
        if job is None:
            return []
        self.jobs[group, job.id] = job
        return [(job.id, job.deliveries, job.value, job.headers, job.priority, job.key)]

    def drop(self, group: str, id: str) -> None:
        """A worker forgets its job without a word. The server is told at once."""
        del self.jobs[group, id]
        gc.collect()
        self.beat()

    def beat(self) -> None:
        """Say that the workers live, and which jobs they dropped."""

    def following(self, consumer: Any) -> Any:
        return next(consumer, None)

    def end_consumer(self, consumer: Any) -> None:
        consumer.close()

    def end(self, group: str, id: str, how: str) -> Any:
        job = self.jobs[group, id]
        if how == "ack":
            return job.ack()
        if how == "result":
            return job.ack(result=id.encode(), ttl=60)
        if how == "nack":
            return job.nack("again", delay=5)
        if how == "again":
            return job.nack("again")
        if how == "fail":
            return job.fail("no")
        if how == "release":
            return job.release()
        if how == "extend":
            return job.extend(20)
        if how == "later":
            return job.done_and(self.queue.new(b"later", delay=3))
        if how in MODES:
            return job.done_and(self.queue.new(b"next", dedup_id="d1", dedup=how))
        return job.done_and(self.queue.new(b"next", dedup_id="next", ttl=50, priority=3, key="k"))

    def figures(self, group: str) -> Any:
        queue = self.queues[group]
        return {
            "stats": {**queue.stats().as_dict(), "kept": None},  # when they are swept is left open
            "peek": [(job.id, job.raw) for job in queue.peek()],
            "failures": list(map(_failure, queue.failures())),
            "later": [(job.id, job.raw, job.due_at) for job in queue.peek(100, scheduled=True)],
            "schedules": [(s.next_at, s.ticks, s.paused) for s in self.store.schedules.list()],
            "dead": self.dead_count(),
        }

    def dead_count(self) -> int:
        return int(self.queue.dead.count())

    def failures_of(self, id: str) -> Any:
        return list(map(_failure, self.queue.failures(id, count=2)))

    def result(self, id: str) -> Any:
        try:
            return self.queue.result(id, 0)
        except tidelog.JobFailed as failed:
            return failed.dead_id, failed.reason
        except (tidelog.NoResult, tidelog.ResultLate) as error:
            return type(error)

    def dead(self) -> Any:
        return list(map(_dead, self.queue.dead.list()))

    def dead_get(self, at: int) -> Any:
        there = [job.id for job in self.queue.dead.list()]
        found = self.queue.dead.get(there[at % len(there)] if there else "1-1")
        return None if found is None else _dead(found)

    def redrive(self, which: str, dry_run: bool = False) -> Any:
        return self.queue.dead.redrive(**self._chosen(which), dry_run=dry_run)

    def dead_purge(self, which: str) -> Any:
        return self.queue.dead.purge(**self._chosen(which))

    def _chosen(self, which: str) -> dict[str, Any]:
        """Which dead jobs a step means: all of them, the first one, or those of one reason."""
        if which == "first":
            return {"ids": [job.id for job in self.queue.dead.list(1)]}
        return {} if which == "all" else {"where": _is_refused}

    def purge(self) -> Any:
        return self.queue.purge()


def _failure(found: Any) -> tuple[Any, ...]:
    return found.job_id, found.worker, found.deliveries, found.error


def _dead(job: DeadJob) -> tuple[Any, ...]:
    origin = job.original_id, job.raw, job.priority, job.key
    return job.id, *origin, job.reason, job.deliveries, job.group, job.workers


def _is_refused(job: DeadJob) -> bool:
    return job.reason == "no"


class Embedded(Methods):
    """The queue of an opened store."""

    def open_queues(self) -> None:
        self.store = self.db
        super().open_queues()


class Shared(Methods):
    """The queue of a store that is served, for threads."""

    def open_queues(self) -> None:
        self._serving = tidelog.serve(self.db, port=0)
        self.connect(f"redis://127.0.0.1:{self._serving.port}")
        super().open_queues()

    def connect(self, url: str) -> None:
        self.store = tidelog.connect(url)

    def close(self) -> None:
        # Before its server, since a beat of a client that is under way asks for a minute whether the server comes back.
        self.store.close()
        self._serving.close()
        super().close()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.beat()

    def beat(self) -> None:
        self.store._keeper.beat(at_once=True)


class AsyncEmbedded(Methods):
    """The queue of an opened store, for asyncio."""

    def __init__(self, stack: ExitStack, *options: Any) -> None:
        self.loop = Loop()
        stack.callback(self.loop.close)
        super().__init__(stack, *options)

    def open_queues(self) -> None:
        self.store = Awaited(self.loop, tidelog.AsyncStore(inside.core(self.db), decode=False))
        super().open_queues()

    def beat(self) -> None:
        self.loop.settle()

    def end_consumer(self, consumer: Any) -> None:
        consumer.aclose()


class AsyncShared(Shared):
    """The queue of a store that is served, for asyncio."""

    def __init__(self, stack: ExitStack, *options: Any) -> None:
        self.loop = Loop()
        stack.callback(self.loop.close)
        super().__init__(stack, *options)

    def connect(self, url: str) -> None:
        self.store = Awaited(self.loop, self.loop.run(tidelog.aconnect(url)))

    def beat(self) -> None:
        self.loop.settle()
        self.store.it._store._keeper.beat(at_once=True)

    def end_consumer(self, consumer: Any) -> None:
        consumer.aclose()


NEXT = ("next", "DEDUP", "next", "TTL", 50_000, "PRIORITY", 3, "KEY", "k")


class Commands(Face):
    """The QUEUE commands, sent by redis-py."""

    def open(self) -> None:
        super().open()
        self._serving = tidelog.serve(self.db, port=0)
        self.client: Any = redis.Redis(
            port=self._serving.port, protocol=2, single_connection_client=True
        )
        self.begun: set[tuple[str, str]] = set()

    def close(self) -> None:
        self.client.close()
        self._serving.close()
        super().close()

    def call(self, verb: str, *words: Any, group: str = "workers") -> Any:
        more: list[Any] = []
        for name, value in self.options.items():
            if isinstance(value, timedelta):
                more += ("KEEPMS", round(value.total_seconds() * 1000))
            elif name == "lease":
                more += ("LEASE", round(value * 1000))
            else:
                more += ("RETRYPOLICY" if name == "retry" else name.replace("_", ""), str(value))
        if group != "workers":
            more += ("GROUP", group)
        try:
            return self.client.execute_command("QUEUE", verb, "q", *words, *WORDS, *more)
        except redis.ResponseError as error:
            if "QUEUEFULL" in str(error):
                raise tidelog.QueueFull(str(error)) from error
            raise

    def subscribe(self, group: str) -> Any:
        self.call("SUBSCRIBE", group=group)

    def _words(self, given: dict[str, Any]) -> list[Any]:
        words: list[Any] = []
        for name, value in given.items():
            if name == "at":
                words += ("AT", round(self.at(value).timestamp() * 1000))
            elif name in ("delay", "ttl"):
                words += () if value is None else (name, round(value * 1000))
            elif name == "time_limit":
                words += ("TIMELIMIT", round(value * 1000))
            elif value is not None:
                words += (name, value)
        return words

    def put(
        self,
        value: bytes,
        dedup_id: str | None = None,
        dedup: str | None = None,
        **given: Any,
    ) -> Any:
        more = [] if dedup_id is None else ["DEDUP", dedup_id]
        more += [] if dedup is None else ["MODE", dedup]
        words = ("HEADERS", 1, "h", "1", *more, *self._words(given))
        id = self.call("PUT", value, *words).decode()
        self.ids.append(id)
        return id

    def put_many(self, values: list[bytes], **given: Any) -> Any:
        stored, more = 0, self._words(given)
        try:
            while stored < len(values):
                left = values[stored:]
                stored += self.call("PUTMANY", len(left), *left, *more)
        except tidelog.QueueFull:
            return stored or "full"
        return stored

    def cancel(self, id: str, group: str | None = None) -> Any:
        return bool(self.call("CANCEL", id, *(() if group is None else ("ONLY", group))))

    def progress(self, group: str, id: str, fraction: Any, text: str = "") -> Any:
        worker, number = self.jobs[group, id]
        words = (fraction, "TEXT", text) if text else (fraction,)
        return bool(self.call("PROGRESS", worker, id, number, *words, group=group))

    def forget(self, dedup_id: str) -> Any:
        return bool(self.call("FORGET", dedup_id))

    def job(self, id: str) -> Any:
        return AskJob(0).result(self.call("JOB", id))

    def find(self, group: str, limit: int = 100, **given: Any) -> Any:
        words: list[Any] = ["COUNT", limit]
        for name, value in given.items():
            if name == "since":
                words += ("SINCE", round(value.timestamp() * 1000))
            elif value is not None:
                words += (name, *value.split("=")) if name == "header" else (name, value)
        found, until = Find().result(self.call("FIND", *words, group=group))
        return found, None if until is None else found_at_text(until)

    def workers(self, group: str) -> Any:
        return AskWorkers().result(self.call("WORKERS", group=group))

    def pause(self) -> Any:
        return bool(self.call("PAUSE"))

    def resume(self) -> Any:
        return bool(self.call("RESUME"))

    def remove(self) -> Any:
        return bool(self.call("REMOVE"))

    def paused_at(self) -> Any:
        ms = self.call("PAUSED")
        return None if ms is None else moment(ms)

    def move(self, id: str, **given: Any) -> Any:
        return bool(self.call("MOVE", id, *self._words(given)))

    def schedule(self, catch_up: str, **given: Any) -> Any:
        words: list[Any] = ["ADD", "s", "q", "tick", "CATCHUP", catch_up]
        for name, value in given.items():
            words += (name, round(value * 1000) if name == "every" else value)
        made = pairs(self.client.execute_command("QUEUE", "SCHEDULE", *words))
        every = made["every_ms"] if made["every_ms"] is None else made["every_ms"] / 1000
        cron, tz = (None if made[n] is None else made[n].decode() for n in ("cron", "tz"))
        more = due(made), made["ticks"], made["priority"]
        return every, cron, tz, made["catch_up"].decode(), *more

    def unschedule(self, how: str) -> Any:
        return bool(self.client.execute_command("QUEUE", "SCHEDULE", how, "s"))

    def take(self, group: str, worker: str, count: int, limit: float | None) -> list[Taken]:
        found: list[Taken] = []
        while len(found) < count:
            words: list[Any] = ["COUNT", count]
            if limit is not None:
                words += ("LIMIT", round(limit * 1000))
            if (group, worker) not in self.begun:
                words.append("HISTORY")
            rows = self.call("TAKE", worker, *words, group=group)
            self.begun.add((group, worker))
            if rows is None:
                return found
            for id, number, row in rows[count - len(found) :]:
                assert self.call("RELEASE", worker, id, number, group=group)
            for row in rows[: count - len(found)]:
                found.append(self._taken(group, worker, *row))
        return found

    def _taken(self, group: str, worker: str, id: bytes, number: int, row: list[Any]) -> Taken:
        self.jobs[group, id.decode()] = worker, number
        fields = pairs(row)
        headers = {
            name.removeprefix("header."): text.decode()
            for name, text in fields.items()
            if name.startswith("header.")
        }
        key = fields["key"].decode() if "key" in fields else None
        rank = int(fields.get("priority", 0))
        return id.decode(), number, fields["value"], headers, rank, key

    def leave(self, group: str, worker: str, count: int) -> list[Taken]:
        words = [] if (group, worker) in self.begun else ["HISTORY"]
        rows = self.call("TAKE", worker, "COUNT", count, *words, group=group) or []
        self.begun.add((group, worker))
        for id, number, _ in rows[1:]:
            assert self.call("RELEASE", worker, id, number, group=group)
        return [self._taken(group, worker, *row) for row in rows[:1]]

    def drop(self, group: str, id: str) -> None:
        worker, number = self.jobs.pop((group, id))
        self.call("DROP", worker, id, number, group=group)

    def end(self, group: str, id: str, how: str) -> Any:
        worker, number = self.jobs[group, id]
        verb, words = {
            "ack": ("DONE", ()),
            "result": ("DONE", ("RESULT", id, "RESULTTTL", 60_000)),
            "nack": ("RETRY", ("again", "DELAY", 5000)),
            "again": ("RETRY", ("again",)),
            "fail": ("FAIL", ("no",)),
            "release": ("RELEASE", ()),
            "extend": ("EXTEND", (20_000,)),
            "later": ("DONEAND", self._put_words("later", "DELAY", 3000)),
            "and": ("DONEAND", self._put_words(*NEXT)),
            **{
                mode: ("DONEAND", self._put_words("next", "DEDUP", "d1", "MODE", mode))
                for mode in MODES
            },
        }[how]
        return bool(self.call(verb, worker, id, number, *words, group=group))

    def _put_words(self, *words: Any) -> tuple[Any, ...]:
        put = ("q", *words, *WORDS)
        return (1, len(put), *put)

    def figures(self, group: str) -> Any:
        stats = pairs(self.call("STATS", "MORE", group=group))
        stats["in_flight"] = pairs(stats["in_flight"])
        ranks = pairs(stats["by_priority"])
        stats["by_priority"] = {int(rank): count for rank, count in ranks.items()}
        for name, value in stats.items():
            if isinstance(value, bytes):
                stats[name] = value.decode() if name in ("name", "group") else float(value)
        stats["kept"] = None
        later = self.call("PEEK", "COUNT", 100, "SCHEDULED", group=group)
        listed = map(pairs, self.client.execute_command("QUEUE", "SCHEDULES"))
        return {
            "stats": stats,
            "peek": [(id.decode(), row[1]) for id, row in self.call("PEEK", group=group)],
            "failures": [_told(row) for row in self.call("FAILURES", group=group)],
            "later": [(id.decode(), row[1], moment(ms)) for id, row, ms in later],
            "schedules": [(due(each), each["ticks"], bool(each["paused"])) for each in listed],
            "dead": self.client.execute_command("QUEUE", "DEAD", "q", "COUNT"),
        }

    def failures_of(self, id: str) -> Any:
        return [_told(row) for row in self.call("FAILURES", "JOB", id, "COUNT", 2)]

    def result(self, id: str) -> Any:
        found = self.call("RESULT", id)
        if found is None:
            return tidelog.ResultLate
        outcome, *rest = found
        if outcome == b"DEAD":
            return rest[0].decode(), rest[1].decode()
        return rest[0] if outcome == b"DONE" else tidelog.NoResult

    def _dead(self, *words: Any) -> list[DeadJob]:
        codec = self.db.queue("q", codec="bytes")._options.codec
        rows = self.client.execute_command("QUEUE", "DEAD", "q", "LIST", *words)
        return [DeadJob(ids.parse(id), tuple(row), codec, "q") for id, row in rows]

    def dead(self) -> Any:
        return list(map(_dead, self._dead()))

    def dead_get(self, at: int) -> Any:
        there = [job.id for job in self._dead()]
        wanted = there[at % len(there)] if there else "1-1"
        found = [job for job in self._dead(wanted, 1) if job.id == wanted]
        return _dead(found[0]) if found else None

    def redrive(self, which: str, dry_run: bool = False) -> Any:
        chosen = self._chosen(which)
        return len(chosen) if dry_run else self._change("REDRIVE", chosen)

    def dead_purge(self, which: str) -> Any:
        return self._change("PURGE", self._chosen(which))

    def _change(self, verb: str, chosen: list[str]) -> Any:
        if not chosen:
            return 0
        return self.client.execute_command("QUEUE", "DEAD", "q", verb, *chosen)

    def _chosen(self, which: str) -> list[str]:
        if which == "first":
            return [job.id for job in self._dead("-", 1)]
        return [job.id for job in self._dead() if which == "all" or _is_refused(job)]

    def purge(self) -> Any:
        total, more = 0, 1
        while more:
            dropped, more = self.call("PURGE")
            total += dropped
        return total


def number(id: bytes) -> tuple[int, ...]:
    """An ID that can be compared."""
    return tuple(map(int, id.split(b"-")))


def pairs(flat: list[Any]) -> dict[str, Any]:
    """A reply of names and values."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}


def due(schedule: dict[str, Any]) -> Any:
    """When a schedule ticks next."""
    ms = schedule["next_ms"]
    return None if ms is None else moment(ms)


def _told(row: list[Any]) -> tuple[Any, ...]:
    job, _, worker, count, error, _ = row
    return job.decode(), worker.decode(), count, error.decode()


METHODS = (Embedded, AsyncEmbedded, Shared, AsyncShared)
FACES = (*METHODS, Commands)


def same_in_a_replay(face: Face) -> None:
    """The state that the log gives is that of the store."""
    live = digest(inside.core(face.db).state)
    with tidelog.open(ROOT, disk=face.disk.killed(), clock=face.clock) as again:
        assert digest(again._core.state) == live
