"""The embedded queue, the shared queue and the QUEUE commands: one random history, equal results and equal streams.

Three stores with clocks that move alike. Each step does the same to all three and compares the results: IDs, values,
numbers of deliveries, errors, figures. The commands go through redis-py, as a client in another language would.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.rounds import some_slow_and_soak

import tidelog
from tidelog import testing
from tidelog.store.queue.rows import moment

RETRY_AFTER = 8.0
DEPTH = 12
WORDS = ("RETRYAFTER", 8000, "MAXDELIVERIES", 3, "MAXDEPTH", DEPTH, "KEEP", 2)
LIMITS: tuple[dict[str, Any], ...] = (
    {},
    {"concurrency": 2},
    {"concurrency": 3, "rate": "9/m"},
    {"concurrency_per_key": 1},
)
OPTIONS: dict[str, Any] = {
    **{"codec": "bytes", "retry_after": RETRY_AFTER, "max_deliveries": 3},
    **{"max_depth": DEPTH, "keep": 2},
}
WORKERS = ("anna", "ben", "cleo")
PRIORITIES = (0, 0, 0, 1, 5, 9)
KEYS: dict[int, str | None] = {0: "k", 1: "l", 5: None, 9: "k"}  # of the jobs of each priority


class Face:
    """A queue of a store whose clock the test moves. Jobs in hand are known by their ID."""

    def __init__(self, root: Path, stack: ExitStack, limits: dict[str, Any]) -> None:
        self.limits = limits
        self.clock = testing.Clock()
        self.db = tidelog.open(root, fsync="no", clock=self.clock)
        stack.callback(self.db.close)
        self.jobs: dict[str, Any] = {}
        self.ids: list[str] = []  # of the jobs that were put one by one

    def move(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def state(self) -> list[Any]:
        """The view of other clients: the streams of the queue, and the holder of each job."""
        keys = ["q", "q:holds", "q:dead", "q:later", "tidelog:schedules"]
        found: list[Any] = [self.db.get("q:rate:workers"), *map(self.db.xrange, keys)]
        for key in keys[3:]:
            if self.db.exists(key):
                found += [
                    (row["message_id"], row["times_delivered"])
                    for row in self.db.xpending_range(key, "due", "-", "+", 100)
                ]
        if self.db.exists("q"):
            found += [
                (row["message_id"], row["times_delivered"], row["consumer"])
                for group in self.db.xinfo_groups("q")
                for row in self.db.xpending_range("q", group["name"], "-", "+", 100)
            ]
        return found


class Methods(Face):
    """A queue object: the embedded one, or the shared one."""

    queue: Any

    store: Any

    def put(
        self,
        value: bytes,
        dedup: str | None,
        delay: float | None,
        ttl: float | None,
        priority: int,
    ) -> Any:
        job: dict[str, Any] = {"dedup_id": dedup, "headers": {"h": "1"}, "delay": delay}
        job |= {"ttl": ttl, "priority": priority, "key": KEYS[priority]}
        id = self.queue.put(value, timeout=0, **job)
        self.ids.append(id)
        return id

    def put_many(self, values: list[bytes], delay: float | None, priority: int) -> Any:
        try:
            return self.queue.put_many(values, timeout=0, delay=delay, priority=priority)
        except tidelog.QueueFull as full:
            return full.stored or "full"

    def cancel(self, id: str) -> Any:
        return self.queue.cancel(id)

    def postpone(self, id: str, delay: float) -> Any:
        return self.queue.move(id, delay=delay)

    def schedule(self, every: float) -> Any:
        made = self.store.schedule(
            "s", queue="q", every=every, value=b"tick", codec="bytes", priority=2
        )
        return made.every, made.next_at, made.ticks, made.priority

    def unschedule(self, how: str) -> Any:
        return getattr(self.store.schedules, how)("s")

    def take(self, worker: str) -> Any:
        job = self.queue.get(worker, block=0)
        if job is None:
            return None
        self.jobs[job.id] = job
        return job.id, job.deliveries, job.value, job.headers, job.priority

    def end(self, id: str, how: str) -> Any:
        job = self.jobs[id]
        if how == "ack":
            return job.ack()
        if how == "result":
            return job.ack(result=id.encode(), ttl=60)
        if how == "nack":
            return job.nack("again", delay=5)
        if how == "fail":
            return job.fail("no")
        if how == "release":
            return job.release()
        if how == "extend":
            return job.extend(20)
        if how == "later":
            return job.done_and(self.queue.new(b"later", delay=3))
        return job.done_and(self.queue.new(b"next", dedup_id="next", priority=3))

    def figures(self) -> Any:
        found = self.queue.stats().as_dict()
        peeked = [(job.id, job.raw) for job in self.queue.peek()]
        failures = [(f.job_id, f.worker, f.deliveries, f.error) for f in self.queue.failures()]
        dead = [(job.id, job.reason) for job in self.queue.dead]
        later = [(job.id, job.raw, job.due_at) for job in self.queue.peek(100, scheduled=True)]
        return (
            found,
            peeked,
            failures,
            dead,
            later,
            [s.next_at for s in self.store.schedules.list()],
        )

    def result(self, id: str) -> Any:
        try:
            return self.queue.result(id, 0)
        except tidelog.JobFailed as failed:
            return failed.dead_id, failed.reason
        except (tidelog.NoResult, tidelog.ResultLate) as error:
            return type(error)

    def redrive(self) -> Any:
        return self.queue.dead.redrive()

    def purge(self) -> Any:
        return self.queue.purge()


class Embedded(Methods):
    def __init__(self, root: Path, stack: ExitStack, limits: dict[str, Any]) -> None:
        super().__init__(root, stack, limits)
        self.store = self.db
        self.queue = self.db.queue("q", **OPTIONS, **limits)


class Shared(Methods):
    def __init__(self, root: Path, stack: ExitStack, limits: dict[str, Any]) -> None:
        super().__init__(root, stack, limits)
        stack.enter_context(tidelog.serve(self.db, port=0))
        self.store = stack.enter_context(tidelog.connect(root))
        self.queue = self.store.queue("q", **OPTIONS, **limits)

    def move(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.store._keeper.beat(at_once=True)


class Commands(Face):
    def __init__(self, root: Path, stack: ExitStack, limits: dict[str, Any]) -> None:
        super().__init__(root, stack, limits)
        serving = stack.enter_context(tidelog.serve(self.db, port=0))
        self.client: Any = redis.Redis(port=serving.port, protocol=2, single_connection_client=True)
        stack.callback(self.client.close)
        self.returned: set[str] = set()

    def call(self, verb: str, *words: Any) -> Any:
        try:
            limits = [
                word
                for name, value in self.limits.items()
                for word in (name.replace("_", ""), value)
            ]
            return self.client.execute_command("QUEUE", verb, "q", *words, *WORDS, *limits)
        except redis.ResponseError as error:
            if "QUEUEFULL" in str(error):
                raise tidelog.QueueFull(str(error)) from error
            raise

    def put(
        self,
        value: bytes,
        dedup: str | None,
        delay: float | None,
        ttl: float | None,
        priority: int,
    ) -> Any:
        more: list[Any] = [] if dedup is None else ["DEDUP", dedup]
        if priority:
            more += ("PRIORITY", priority)
        if KEYS[priority] is not None:
            more += ("KEY", KEYS[priority])
        for option, seconds in (("DELAY", delay), ("TTL", ttl)):
            if seconds is not None:
                more += (option, round(seconds * 1000))
        id = self.call("PUT", value, "HEADERS", 1, "h", "1", *more).decode()
        self.ids.append(id)
        return id

    def cancel(self, id: str) -> Any:
        return bool(self.call("CANCEL", id))

    def postpone(self, id: str, delay: float) -> Any:
        return bool(self.call("MOVE", id, "DELAY", round(delay * 1000)))

    def schedule(self, every: float) -> Any:
        words = ("ADD", "s", "q", "tick", "EVERY", round(every * 1000), "PRIORITY", 2)
        made = self.pairs(self.client.execute_command("QUEUE", "SCHEDULE", *words))
        return made["every_ms"] / 1000, self.due(made), made["ticks"], made["priority"]

    def unschedule(self, how: str) -> Any:
        return bool(self.client.execute_command("QUEUE", "SCHEDULE", how, "s"))

    def pairs(self, flat: list[Any]) -> dict[str, Any]:
        return {name.decode(): value for name, value in zip(flat[::2], flat[1::2], strict=True)}

    def due(self, schedule: dict[str, Any]) -> Any:
        ms = schedule["next_ms"]
        return None if ms is None else moment(ms)

    def put_many(self, values: list[bytes], delay: float | None, priority: int) -> Any:
        stored = 0
        more: list[Any] = [] if delay is None else ["DELAY", round(delay * 1000)]
        if priority:
            more += ("PRIORITY", priority)
        try:
            while stored < len(values):
                left = values[stored:]
                stored += self.call("PUTMANY", len(left), *left, *more)
        except tidelog.QueueFull:
            return stored or "full"
        return stored

    def take(self, worker: str) -> Any:
        begins = () if worker in self.returned else ("HISTORY",)
        self.returned.add(worker)
        found = self.call("TAKE", worker, *begins)
        if found is None:
            return None
        ((id, count, row),) = found
        self.jobs[id.decode()] = worker, count
        headers = {
            name.decode().removeprefix("header."): text.decode()
            for name, text in zip(row[2::2], row[3::2], strict=True)
            if name.startswith(b"header.")
        }
        rank = dict(zip(row[::2], row[1::2], strict=True)).get(b"priority", b"0")
        return id.decode(), count, row[1], headers, int(rank)

    def end(self, id: str, how: str) -> Any:
        job = (self.jobs[id][0], id, self.jobs[id][1])
        if how == "ack":
            return bool(self.call("DONE", *job))
        if how == "result":
            return bool(self.call("DONE", *job, "RESULT", id, "RESULTTTL", 60_000))
        if how == "nack":
            return bool(self.call("RETRY", *job, "again", "DELAY", 5000))
        if how == "fail":
            return bool(self.call("FAIL", *job, "no"))
        if how == "release":
            return bool(self.call("RELEASE", *job))
        if how == "extend":
            return bool(self.call("EXTEND", *job, 20_000))
        put: tuple[Any, ...] = ("q", "next", "DEDUP", "next", "PRIORITY", 3, *WORDS)
        if how == "later":
            put = ("q", "later", "DELAY", 3000, *WORDS)
        return bool(self.call("DONEAND", *job, 1, len(put), *put))

    def figures(self) -> Any:
        found = self.pairs(self.call("STATS"))
        held = found["in_flight"]
        found["in_flight"] = {n.decode(): c for n, c in zip(held[::2], held[1::2], strict=True)}
        ranks = found["by_priority"]
        found["by_priority"] = dict(zip(ranks[::2], ranks[1::2], strict=True))
        found["by_priority"] = {int(rank): n for rank, n in found["by_priority"].items()}
        for name, value in found.items():
            if isinstance(value, bytes):
                found[name] = value.decode() if name in ("name", "group") else float(value)
        peeked = [(id.decode(), row[1]) for id, row in self.call("PEEK")]
        failures = [
            (job.decode(), worker.decode(), count, error.decode())
            for job, _, worker, count, error, _ in self.call("FAILURES")
        ]
        dead = [(id, fields["reason"]) for id, fields in self.dead()]
        later = [
            (id.decode(), row[1], moment(due))
            for id, row, due in self.call("PEEK", "COUNT", 100, "SCHEDULED")
        ]
        listed = map(self.pairs, self.client.execute_command("QUEUE", "SCHEDULES"))
        return found, peeked, failures, dead, later, [self.due(each) for each in listed]

    def dead(self) -> list[tuple[str, dict[str, str]]]:
        rows = self.client.execute_command("QUEUE", "DEAD", "q", "LIST")
        return [
            (
                id.decode(),
                {n.decode(): v.decode() for n, v in zip(row[::2], row[1::2], strict=True)},
            )
            for id, row in rows
        ]

    def result(self, id: str) -> Any:
        found = self.call("RESULT", id)
        if found is None:
            return tidelog.ResultLate
        outcome, *rest = found
        if outcome == b"DEAD":
            return rest[0].decode(), rest[1].decode()
        return rest[0] if outcome == b"DONE" else tidelog.NoResult

    def redrive(self) -> Any:
        ids = [id for id, _ in self.dead()]
        return self.client.execute_command("QUEUE", "DEAD", "q", "REDRIVE", *ids) if ids else 0

    def purge(self) -> Any:
        total, more = 0, 1
        while more:
            dropped, more = self.call("PURGE")
            total += dropped
        return total


def steps(pick: random.Random, face: Face, count: int) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Random steps. They depend on the jobs that one face holds, which all faces hold."""
    for number in range(count):
        roll = pick.random()
        held = list(face.jobs)
        if roll < 0.25:
            dedup = pick.choice((None, None, None, "d1", "d2"))
            delay = pick.choice((None, None, None, 0.5, 3.0, 10.0))
            ttl = pick.choice((None, None, None, 4.0))
            yield "put", (b"v%d" % number, dedup, delay, ttl, pick.choice(PRIORITIES))
        elif roll < 0.28:
            values = [b"m%d" % n for n in range(pick.randrange(1, 8))]
            yield "put_many", (values, pick.choice((None, None, 2.0)), pick.choice(PRIORITIES))
        elif roll < 0.3 and face.ids:
            yield "cancel", (pick.choice(face.ids[-9:]),)
        elif roll < 0.33 and face.ids:
            yield "postpone", (pick.choice(face.ids[-9:]), pick.choice((0.0, 1.0, 20.0)))
        elif roll < 0.34:
            yield "schedule", (pick.choice((5.0, 30.0)),)
        elif roll < 0.35:
            yield "unschedule", (pick.choice(("pause", "resume", "remove")),)
        elif roll < 0.55:
            yield "take", (pick.choice(WORKERS),)
        elif roll < 0.82 and held:
            how = pick.choice(
                (
                    "ack",
                    "ack",
                    "result",
                    "nack",
                    "nack",
                    "fail",
                    "release",
                    "extend",
                    "and",
                    "later",
                )
            )
            yield "end", (pick.choice(held), how)
        elif roll < 0.84:
            yield "redrive", ()
        elif roll < 0.85:
            yield "purge", ()
        elif roll < 0.88 and face.ids:
            yield "result", (pick.choice(face.ids[-9:]),)
        elif roll < 0.95:
            yield "move", (pick.choice((0.5, 1.0, 2.0, 4.0)),)
        else:
            yield "figures", ()


