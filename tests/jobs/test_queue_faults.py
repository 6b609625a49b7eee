"""Bad input, bad options, bad keys, a full disk, a stream that goes away: a clear error, and nothing lost."""

from __future__ import annotations

import gc
import json
import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from tests.jobs.full_disk import Room
from tests.until import parked, until

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.work.leases import Leases

ROOT = Path("/store")
RETRY_AFTER = 8.0


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as found:
        yield found


@pytest.fixture
def db(
    disk: SimulatedDisk, clock: testing.Clock, pool: ThreadPoolExecutor
) -> Iterator[tidelog.Store]:
    # After the pool, so that it is closed before: that wakes callers that still wait.
    with tidelog.open(ROOT, fsync="no", disk=disk, clock=clock, segment_bytes=4096) as store:
        yield store


# --- a full disk


def state_of(db: tidelog.Store) -> Any:
    names = sorted(db.keys())
    return [
        (name, db.xrange(name), db.xpending_range(name, "workers", "-", "+", 1000))
        if name == b"jobs"
        else (name, db.xrange(name))
        for name in names
        if db.type(name) == b"stream"
    ]


def on_a_full_disk(name: str) -> Callable[[Any, Any, Any], Any]:
    calls: dict[str, Callable[[Any, Any, Any], Any]] = {
        "put": lambda db, q, job: q.put({"n": 100}),
        "put_many": lambda db, q, job: q.put_many([{"n": 101}, {"n": 102}]),
        "get": lambda db, q, job: q.get("w", block=0),
        "consume": lambda db, q, job: next(q.consume("v", 3, 0)),
        "ack": lambda db, q, job: job.ack(),
        "nack": lambda db, q, job: job.nack("why", delay=1.0),
        "fail": lambda db, q, job: job.fail("why"),
        "extend": lambda db, q, job: job.extend(100),
        "release": lambda db, q, job: job.release(),
        "done_and": lambda db, q, job: job.done_and(q.new({"n": 103})),
        "redrive": lambda db, q, job: q.dead.redrive(),
        "purge": lambda db, q, job: q.purge(),
        "purge the dead": lambda db, q, job: q.dead.purge(),
    }
    return calls[name]


CALLS = (
    "put,put_many,get,consume,ack,nack,fail,extend,release,done_and,redrive,purge,purge the dead"
)


@pytest.mark.parametrize("name", CALLS.split(","))
def test_a_full_disk(
    name: str, db: tidelog.Store, disk: SimulatedDisk, clock: testing.Clock
) -> None:
    room, call = Room(disk), on_a_full_disk(name)
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put_many({"n": n} for n in range(6))
    queue.get("a", block=0).fail("early")
    job = queue.get("b", block=0)
    room.fill(db)
    before = state_of(db)
    for _ in range(2):
        with pytest.raises(tidelog.OutOfSpace, match="[Nn]o (room|space)|full|stored"):
            call(db, queue, job)
        assert state_of(db) == before
        assert queue.stats().depth == 5
    # The lease of a living worker lasts, although it cannot be written down.
    for _ in range(9):
        clock.advance(RETRY_AFTER / 3)
    room.full = False
    others = []
    while (other := queue.get("c", block=0)) is not None:
        others.append(other)
    assert sorted(o.value["n"] for o in others) == [2, 3, 4, 5]
    for other in others:
        assert other.release()
    del others, other
    assert call(db, queue, job) not in (None, False)
    if name in ("put", "put_many"):
        assert queue.stats().depth == 6 + (name == "put_many")
    del job
    gc.collect()
    clock.advance(500)
    work_off(queue, clock)


def work_off(queue: Any, clock: testing.Clock) -> list[Any]:
    """The values of all that is left, done."""
    done = []
    for _ in range(3):
        while (job := queue.get("last", block=0)) is not None:
            done.append(job.value)
            assert job.ack()
        clock.advance(5000)
    assert queue.stats().depth == 0 == len(queue)
    return done


def test_a_job_whose_block_ends_on_a_full_disk(
    db: tidelog.Store, disk: SimulatedDisk, clock: testing.Clock
) -> None:
    """The error of the ack comes out; the job is not lost, and is done once there is room."""
    room = Room(disk)
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put({"n": 1})
    with pytest.raises(tidelog.OutOfSpace):
        with queue.get("w", block=0):
            room.fill(db)
    room.full = False
    clock.advance(RETRY_AFTER + 1)
    gc.collect()
    clock.advance(RETRY_AFTER + 1)
    assert work_off(queue, clock) == [{"n": 1}]


def test_a_consumer_outlives_a_full_disk(
    db: tidelog.Store, disk: SimulatedDisk, clock: testing.Clock
) -> None:
    """The loop may be gone on with, in a batch as well: what was not written is written later, or done again."""
    room = Room(disk)
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put_many({"n": n} for n in range(7))
    seen = set()
    consumer = queue.consume("w", 3, 0)
    refusals = 0
    turns = 0
    while True:
        turns += 1
        assert turns < 100
        if turns in (3, 6):
            room.fill(db)
        try:
            job = next(consumer, None)
            if job is None:
                break
            (row,) = db.xpending_range("jobs", "workers", job.id, job.id, 1)
            assert row["consumer"] == b"w", "the worker has a job that was not delivered to it"
            seen.add(job.value["n"])
            job.ack()
        except tidelog.OutOfSpace:
            refusals += 1
            room.full = False
    assert refusals
    room.full = False
    consumer.close()
    del job, consumer
    gc.collect()
    clock.advance(RETRY_AFTER * 2)
    clock.advance(RETRY_AFTER * 2)
    seen.update(value["n"] for value in work_off(queue, clock))
    assert seen == set(range(7))


