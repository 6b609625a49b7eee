"""The jobs of a queue as a table, compared with the figures and jobs of the live queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.spark.jobs.conftest import Tables
from tests.spark.jobs.made import EVENTS
from tests.tools.queue_made import mails

import tidelog
from tidelog import testing
from tidelog.jobs.stats import Stats
from tidelog.spark.jobs import queue as analysis
from tidelog.spark.jobs.queue import jobs, streams_of
from tidelog.spark.jobs.schedules import STREAMS, schedules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession


class Live(NamedTuple):
    """The state of the open queue at the moment of the snapshot."""

    path: Path
    at: datetime
    stats: Stats
    peeked: dict[str, Any]
    dead: dict[str, Any]
    failures: list[Any]


def live(db: tidelog.Store, clock: testing.Clock, **options: Any) -> Live:
    queue = db.queue("mails", **options)
    path = db.snapshot().path
    peeked = {job.id: job for job in queue.peek(100)}
    dead = {job.original_id: job for job in queue.dead}
    return Live(path, clock.now(), queue.stats(), peeked, dead, queue.failures(count=100))


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    clock = testing.Clock()
    with mails(tmp_path_factory.mktemp("mails") / "data", clock) as db:
        db.execute_command(
            *("XADD", "mails", "*", "value", "1", "header.a", "first"),
            *("header.a", "last", "value", "2", b"header.\xff", b"\xfe"),
        )
        yield live(db, clock)


def frame_of(spark: SparkSession, told: Live, **options: Any) -> DataFrame:
    tables = Tables(spark, told.path)
    entries = tables("entries", streams=streams_of("mails"))
    return jobs(entries, tables("groups"), tables("pending"), "mails", at=told.at, **options)


def agree(rows: list[Row], told: Live) -> None:
    """Check the states of a table against the queue's own figures."""
    stats = told.stats
    states = Counter(row["state"] for row in rows)
    workers = Counter(row["worker"] for row in rows if row["state"] == "in_flight")
    assert dict(states) == {
        name: number
        for name, number in {
            "waiting": stats.waiting,
            "in_flight": sum(stats.in_flight.values()),
            "paused": stats.paused,
            "kept": stats.kept,
            "dead": stats.dead,
            "scheduled": stats.scheduled,
        }.items()
        if number
    }
    assert dict(workers) == stats.in_flight
    assert {row["id"] for row in rows if row["state"] == "waiting"} == set(told.peeked)
    unfinished = [row for row in rows if row["state"] in ("waiting", "in_flight", "paused")]
    assert len(unfinished) == stats.depth
    if stats.oldest_seconds is not None:
        oldest = min(row["put_at"] for row in unfinished)
        assert (told.at - utc(oldest)).total_seconds() == pytest.approx(stats.oldest_seconds)


def replaced(shown: str) -> str:
    """A text as Spark shows it: the queue escapes a byte that is no UTF-8, Spark replaces it."""
    return shown.replace("\\xff", "\N{REPLACEMENT CHARACTER}").replace(
        "\\xfe", "\N{REPLACEMENT CHARACTER}"
    )


def utc(moment: datetime) -> datetime:
    return moment.astimezone()