def outcome(face: Face, name: str, args: tuple[Any, ...]) -> Any:
    """The result of a step. A job that was ended is in nobody's hands any more; one that was not still is."""
    try:
        found = getattr(face, name)(*args)
    except tidelog.QueueFull:
        return "full"
    if name == "end" and args[1] != "extend":
        del face.jobs[args[0]]
    return found


@pytest.mark.parametrize("size", some_slow_and_soak((2, 120), (12, 400), (200, 400)))
def test_three_faces_agree(tmp_path: Path, size: tuple[int, int]) -> None:
    rounds, count = size
    for number in range(rounds):
        seed = random.randrange(1 << 32)
        print("seed", seed)
        pick = random.Random(seed)
        limits = pick.choice(LIMITS)
        with ExitStack() as stack:
            faces: list[Face] = [
                kind(tmp_path / f"{kind.__name__}{number}", stack, limits)
                for kind in (Embedded, Shared, Commands)
            ]
            for step, (name, args) in enumerate(steps(pick, faces[0], count)):
                first, *others = (outcome(face, name, args) for face in faces)
                for face, other in zip(faces[1:], others, strict=True):
                    assert other == first, (seed, step, name, args, type(face).__name__)
                state, *rest = (face.state() for face in faces)
                for face, other in zip(faces[1:], rest, strict=True):
                    assert other == state, (seed, step, name, args, type(face).__name__)