def test_waiting_workers_survive_a_full_disk(
    db: tidelog.Store, disk: SimulatedDisk, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    """A delivery that could not be written is the waiter's error, and the job stays."""
    room = Room(disk)
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put({"n": 0})
    queue.get("w", block=0).nack("wait", delay=5.0)
    waiting = pool.submit(queue.get, "w")
    parked(db)
    room.fill(db)
    clock.advance(6)
    with pytest.raises(tidelog.OutOfSpace):
        waiting.result(60)
    room.full = False
    assert work_off(queue, clock) == [{"n": 0}]


# --- values


class Mail(BaseModel):
    to: str


CODECS: list[tuple[str, Any, Any, list[Any], bytes]] = [
    ("json", "json", {"a": 1}, [{1, 2}, math.nan, object(), b"x", "\ud800"], b"{"),
    ("msgpack", "msgpack", {"a": b"1"}, [{1, 2}, object(), 1 << 70], b"\xc1"),
    ("bytes", "bytes", b"\xff\0", ["text", 1, None, [1]], b""),
    ("str", "str", "ü", [b"x", 1, None, "\ud800"], b"\xff"),
    ("pair", (lambda v: b"%d" % v, int), 5, ["x", None], b"five"),
    ("pair of str", (lambda v: v, lambda raw: raw), b"5", ["x", None, 5], b""),
    ("model", Mail, Mail(to="a"), [{"to": "a"}, "a", None], b'{"to": 1}'),
    ("adapter", TypeAdapter(list[int]), [1, 2], [object()], b'["x"]'),
]


@pytest.mark.parametrize(
    ("codec", "good", "bad"), [c[1:4] for c in CODECS], ids=[c[0] for c in CODECS]
)
def test_what_a_codec_cannot_encode_is_refused(
    codec: Any, good: Any, bad: list[Any], db: tidelog.Store
) -> None:
    queue: Any = db.queue("jobs", codec=codec)
    for value in bad:
        with pytest.raises(tidelog.EncodeError, match="jobs"):
            queue.put(value)
        with pytest.raises(tidelog.DataError):
            queue.new(value)
        with pytest.raises(tidelog.EncodeError):
            queue.put_many([good, value])
        with pytest.raises(tidelog.EncodeError):
            queue.put(value, dedup_id="once")
    assert all(job.value == good for job in queue.peek(1000))
    before = len(queue)
    queue.put(good, dedup_id="once")
    assert len(queue) == before + 1, "a refused value used up its dedup_id"
    job = queue.get("w", block=0)
    assert job.value == good and job.ack()


def test_done_and_of_a_bad_value_leaves_the_job(db: tidelog.Store) -> None:
    queue: Any = db.queue("jobs")
    queue.put(1)
    job = queue.get("w", block=0)
    with pytest.raises(tidelog.EncodeError):
        job.done_and(queue.new(2), queue.new({3}))
    assert len(queue) == 1 and queue.stats().in_flight == {"w": 1}
    assert job.ack()


@pytest.mark.parametrize(
    ("codec", "good", "raw"),
    [(c[1], c[2], c[4]) for c in CODECS if c[4]],
    ids=[c[0] for c in CODECS if c[4]],
)
@pytest.mark.parametrize("batch", [1, 4])
def test_a_job_that_cannot_be_decoded_goes_to_the_dead_and_the_worker_goes_on(
    codec: Any, good: Any, raw: bytes, batch: int, db: tidelog.Store
) -> None:
    queue: Any = db.queue("jobs", codec=codec)
    bad = [db.xadd("jobs", {"value": raw, "header.a": "b"}), db.xadd("jobs", {"other": "thing"})]
    queue.put(good)
    bad.append(db.xadd("jobs", {"value": raw}))
    assert len(queue.peek()) == 4
    with queue.consume("w", batch, 0) as consumer:
        seen = []
        for job in consumer:
            with job:
                seen.append(job.value)
    assert seen == [good]
    assert queue.stats().depth == 0 and queue.stats().dead == 3 == queue.dead.count()
    dead = queue.dead.list()
    assert [d.original_id.encode() for d in dead] == bad
    for one in dead:
        assert "decode" in one.reason or "not a job" in one.reason
        with pytest.raises(tidelog.DecodeError):
            one.value
    assert dead[0].raw == raw and dead[0].headers == {"a": "b"}
    # Once its producer was told, it can be looked at and repaired; driven back as it is, it dies again.
    assert queue.dead.redrive() == 3
    assert queue.get("w", block=0) is None
    assert queue.dead.count() == 3


def test_a_foreign_entry_keeps_its_fields_when_it_dies(db: tidelog.Store) -> None:
    queue: Any = db.queue("jobs")
    db.xadd("jobs", {"order": "tea", "amount": "2"})
    assert queue.get("w", block=0) is None
    ((_, fields),) = db.xrange("jobs:dead")
    assert b"tea" in b" ".join(fields.values()), "what it held is lost"


@pytest.mark.parametrize("error", [ValueError, KeyError("x"), ZeroDivisionError("y")])
def test_a_codec_may_raise_anything(error: Any, db: tidelog.Store) -> None:
    def broken(value: Any) -> Any:
        raise error

    with pytest.raises(tidelog.EncodeError):
        db.queue("jobs", codec=(broken, broken)).put(1)
    db.queue("jobs", codec="bytes").put(b"1")
    queue: Any = db.queue("jobs", codec=(broken, broken))
    assert queue.get("w", block=0) is None
    assert queue.dead.count() == 1


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Long(Exception):
    def __str__(self) -> str:
        return "x" * 10_000_000


@pytest.mark.parametrize(
    "error",
    [
        Unspeakable(),
        Long(),
        ValueError("\ud800"),
        ValueError("a\0b"),
        ExceptionGroup("g", [ValueError()]),
    ],
)
def test_whatever_a_job_raises_it_is_nacked(
    error: Exception, db: tidelog.Store, clock: testing.Clock
) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put(1)
    with queue.get("w", block=0):
        raise error
    assert queue.stats().paused == 1
    (failure,) = queue.failures()
    assert type(error).__name__ in failure.error and failure.worker == "w"
    assert work_off(queue, clock) == [1]


def test_exceptions_with_cycles_do_not_keep_a_job_alive(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put(1)

    def work() -> None:
        job = queue.get("w", block=0)
        me: list[Any] = [job]
        me.append(me)  # only the collector gets this

    work()
    gc.collect()
    clock.advance(RETRY_AFTER)
    clock.advance(RETRY_AFTER)
    assert queue.get("other", block=0).deliveries == 2


@pytest.mark.parametrize(
    "headers", [{1: "x"}, {"x": 1}, {"x": None}, {"\ud800": "x"}, {"x": "\ud800"}, 5, "ab", ["a"]]
)
def test_bad_headers_are_refused(headers: Any, db: tidelog.Store) -> None:
    queue: Any = db.queue("jobs")
    for put in (queue.put, queue.new):
        with pytest.raises(tidelog.DataError, match="header"):
            put(1, headers=headers)
    assert not len(queue)


@pytest.mark.parametrize("dedup_id", ["", 5, b"x", "\ud800", 1.5])
def test_a_bad_dedup_id_is_refused(dedup_id: Any, db: tidelog.Store) -> None:
    queue: Any = db.queue("jobs")
    for put in (queue.put, queue.new):
        with pytest.raises(tidelog.DataError, match="dedup_id"):
            put(1, dedup_id=dedup_id)
    assert not len(queue)


# --- workers that do not do what they should


def test_a_worker_that_never_acks_ends_in_the_dead(db: tidelog.Store, clock: testing.Clock) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER, max_deliveries=3)
    id = queue.put({"n": 1}, headers={"a": "b"})
    for number in range(3):
        job = queue.get(f"lazy{number}", block=0)
        assert job.deliveries == number + 1
        del job
        gc.collect()
        assert queue.get("heir", block=0) is None, "before its lease is over"
        clock.advance(RETRY_AFTER)
        clock.advance(0.01)
    assert queue.get("heir", block=0) is None
    (dead,) = queue.dead.list()
    assert dead.original_id == id and dead.value == {"n": 1} and dead.headers == {"a": "b"}
    assert dead.deliveries == 3 and dead.workers == ["lazy0", "lazy1", "lazy2"]
    assert len(dead.errors) == 3 and "abandoned" in dead.errors[0].error
    assert queue.stats().depth == 0 == db.xlen("jobs")


def test_a_worker_that_lives_but_never_acks_keeps_its_job(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put(1)
    job = queue.get("slow", block=0)
    for _ in range(30):
        clock.advance(RETRY_AFTER)
        assert queue.get("other", block=0) is None
        assert queue.get("slow", block=0) is None
    assert job.ack() is True


def test_two_workers_of_one_name_never_get_the_same_job(
    db: tidelog.Store, pool: ThreadPoolExecutor, clock: testing.Clock
) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    total = 1500
    queue.put_many(range(total))
    inside: set[int] = set()
    lock = threading.Lock()
    wrong = list[int]()

    def work(batch: int) -> int:
        count = 0
        for _ in range(40):  # new consumers again and again: each reads the history of its name
            with queue.consume("same", batch, 0) as consumer:
                for _ in range(13):
                    job = next(consumer, None)
                    if job is None:
                        return count
                    with lock:
                        if job.value in inside or job.deliveries != 1:
                            wrong.append(job.value)
                        inside.add(job.value)
                    count += 1
                    assert job.ack()
        return count

    counts = [f.result(60) for f in [pool.submit(work, batch) for batch in (1, 1, 3, 7)]]
    assert not wrong, "two living workers had it"
    left = work_off(queue, clock)
    assert sum(counts) + len(left) == total


def test_workers_with_leases_that_pass_quickly_never_share_a_job(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """On the system's clock: jobs that take much longer than their lease."""
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        queue: Any = db.queue("jobs", retry_after=0.05)
        queue.put_many(range(12))
        inside: set[int] = set()
        lock = threading.Lock()

        def work(name: str) -> int:
            count = 0
            while (job := queue.get(name, block=0.3)) is not None:
                with lock:
                    assert job.value not in inside, "two living workers have it"
                    assert job.deliveries == 1
                    inside.add(job.value)
                finished.wait(0.2)
                assert job.ack() is True
                count += 1
            return count

        finished = threading.Event()
        assert sum(pool.map(work, ("a", "b", "c", "same", "same"))) == 12
        assert queue.stats().depth == 0


def test_a_time_limit_begins_with_the_delivery(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    """However long the worker had to wait for the job."""
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    consumer = queue.consume("w", time_limit=3 * RETRY_AFTER)
    waiting = pool.submit(next, consumer)
    parked(db)
    clock.advance(1000)
    parked(db)
    queue.put(1)
    job = waiting.result(60)
    for _ in range(8):
        clock.advance(RETRY_AFTER / 4)
        assert queue.get("other", block=0) is None, "taken from a living worker in its time"
    for _ in range(9):
        clock.advance(RETRY_AFTER / 4)
    assert queue.get("other", block=0).deliveries == 2
    assert job.ack() is False


@pytest.mark.parametrize("lapsed", [False, True])
def test_the_lease_thread_rests(
    lapsed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While somebody holds a job, also beyond its time limit, and after that: no busy loop."""
    beats = 0
    beat = Leases.beat

    def counted(self: Leases) -> float | None:
        nonlocal beats
        beats += 1
        return beat(self)

    monkeypatch.setattr(Leases, "beat", counted)
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        queue: Any = db.queue("jobs", retry_after=1.5)
        queue.put(1)
        job = next(queue.consume("w", time_limit=0.02 if lapsed else None))
        began = time.monotonic()
        time.sleep(0.7)
        assert job.ack() is True
        time.sleep(0.1)
        seconds = time.monotonic() - began
        assert beats < 20 + 5 * seconds, f"{beats} beats in {seconds:.1f} s"


def test_a_batch_keeps_what_it_has_not_come_to(db: tidelog.Store, clock: testing.Clock) -> None:
    """The jobs fetched ahead are leased too, though nobody has looked at them yet."""
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put_many(range(4))
    with queue.consume("w", 4, 0) as consumer:
        first = next(consumer)
        for _ in range(12):
            clock.advance(RETRY_AFTER / 2)
            assert queue.get("other", block=0) is None
            assert queue.get("w", block=0) is None
        assert first.ack() and [job.value for job in consumer if job.ack()] == [1, 2, 3]
    assert queue.stats().depth == 0


def test_purge_takes_all_of_many(db: tidelog.Store) -> None:
    queue: Any = db.queue("jobs")
    queue.put_many(range(2010))
    held = []
    for job in queue.consume("w", 500, 0):
        if job.value < 1000:
            assert job.nack("x")
        elif job.value < 1003:
            held.append(job)
        if job.value == 1002:
            break
    del job
    assert queue.stats().paused == 1000
    gc.collect()
    flying = sum(queue.stats().in_flight.values())
    assert queue.purge() == 2010 - flying
    assert len(queue) == flying == db.xlen("jobs") and db.xlen("jobs:holds") == 0
    queue.put(5000)
    assert [job.ack() for job in held] == [True] * 3


# --- keys of another type, keys that go


@pytest.mark.parametrize("call", ["put", "put_many", "get", "done_and"])
def test_another_type_in_place_of_the_queue(call: str, db: tidelog.Store) -> None:
    db.set("jobs", "a string")
    queue: Any = db.queue("jobs")
    from_: Any = db.queue("from")
    from_.put(1)
    job = from_.get("w", block=0)
    calls: dict[str, Callable[[], Any]] = {
        "put": lambda: queue.put(1),
        "put_many": lambda: queue.put_many([1]),
        "get": lambda: queue.get("w", block=0),
        "done_and": lambda: job.done_and(queue.new(1)),
    }
    with pytest.raises(tidelog.ResponseError, match="WRONGTYPE"):
        calls[call]()
    assert db.get("jobs") == b"a string" and len(from_) == 1
    db.delete("jobs")
    assert calls[call]() is not False
    assert job.ack() is True  # of done_and: said once more, and not wrong


@pytest.mark.parametrize(
    ("key", "call"),
    [
        ("dead", "fail"),
        ("dead", "last nack"),
        ("dead", "abandon"),
        ("dead", "undecodable"),
        ("failures", "nack"),
        ("failures", "raise"),
        ("failures", "abandon"),
        ("holds", "nack"),
        ("holds", "extend"),
    ],
)
def test_another_type_in_place_of_a_side_stream(
    key: str, call: str, db: tidelog.Store, clock: testing.Clock
) -> None:
    """The error names the key, the job stays whole; once the key is gone all goes on."""
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER, max_deliveries=1 if key == "dead" else 3)
    queue.put({"n": 1})
    job = queue.get("w", block=0)
    db.set(f"jobs:{key}", "a string")
    if call == "undecodable":
        assert job.ack()
        db.xadd("jobs", {"value": b"{"})
    if call == "abandon":
        del job
        gc.collect()
        clock.advance(RETRY_AFTER)
        clock.advance(1)

    def raising() -> None:
        with job:
            raise ValueError("why")

    calls: dict[str, Callable[[], Any]] = {
        "fail": lambda: job.fail("why"),
        "nack": lambda: job.nack("why"),
        "last nack": lambda: job.nack("why"),
        "extend": lambda: job.extend(100),
        "raise": raising,
        "abandon": lambda: queue.get("heir", block=0),
        "undecodable": lambda: queue.get("heir", block=0),
    }
    before = state_of(db)
    # A job that cannot be decoded stays with the worker that found that out, for as long as a lease.
    for _ in range(1 if call == "undecodable" else 2):
        with pytest.raises(tidelog.ResponseError, match=f"(?s)WRONGTYPE.*jobs:{key}"):
            calls[call]()
        # A job that cannot be decoded was delivered before that was found out.
        assert state_of(db) == before or call == "undecodable", "a part of it was done"
    assert len(queue) == 1
    for look in (queue.stats, queue.peek, queue.failures, queue.dead.count, queue.dead.list):
        try:
            look()
        except tidelog.ResponseError as error:
            assert f"jobs:{key}" in str(error)
    db.delete(f"jobs:{key}")
    if call == "undecodable":
        gc.collect()
        clock.advance(RETRY_AFTER)
        clock.advance(1)
    result = calls[call]()
    if call in ("fail", "last nack", "undecodable") or key == "dead":
        assert queue.dead.count() == 1 and len(queue) == 0
    elif call == "abandon":
        assert result.deliveries == 2
    else:
        assert len(queue) == 1
    calls.clear()
    result = None
    if call != "undecodable" and call != "abandon":
        del job
    gc.collect()
    clock.advance(5000)
    clock.advance(RETRY_AFTER)
    work_off(queue, clock)


def test_another_client_deletes_jobs(db: tidelog.Store, clock: testing.Clock) -> None:
    """XDEL of what waits, is in flight, and is paused: those jobs are gone, the others are not."""
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    ids = [queue.put({"n": n}) for n in range(6)]
    flying, paused = queue.get("w", block=0), queue.get("w", block=0)
    assert paused.nack("later", delay=1.0)
    db.xdel("jobs", ids[0], ids[1], ids[3])
    assert flying.ack() in (True, False)
    clock.advance(2)
    assert [value["n"] for value in work_off(queue, clock)] == [2, 4, 5]
    assert db.xpending("jobs", "workers")["pending"] == 0


def test_a_foreign_client_may_ack_and_trim(db: tidelog.Store, clock: testing.Clock) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put_many(range(6))
    job = queue.get("w", block=0)
    assert db.xack("jobs", "workers", job.id) == 1
    assert job.ack() is False and job.nack() is False
    queue.get("w", block=0).nack("x", delay=1.0)
    db.xtrim("jobs", maxlen=2, approximate=False)
    assert [value for value in work_off(queue, clock)] == [4, 5]


GOING: dict[str, Callable[[Any], Any]] = {
    "DEL": lambda db: db.delete("jobs"),
    "FLUSHALL": lambda db: db.flushall(),
    "RENAME": lambda db: db.rename("jobs", "old"),
    "XGROUP DESTROY": lambda db: db.xgroup_destroy("jobs", "workers"),
}


@pytest.mark.parametrize("way", list(GOING))
@pytest.mark.parametrize("batch", [1, 5])
def test_the_stream_goes_under_waiting_workers_and_comes_again(
    way: str, batch: int, db: tidelog.Store, pool: ThreadPoolExecutor, clock: testing.Clock
) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put({"n": 0})
    queue.get("w", block=0).nack("later")  # something paused goes along
    seen: list[int] = []

    def work(name: str) -> None:
        with queue.consume(name, batch) as consumer:
            for job in consumer:
                with job:
                    seen.append(job.value["n"])
                    if job.value["n"] < 0:
                        return

    workers = [pool.submit(work, f"w{n}") for n in range(2)]
    parked(db, 2)
    GOING[way](db)
    for number in range(1, 4):
        queue.put({"n": number})
    # With the group went what it knew of pauses; all that is in the stream is new to the next one.
    expected = [0, 1, 2, 3] if way == "XGROUP DESTROY" else [1, 2, 3]
    until(lambda: len(seen) >= len(expected), "they do not see the new stream")
    assert sorted(seen) == expected
    clock.advance(100)
    for _ in range(2):
        until(lambda: sum(w.done() for w in workers) == _, "a worker ended too early")
        queue.put({"n": -1})
        until(lambda: sum(w.done() for w in workers) == _ + 1, "a worker does not end")
    for worker in workers:
        worker.result(60)


@pytest.mark.parametrize("way", list(GOING))
def test_the_stream_goes_under_a_worker_that_has_a_job(
    way: str, db: tidelog.Store, clock: testing.Clock
) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put({"n": 0})
    job = queue.get("w", block=0)
    GOING[way](db)
    clock.advance(RETRY_AFTER)
    assert job.extend(5) is False
    assert job.done_and(queue.new({"n": 1})) is False
    assert job.ack() is False and job.nack("x") is False and job.fail() is False
    if way != "XGROUP DESTROY":
        assert len(queue) == 0
        queue.put({"n": 2})
        assert work_off(queue, clock) == [{"n": 2}]
    else:
        assert work_off(queue, clock) == [{"n": 0}]


def test_a_closed_store_ends_every_wait_at_once(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    db = tidelog.open(tmp_path / "s", fsync="no")
    queue: Any = db.queue("jobs", max_depth=1)
    full = db.queue("full", max_depth=1)
    full.put(0)
    queue.put(1)
    job = queue.get("holder", block=0)
    consumer = queue.consume("c")
    waiting: list[Future[Any]] = [
        pool.submit(queue.get, "a"),
        pool.submit(queue.get, "b", 1000),
        pool.submit(next, consumer),
        pool.submit(full.put, 1),
        pool.submit(full.put, 1, timeout=1000),
        pool.submit(full.put_many, [1, 2]),
    ]
    parked(db, 3)
    until(lambda: sum(f.running() for f in waiting) == 6, "they do not run")
    time.sleep(0.05)  # putters have no place where one could see them wait
    began = time.monotonic()
    db.close()
    for future in waiting:
        with pytest.raises(tidelog.StoreClosed):
            future.result(60)
    assert time.monotonic() - began < 60
    calls: list[Callable[[], Any]] = [
        job.ack,
        job.nack,
        lambda: job.extend(1),
        lambda: queue.put(1),
        lambda: queue.put_many([1]),
        lambda: queue.get("a", block=0),
        queue.stats,
        queue.peek,
        queue.dead.count,
        queue.purge,
    ]
    for call in calls:
        with pytest.raises(tidelog.StoreClosed):
            call()
    consumer.close()  # nothing to give back any more, and no error while cleaning up


# --- a bounded queue


def test_a_bounded_queue_never_holds_more(pool: ThreadPoolExecutor, tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        queue: Any = db.queue("jobs", max_depth=10)
        each, putters, takers = 120, 5, 3
        total = putters * each * 11 // 10
        deepest, done, lock = 0, list[Any](), threading.Lock()

        def put(name: int) -> None:
            nonlocal deepest
            for number in range(each):
                if number % 10 == 9:
                    assert queue.put_many([[name, number, "a"], [name, number, "b"]]) == 2
                else:
                    queue.put([name, number])
                deepest = max(deepest, len(queue))

        def take(name: str) -> None:
            while len(done) < total:
                job = queue.get(name, block=0.1)
                if job is None:  # others have the last ones, or the putters had no time
                    continue
                with lock:
                    done.append(tuple(job.value))
                assert job.ack()

        takers_ = [pool.submit(take, f"t{n}") for n in range(takers)]
        for future in [pool.submit(put, n) for n in range(putters)]:
            future.result(60)
        for future in takers_:
            future.result(60)
        assert deepest <= 10
        assert len(done) == len(set(done)) == total


def test_put_waits_so_long_for_room(
    db: tidelog.Store, clock: testing.Clock, pool: ThreadPoolExecutor
) -> None:
    queue: Any = db.queue("jobs", max_depth=2)
    queue.put_many([1, 2])
    with pytest.raises(tidelog.QueueFull, match="jobs"):
        queue.put(3, timeout=0)
    with pytest.raises(tidelog.QueueFull):
        queue.put_many([3], timeout=0)
    started = threading.Event()

    def put() -> str:
        started.set()
        return str(queue.put(3, timeout=10))

    waiting = pool.submit(put)
    assert started.wait(60)

    def over() -> bool:
        clock.advance(5)  # which may come before it waits
        return waiting.done()

    until(over, "it waits on")
    with pytest.raises(tidelog.QueueFull):
        waiting.result(60)
    assert len(queue) == 2
    waiting = pool.submit(put)
    job = queue.get("w", block=0)
    assert job.ack()
    assert waiting.result(60)
    assert len(queue) == 2


@pytest.mark.parametrize("way", ["ack", "fail", "purge", "done_and", "xdel", "del"])
def test_everything_that_makes_room_wakes_a_putter(
    way: str, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        make_room(way, db, pool)


def make_room(way: str, db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
    queue: Any = db.queue("jobs", max_depth=1)
    id = queue.put(0)
    job: Any = queue.get("w", block=0) if way in ("ack", "fail", "done_and") else None
    started = threading.Event()

    def put() -> Any:
        started.set()
        return queue.put(1)

    waiting = pool.submit(put)
    assert started.wait(60)
    time.sleep(0.02)
    assert not waiting.done()
    calls: dict[str, Callable[[], Any]] = {
        "ack": lambda: job.ack(),
        "fail": lambda: job.fail(),
        "done_and": lambda: job.done_and(),
        "purge": queue.purge,
        "xdel": lambda: db.xdel("jobs", id),
        "del": lambda: db.delete("jobs"),
    }
    assert calls[way]()
    assert waiting.result(60)
    assert len(queue) == 1


def test_done_and_into_a_full_queue_does_not_hang(db: tidelog.Store) -> None:
    """A worker that waited there for room that only it can make would wait for ever."""
    queue: Any = db.queue("jobs")
    full: Any = db.queue("full", max_depth=1)
    full.put(0)
    queue.put(1)
    job = queue.get("w", block=0)
    try:
        assert job.done_and(full.new(2)) is True
    except tidelog.QueueFull:
        assert len(full) == 1 and len(queue) == 1 and job.ack()


# --- options


HUGE = 10**400
BAD_OPTIONS: list[tuple[str, Any]] = [
    *[("max_deliveries", bad) for bad in (0, -1, 1.5, "5", None, True, math.nan, HUGE)],
    *[
        ("retry_after", bad)
        for bad in (0, -1, math.nan, math.inf, -math.inf, "30", None, True, HUGE)
    ],
    *[("keep", bad) for bad in (-1, 1.5, "1", None, True, math.nan, timedelta(-1))],
    *[("max_depth", bad) for bad in (0, -1, 1.5, "1", True, math.inf, HUGE)],
    *[("codec", bad) for bad in ("pickle", None, 5, (), (json.dumps,), (1, 2), b"json", dict)],
    *[("name", bad) for bad in ("", None, 5, b"jobs", "a:dead", "a:failures", "a:holds", "\ud800")],
    *[("group", bad) for bad in ("", None, 5, b"workers", "\ud800")],
]


@pytest.mark.parametrize(
    ("option", "value"), BAD_OPTIONS, ids=[f"{o}-{i}" for i, (o, _) in enumerate(BAD_OPTIONS)]
)
def test_a_bad_option_is_named(option: str, value: Any, db: tidelog.Store, tmp_path: Path) -> None:
    arguments = {"name": "jobs", option: value}
    with pytest.raises(tidelog.DataError, match=option):
        db.queue(**arguments)
    with pytest.raises(tidelog.DataError, match=option):
        tidelog.queue(tmp_path / "s", **arguments)
    with tidelog.open(tmp_path / "s"):
        pass  # whether or not the directory was made, it is not held open
    assert not db.keys()


BAD_CALLS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "worker empty": ("worker", lambda q, job: q.get("", block=0)),
    "worker bytes": ("worker", lambda q, job: q.consume(b"x")),
    "worker number": ("worker", lambda q, job: q.consume(5)),
    "worker surrogate": ("worker", lambda q, job: q.get("\ud800", block=0)),
    "batch zero": ("batch", lambda q, job: q.consume("w", 0)),
    "batch negative": ("batch", lambda q, job: q.consume("w", -1)),
    "batch float": ("batch", lambda q, job: q.consume("w", 1.5)),
    "batch true": ("batch", lambda q, job: q.consume("w", True)),
    "block negative": ("block", lambda q, job: q.get("w", block=-1)),
    "block nan": ("block", lambda q, job: q.consume("w", 1, math.nan)),
    "block inf": ("block", lambda q, job: q.consume("w", 1, math.inf)),
    "block text": ("block", lambda q, job: q.get("w", block="1")),
    "block huge": ("block", lambda q, job: q.get("w", block=HUGE)),
    "time_limit zero": ("time_limit", lambda q, job: q.consume("w", time_limit=0)),
    "time_limit nan": ("time_limit", lambda q, job: q.consume("w", time_limit=math.nan)),
    "time_limit negative": ("time_limit", lambda q, job: q.consume("w", time_limit=-1)),
    "timeout negative": ("timeout", lambda q, job: q.put(1, timeout=-1)),
    "timeout nan": ("timeout", lambda q, job: q.put(1, timeout=math.nan)),
    "timeout text": ("timeout", lambda q, job: q.put_many([1], timeout="x")),
    "delay negative": ("delay", lambda q, job: job.nack("x", delay=-1)),
    "delay nan": ("delay", lambda q, job: job.nack("x", delay=math.nan)),
    "delay inf": ("delay", lambda q, job: job.nack("x", delay=math.inf)),
    "delay huge": ("delay", lambda q, job: job.nack("x", delay=1e300)),
    "delay text": ("delay", lambda q, job: job.nack("x", delay="1")),
    "extend negative": ("seconds", lambda q, job: job.extend(-1)),
    "extend nan": ("seconds", lambda q, job: job.extend(math.nan)),
    "extend inf": ("seconds", lambda q, job: job.extend(math.inf)),
    "extend none": ("seconds", lambda q, job: job.extend(None)),
    "peek negative": ("count", lambda q, job: q.peek(-1)),
    "peek text": ("count", lambda q, job: q.peek("x")),
    "list negative": ("count", lambda q, job: q.dead.list(-1)),
    "failures negative": ("count", lambda q, job: q.failures(count=-1)),
    "older_than nan": ("older_than", lambda q, job: q.dead.purge(older_than=math.nan)),
    "older_than negative": ("older_than", lambda q, job: q.dead.purge(older_than=-1)),
    "put_many number": ("values|iter", lambda q, job: q.put_many(5)),
    "done_and value": ("Put|new|put", lambda q, job: job.done_and({"n": 1})),
    "redrive where": ("where", lambda q, job: q.dead.redrive(where=5)),
    "redrive id": ("id", lambda q, job: q.dead.redrive("no id")),
    "purge id": ("id", lambda q, job: q.dead.purge(["no id"])),
    "get id": ("id", lambda q, job: q.dead.get("no id")),
}


@pytest.mark.parametrize("name", list(BAD_CALLS))
def test_a_bad_argument_is_named(name: str, db: tidelog.Store) -> None:
    queue: Any = db.queue("jobs")
    queue.put(1)
    queue.put(2)
    queue.get("w", block=0).fail("x")
    job = queue.get("w", block=0)
    before = state_of(db)
    told, call = BAD_CALLS[name]
    with pytest.raises(tidelog.DataError, match=told):
        call(queue, job)
    assert state_of(db) == before
    assert job.ack()


def test_a_put_for_another_store_is_refused(db: tidelog.Store, tmp_path: Path) -> None:
    queue: Any = db.queue("jobs")
    queue.put(1)
    job = queue.get("w", block=0)
    with tidelog.queue(tmp_path / "s", "jobs", fsync="no") as other:
        with pytest.raises(tidelog.DataError, match="store"):
            job.done_and(other.new(1))
    assert job.ack()


def test_absurd_but_allowed(db: tidelog.Store, clock: testing.Clock) -> None:
    queue: Any = db.queue("jobs", retry_after=0.001, max_deliveries=1)
    queue.put(None)
    with queue.get("w", block=0):
        raise ValueError
    assert queue.dead.count() == 1
    slow: Any = db.queue("slow", retry_after=86_400.0 * 365, max_deliveries=1_000_000)
    slow.put([])
    job = slow.get("w", block=0)
    assert job.extend(1e6) and job.nack("x")
    clock.advance(86_400 * 300)
    job = slow.get("w", block=0)
    if job is not None:
        assert job.ack()
    tiny: Any = db.queue("x" * 10_000, "y" * 10_000)
    tiny.put({"a": "b" * 1_000_000} | {"c": list(range(10))})
    with tiny.get("z" * 10_000, block=0) as job:
        assert len(job.value["a"]) == 1_000_000
    assert len(tiny) == 0


def test_a_value_larger_than_a_unit_is_refused(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        queue: Any = db.queue("jobs", codec="bytes")
        queue.put(b"small")
        job = queue.get("w", block=0)
        huge = bytes(129 << 20)  # more than a unit may have
        with pytest.raises((tidelog.NotStored, tidelog.ResponseError), match="at most"):
            queue.put(huge)
        with pytest.raises((tidelog.NotStored, tidelog.ResponseError), match="at most"):
            job.done_and(queue.new(huge))
        assert len(queue) == 1 and job.ack() is True


# --- clocks


def test_a_clock_that_jumped_back_over_a_restart_holds_nothing_up(
    disk: SimulatedDisk, clock: testing.Clock
) -> None:
    """The jobs of a dead process are taken over after `retry_after`, whatever the wall clock shows by then."""
    with tidelog.open(ROOT, fsync="no", disk=disk, clock=clock) as db:
        queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
        queue.put_many([1, 2])
        job = queue.get("a", block=0)
        queue.get("a", block=0).nack("x", delay=20.0)
    del job
    clock.jump(-86_400)
    with tidelog.open(ROOT, fsync="no", disk=disk, clock=clock) as db:
        queue = db.queue("jobs", retry_after=RETRY_AFTER)
        clock.advance(RETRY_AFTER + 0.1)
        assert queue.get("b", block=0) is not None, "an abandoned job has to wait for the clock"
        clock.advance(20)
        assert queue.get("b", block=0) is not None, "a paused job has to wait for the clock"


def test_a_clock_that_jumped_forward_and_back_holds_nothing_up(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    """The store's time stands still until the clock has caught up; leases and pauses do not."""
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    clock.jump(86_400)
    queue.put_many([1, 2])
    clock.jump(-86_400)
    job = queue.get("a", block=0)
    queue.get("a", block=0).nack("x", delay=20.0)
    del job
    gc.collect()
    clock.advance(RETRY_AFTER + 0.1)
    assert queue.get("b", block=0) is not None, "an abandoned job has to wait for the clock"
    clock.advance(20)
    assert queue.get("b", block=0) is not None, "a paused job has to wait for the clock"


def test_a_clock_that_jumps_takes_nothing_from_the_living_and_shortens_no_pause(
    db: tidelog.Store, clock: testing.Clock
) -> None:
    queue: Any = db.queue("jobs", retry_after=RETRY_AFTER)
    queue.put_many([1, 2, 3])
    job = queue.get("a", block=0)
    queue.get("a", block=0).nack("x", delay=20.0)
    lent = queue.get("a", block=0)
    assert lent.extend(50)
    del lent
    gc.collect()
    for by in (86_400, -86_400, -86_400 * 20, 86_400 * 100):
        clock.jump(by)
        clock.advance(0.1)
        assert queue.get("b", block=0) is None
    clock.advance(20)
    paused = queue.get("b", block=0)
    assert paused is not None and paused.value == 2 and queue.get("b", block=0) is None
    clock.advance(40)
    assert job.ack() is True