def test_the_table_agrees_with_the_queue(spark: SparkSession, told: Live) -> None:
    rows = frame_of(spark, told).collect()
    agree(rows, told)
    assert {row["state"] for row in rows} >= {"waiting", "in_flight", "paused", "dead"}
    assert {(row["db"], row["queue"], row["group"]) for row in rows} == {(0, "mails", "workers")}
    by_id = {row["id"]: row for row in rows}
    for id, job in told.peeked.items():
        row = by_id[id]
        assert row["headers"] == {replaced(n): replaced(text) for n, text in job.headers.items()}
        try:
            assert row["value"] == job.raw.decode()
        except UnicodeDecodeError:
            assert row["value"] is None
        assert (row["deliveries"], row["worker"], row["worked_ms"]) == (0, None, None)
        assert row["waited_ms"] == (told.at - job.enqueued_at) / timedelta(milliseconds=1)
    for id, dead in told.dead.items():
        row = by_id[id]
        assert (row["dead_id"], row["deliveries"]) == (dead.id, dead.deliveries)
        assert (row["last_error"], row["headers"]) == (dead.reason, dead.headers)
        assert row["worker"] == (dead.errors[-1].worker if dead.errors else None)
        assert (utc(row["put_at"]), utc(row["died_at"])) == (dead.enqueued_at, dead.died_at)
        assert row["value"] == (None if dead.raw.startswith(b"\x80") else dead.raw.decode())
    (paused,) = (row for row in rows if row["state"] == "paused")
    assert paused["last_error"] == "try again"
    assert (paused["deliveries"], paused["worker"]) == (1, None)
    failed = next(each for each in told.failures if each.job_id == paused["id"])
    assert utc(paused["until"]) - failed.at == timedelta(days=1)
    (held,) = (row for row in rows if row["state"] == "in_flight")
    assert (held["worker"], held["deliveries"]) == ("worker-2", 1)
    # Its lease was renewed meanwhile, so the first delivery is not in the snapshot.
    assert held["waited_ms"] is None and held["worked_ms"] is None


def test_bytes_pauses_that_are_over_and_jobs_that_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = testing.Clock()
    events: list[Any] = []

    def event(what: str, job: str, count: int | None = None) -> None:
        at, group = clock.now(), None if what == "added" else b"workers"
        worker, delivered = (b"w", at) if count else (None, None)
        row = len(events), True, at, 0, what, b"mails", group, worker, job, count, delivered, None
        events.append(row)

    path = tmp_path / "data"
    with tidelog.open(path, fsync="no", clock=clock) as db:
        queue = db.queue("mails", codec="bytes", keep=10, retry_after=1000)
        for value in (b"\x80", b"two", b"three", b"four", b"five", b"six"):
            id = queue.put(value)
            event("added", id)
        clock.advance(2)
        done, failed, given, waits, held = (queue.get("w", block=0) for _ in range(5))
        assert done and failed and given and waits and held
        for job in (done, failed, given, waits, held):
            event("delivered", job.id, 1)
        clock.advance(3)
        assert done.ack() and given.release() and failed.nack("no", delay=5)
        event("acknowledged", done.id)
        event("released", given.id)
        event("released", failed.id)
        assert waits.nack("later", delay=50) and held.extend(2000)
        event("released", waits.id)
        event("claimed", held.id, 1)
        clock.advance(6)
        told = live(db, clock, codec="bytes", keep=10)
        until = clock.now() + timedelta(seconds=2000 - 6)
    log = spark.createDataFrame(events, EVENTS)
    rows = frame_of(spark, told, codec="bytes", events=log).collect()
    agree(rows, told)
    by_id = {row["id"]: row for row in rows}
    assert bytes(by_id[done.id]["value"]) == b"\x80"
    # state, waited, worked, deliveries, last error
    expected = {
        done.id: ("kept", 2000, 3000, None, None),
        failed.id: ("waiting", 2000, None, 1, "no"),
        given.id: ("waiting", 2000, None, 0, None),
        waits.id: ("paused", 2000, None, 1, "later"),
        held.id: ("in_flight", 2000, 9000, 1, None),
        id: ("waiting", 11000, None, 0, None),
    }
    names = ("state", "waited_ms", "worked_ms", "deliveries", "last_error")
    assert {row["id"]: tuple(row[name] for name in names) for row in rows} == expected
    assert utc(by_id[held.id]["until"]) == until and by_id[failed.id]["until"] is None


def test_delayed_jobs_and_the_lanes_of_priorities(spark: SparkSession, tmp_path: Path) -> None:
    """A lane is filled as the queue fills it: IDs of its own, the same group, and the shared streams beside it."""
    clock = testing.Clock()
    with tidelog.open(tmp_path / "data", fsync="no", clock=clock) as db:
        queue = db.queue("mails")
        soon = queue.put("soon", delay=5, ttl=600)
        later = queue.put("later", delay=50)
        gone = queue.put("gone", delay=50)
        now = queue.put("now")
        assert queue.cancel(gone)
        clock.advance(10)
        ms = int(clock.now().timestamp() * 1000)
        held, waits, dead = (f"{ms}-{(7 << 17) + n}" for n in range(3))
        lane = "mails:priority:7"
        db.xgroup_create(lane, "workers", id="0", mkstream=True)
        for id in (held, waits):
            db.xadd(lane, {"value": '"x"', "priority": "7", "key": "ann"}, id=id)
        db.xreadgroup("workers", "w", {lane: ">"}, count=1)
        db.xadd("mails:dead", {"value": "1", "priority": "7", "id": dead, "group": "workers"})
        clock.advance(1)
        at, path = clock.now(), db.snapshot().path
    tables = Tables(spark, path)
    entries = tables("entries", streams=streams_of("mails"))
    found = jobs(entries, tables("groups"), tables("pending"), "mails", at=at)
    rows = {row["id"]: row for row in found.collect()}
    states = {id: (row["state"], row["priority"], row["key"]) for id, row in rows.items()}
    assert states == {
        soon: ("waiting", 0, None),
        later: ("scheduled", 0, None),
        now: ("waiting", 0, None),
        held: ("in_flight", 7, "ann"),
        waits: ("waiting", 7, "ann"),
        dead: ("dead", 7, None),
    }
    put = utc(rows[later]["put_at"])
    assert utc(rows[later]["due_at"]) - put == timedelta(seconds=50)
    assert utc(rows[soon]["expires_at"]) - put == timedelta(seconds=605)
    waited = {id: rows[id]["waited_ms"] for id in (soon, later, now, waits)}
    assert waited == {soon: 6000, later: None, now: 11000, waits: 1000}
    assert (rows[later]["worker"], rows[later]["deliveries"]) == (None, 0)


def test_a_job_that_was_delayed_names_its_first_id(spark: SparkSession, tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.open(tmp_path / "data", fsync="no", clock=clock) as db:
        queue = db.queue("mails")
        first = queue.put("x", delay=5)
        clock.advance(6)
        job = queue.get("w", block=0)
        assert job is not None
        told = live(db, clock)
        (row,) = frame_of(spark, told).collect()
    agree([row], told)
    assert (row["id"], row["origin"], row["due_at"]) == (job.id, first, None)


def test_schedules(spark: SparkSession, tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.open(tmp_path / "data", fsync="no", clock=clock) as db:
        db.schedule("often", every=60, queue="mails", value="report", catch_up="all")
        db.schedule("nightly", "0 3 * * *", queue="mails", value=1, tz="Europe/Berlin")
        db.schedule("off", every=60, queue="mails", value=1)
        db.schedules.pause("off")
        clock.advance(130)
        assert db.queue("mails").get("w", block=0) is not None
        clock.advance(65)
        listed = {each.name: each for each in db.schedules.list()}
        path = db.snapshot().path
        at = clock.now()
    tables = Tables(spark, path)
    table = schedules(tables("entries", streams=STREAMS), tables("pending"), at=at)
    rows = {row["name"]: row for row in table.collect()}
    assert set(rows) == set(listed) == {"often", "nightly", "off"}
    for name, row in rows.items():
        live_one = listed[name]
        every = None if live_one.every is None else live_one.every * 1000
        assert (row["queue"], row["cron"], row["tz"]) == ("mails", live_one.cron, live_one.tz)
        assert (row["every_ms"], row["catch_up"]) == (every, live_one.catch_up)
        assert (bytes(row["value"]), row["ticks"]) == (live_one.raw, live_one.ticks)
        assert (None if row["next_at"] is None else utc(row["next_at"])) == live_one.next_at
    assert (rows["often"]["ticks"], rows["often"]["late_ms"]) == (2, 15_000)
    assert (rows["nightly"]["late_ms"], rows["off"]["late_ms"]) == (0, None)


def test_the_states_are_those_of_the_statistics() -> None:
    known = set(Stats.__dataclass_fields__)
    assert set(analysis.STATES) <= known


def test_a_name_that_no_queue_can_have() -> None:
    with pytest.raises(tidelog.DataError, match="must not end in"):
        streams_of("mails:dead")
