"""Schedules: ticks on time and each once, through crashes, pauses, changes of the clock and of summer time."""

from __future__ import annotations

import asyncio
import math
import random
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.jobs.names import names_of
from tests.rounds import rest_slow
from tests.until import parked, until

import tidelog
from tidelog import testing
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.rules import GRACE_MS, make_rule
from tidelog.jobs.work.ticks import LOOK_SCHEDULES, TICKS_MAX

BERLIN = ZoneInfo("Europe/Berlin")
DAY = 86_400


@pytest.fixture
def clock() -> testing.Clock:
    return testing.Clock(datetime(2026, 1, 1, 12, tzinfo=UTC))


@pytest.fixture
def db(tmp_path: Path, clock: testing.Clock) -> Iterator[Any]:
    with tidelog.open(tmp_path / "s", clock=clock, fsync="no") as found:
        yield found


def ticks(queue: Any) -> list[str]:
    """The ticks of the jobs that are due, done."""
    done = []
    for job in queue.consume("anna", 100, block=0):
        with job:
            done.append(job.headers["tick"])
    return done


def in_berlin(*when: int) -> int:
    return int(datetime(*when, tzinfo=BERLIN).timestamp()) * 1000  # type: ignore[misc, arg-type]


def berlin_ticks(cron: str, start: int, count: int) -> list[str]:
    rule = make_rule("s", cron, None, "q", b"", "Europe/Berlin", "one").begun(start)
    found: list[str] = []
    at: int | None = start
    while len(found) < count:
        assert at is not None
        at = rule.after(at)
        assert at is not None and rule.until(at) == at
        found.append(rule.shown_tick(at))
    return found


def test_an_interval(db: Any, clock: testing.Clock) -> None:
    schedule = db.schedule("poll", every=60, queue="jobs", value={"n": 1})
    assert (schedule.every, schedule.cron, schedule.paused, schedule.ticks) == (
        60.0,
        None,
        False,
        0,
    )
    assert schedule.next_at == clock.now() + timedelta(seconds=60)
    queue = db.queue("jobs")
    assert ticks(queue) == []
    clock.advance(61)
    job = queue.get("anna", block=0)
    assert job.value == {"n": 1}
    assert job.headers == {"schedule": "poll", "tick": "2026-01-01T12:01:00+00:00"}
    job.ack()
    clock.advance(60)
    assert ticks(queue) == ["2026-01-01T12:02:00+00:00"]
    assert db.schedules.list()[0].ticks == 2


def test_a_cron_expression_in_a_zone(db: Any, clock: testing.Clock) -> None:
    db.schedule("nightly", "0 3 * * *", queue="jobs", tz="Europe/Berlin")
    queue = db.queue("jobs")
    found = []
    for _ in range(3):
        clock.advance(DAY)
        found += ticks(queue)
    assert found == [f"2026-01-0{day}T03:00:00+01:00" for day in (2, 3, 4)]


def test_the_same_schedule_again_changes_nothing(db: Any, clock: testing.Clock) -> None:
    first = db.schedule("poll", every=60, queue="jobs")
    clock.advance(30)
    assert db.schedule("poll", every=timedelta(minutes=1), queue="jobs") == first
    assert len(db.schedules.list()) == 1


def test_another_schedule_of_the_name_replaces_it(db: Any, clock: testing.Clock) -> None:
    db.schedule("poll", every=60, queue="jobs", value="old")
    db.schedule("poll", every=100, queue="jobs", value="new")
    queue = db.queue("jobs")
    clock.advance(61)
    assert ticks(queue) == []
    clock.advance(61)
    job = queue.get("anna", block=0)
    assert job.value == "new" and len(db.schedules.list()) == 1


def test_pause_resume_and_remove(db: Any, clock: testing.Clock) -> None:
    db.schedule("poll", every=60, queue="jobs")
    queue = db.queue("jobs")
    assert db.schedules.pause("poll") and db.schedules.pause("poll")
    assert db.schedules.list()[0].paused and db.schedules.list()[0].next_at is None
    clock.advance(600)
    assert ticks(queue) == []
    assert db.schedules.resume("poll")
    assert ticks(queue) == [], "what a pause missed is not made up"
    clock.advance(61)
    assert len(ticks(queue)) == 1
    assert db.schedules.pause("poll")
    clock.advance(600)
    db.schedule("poll", every=60, queue="jobs", value="other")
    assert db.schedules.list()[0].paused, "a changed schedule stays paused"
    assert db.schedules.resume("poll") and db.schedules.resume("poll")
    assert ticks(queue) == [], "what a pause missed is not made up"
    clock.advance(61)
    assert len(ticks(queue)) == 1
    assert db.schedules.remove("poll") and not db.schedules.remove("poll")
    clock.advance(600)
    assert ticks(queue) == [] and db.schedules.list() == []
    for call in (db.schedules.pause, db.schedules.resume):
        assert not call("poll")


def test_the_first_call_of_a_store_may_end_a_pause(tmp_path: Path, clock: testing.Clock) -> None:
    with tidelog.open(tmp_path / "s", clock=clock, fsync="no") as db:
        db.schedule("poll", every=60, queue="jobs")
        db.schedules.pause("poll")
    with tidelog.open(tmp_path / "s", clock=clock, fsync="no") as db:
        assert db.schedules.resume("poll")
        queue = db.queue("jobs")
        clock.advance(61)
        assert len(ticks(queue)) == 1


@pytest.mark.parametrize(
    ("catch_up", "late", "expected"),
    [
        ("one", 330, ["12:05"]),
        ("all", 330, ["12:01", "12:02", "12:03", "12:04", "12:05"]),
        ("none", 330, ["12:05"]),
        ("none", 60 + GRACE_MS // 1000 - 1, ["12:01"]),
    ],
)
def test_ticks_that_no_worker_made(
    db: Any, clock: testing.Clock, catch_up: str, late: int, expected: list[str]
) -> None:
    db.schedule("poll", every=60, queue="jobs", catch_up=catch_up)
    clock.advance(late)
    assert [tick[11:16] for tick in ticks(db.queue("jobs"))] == expected


@pytest.mark.parametrize(("catch_up", "count"), [("one", 1), ("all", 3), ("none", 0)])
def test_days_that_no_worker_made(db: Any, clock: testing.Clock, catch_up: str, count: int) -> None:
    db.schedule("nightly", "0 3 * * *", queue="jobs", catch_up=catch_up)
    clock.advance(3 * DAY)
    found = ticks(db.queue("jobs"))
    assert len(found) == count
    assert not found or found[-1] == "2026-01-04T03:00:00+00:00"
    clock.advance(DAY - 9 * 3600)
    assert ticks(db.queue("jobs")) == ["2026-01-05T03:00:00+00:00"]


def test_a_long_time_without_workers_is_made_up_in_parts(db: Any, clock: testing.Clock) -> None:
    db.schedule("poll", every=60, queue="jobs", catch_up="all")
    total = 2 * TICKS_MAX + 17
    clock.advance(60 * total + 1)
    found = ticks(db.queue("jobs"))
    assert len(found) == total and found == sorted(set(found))


def test_a_worker_of_any_queue_makes_the_ticks(db: Any, clock: testing.Clock) -> None:
    db.schedule("poll", every=60, queue="jobs")
    clock.advance(61)
    assert db.queue("others").get("anna", block=0) is None
    assert db.queue("jobs").stats().waiting == 1
    assert db.xinfo_groups("jobs") == [], "its workers create their groups"
    assert len(ticks(db.queue("jobs", "own"))) == 1


def test_a_waiting_worker_wakes_at_the_tick(db: Any, clock: testing.Clock) -> None:
    queue = db.queue("jobs")
    got: list[str] = []

    def worker() -> None:
        for job in queue.consume("anna", block=100_000):
            with job:
                got.append(job.headers["schedule"])
            if len(got) == 2:
                return

    thread = threading.Thread(target=worker)
    thread.start()
    parked(db)
    db.schedule("later", every=100, queue="jobs")
    db.schedule("sooner", "* * * * *", queue="jobs")
    parked(db)
    clock.advance(61)
    until(lambda: got == ["sooner"])
    parked(db)
    clock.advance(40)
    thread.join(60)
    assert got == ["sooner", "later"]


def test_databases_have_their_own_schedules(db: Any, clock: testing.Clock) -> None:
    other = db.db(1)
    db.schedule("poll", every=60, queue="jobs", value=0)
    other.schedule("poll", every=60, queue="jobs", value=1)
    clock.advance(61)
    assert [view.queue("jobs").get("anna", block=0).value for view in (db, other)] == [0, 1]
    assert len(ticks(db.queue("jobs"))) == len(ticks(other.queue("jobs"))) == 0


# --- clocks


def test_a_time_that_summer_time_skips_ticks_right_after_it() -> None:
    start = in_berlin(2026, 3, 28, 12)
    assert berlin_ticks("30 2 * * *", start, 2) == [
        "2026-03-29T03:00:00+02:00",
        "2026-03-30T02:30:00+02:00",
    ]


def test_a_time_that_winter_time_repeats_ticks_once() -> None:
    start = in_berlin(2026, 10, 24, 12)
    assert berlin_ticks("30 2 * * *", start, 2) == [
        "2026-10-25T02:30:00+02:00",
        "2026-10-26T02:30:00+01:00",
    ]


def test_a_tick_is_never_before_the_time_that_it_follows() -> None:
    between = in_berlin(2026, 10, 25, 1) + 3600_000 + 45 * 60_000  # 02:45, for the first time
    rule = make_rule("s", "30 2 * * *", None, "q", b"", "Europe/Berlin", "one").begun(between)
    for minutes in range(0, 120, 7):
        at = between + minutes * 60_000
        tick = rule.after(at)
        assert tick is not None and tick > at
        assert rule.shown_tick(tick) == "2026-10-26T02:30:00+01:00"


def test_every_quarter_of_an_hour_goes_on_through_both_changes() -> None:
    for day in ((2026, 3, 29), (2026, 10, 25)):
        start = in_berlin(*day, 0)
        rule = make_rule("s", "*/15 * * * *", None, "q", b"", "Europe/Berlin", "one").begun(start)
        at: int | None = start
        for number in range(1, 30):
            assert at is not None
            at = rule.after(at)
            assert at == start + number * 15 * 60_000


def test_a_clock_that_is_set_back_repeats_no_tick(db: Any, clock: testing.Clock) -> None:
    db.schedule("poll", "* * * * *", queue="jobs")
    queue = db.queue("jobs")
    clock.advance(61)
    assert len(ticks(queue)) == 1
    clock.jump(-3600)
    clock.advance(30)
    assert ticks(queue) == []
    clock.advance(30)
    assert len(ticks(queue)) == 1


def test_an_interval_goes_on_when_the_clock_is_set_back(db: Any, clock: testing.Clock) -> None:
    db.schedule("poll", every=60, queue="jobs")
    queue = db.queue("jobs", retry_after=5)
    for _ in range(3):
        clock.advance(60.5)
        assert len(ticks(queue)) == 1
    clock.jump(-120)
    clock.advance(6)  # workers notice it when they look again
    assert ticks(queue) == []
    for _ in range(5):
        clock.advance(60.5)
        assert len(ticks(queue)) == 1


def test_a_time_that_comes_twice_has_one_tick_of_a_cron_expression(
    db: Any, clock: testing.Clock
) -> None:
    db.schedule("poll", "* * * * *", queue="jobs")
    queue, made = db.queue("jobs"), list[str]()
    for _ in range(3):
        clock.advance(60.5)
        made += ticks(queue)
    clock.jump(-125)
    for _ in range(5):
        clock.advance(60.5)
        made += ticks(queue)
    assert made == [f"2026-01-01T12:0{minute}:00+00:00" for minute in range(1, 6)]


def test_a_clock_that_is_set_back_by_months_sets_the_ticks_of_many_schedules(
    db: Any, clock: testing.Clock
) -> None:
    many = 2 * LOOK_SCHEDULES + 1
    for n in range(many):
        db.schedule(f"s{n}", "0 * * * *", queue="jobs")
    queue = db.queue("jobs", retry_after=5)
    assert ticks(queue) == []
    clock.jump(-200 * DAY)
    clock.advance(6)
    for _ in range(3):
        assert ticks(queue) == []
    clock.advance(3601)
    for _ in range(3):
        made = ticks(queue)
        many -= len(made)
    assert many == 0
    assert {each.ticks for each in db.schedules.list()} == {1}


def test_a_clock_that_leaps_forward_makes_ticks_as_if_they_were_missed(
    db: Any, clock: testing.Clock
) -> None:
    db.schedule("poll", every=60, queue="jobs")
    queue = db.queue("jobs", retry_after=8)
    assert ticks(queue) == []
    clock.jump(3600)
    clock.advance(9)
    assert len(ticks(queue)) == 1


# --- bad input


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "every"),
        ({"cron": "* * * * *", "every": 60}, "both"),
        ({"cron": "61 * * * *"}, "minute"),
        ({"cron": "no"}, "fields"),
        ({"cron": ""}, "fields"),
        ({"cron": 5}, "str"),
        ({"cron": "0 0 30 2 *"}, "0 0 30 2"),
        ({"cron": "0 0 * * *", "tz": "Europe/Nowhere"}, "Nowhere"),
        ({"cron": "0 0 * * *", "tz": "../etc/passwd"}, "time zone"),
        ({"cron": "0 0 * * *", "tz": 1}, "time zone"),
        ({"every": 60, "tz": "UTC"}, "tz"),
        ({"every": 0}, "every"),
        ({"every": 0.5}, "at least 1 second"),
        ({"every": -1}, "every"),
        ({"every": math.nan}, "every"),
        ({"every": 60, "catch_up": "some"}, "catch_up"),
        ({"every": 60, "queue": "jobs:dead"}, "jobs|name"),
        ({"every": 60, "queue": "tidelog:schedules"}, "schedules"),
        ({"every": 60, "queue": ""}, "name"),
        ({"every": 60, "value": {1, 2}}, "encode"),
        ({"every": 60, "codec": "no"}, "codec"),
    ],
)
def test_bad_arguments(db: Any, given: dict[str, Any], named: str) -> None:
    with pytest.raises((tidelog.DataError, tidelog.EncodeError), match=named):
        db.schedule("s", **{"queue": "jobs", **given})
    with pytest.raises(tidelog.DataError):
        db.schedule("", every=60, queue="jobs")
    assert db.schedules.list() == []


def test_a_last_tick_ends_the_schedule_of_a_rule_that_never_fires_again() -> None:
    rule = make_rule("s", "0 0 29 2 */7", None, "q", b"", None, "one").begun(in_berlin(2026, 1, 1))
    assert rule.after(in_berlin(2026, 1, 1)) is not None
    assert rule.after(in_berlin(9999, 1, 1)) is None


def test_a_schedule_in_a_zone_that_is_unknown_here_stops_no_other(
    db: Any, clock: testing.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.schedule("cron", "* * * * *", queue="jobs", tz="Europe/Berlin")
    db.schedule("poll", every=60, queue="jobs", value=7)

    def no_zone(name: str) -> Any:
        raise tidelog.DataError(f"there is no time zone {name!r} on this machine")

    monkeypatch.setattr("tidelog.jobs.rules._zone", no_zone)
    with pytest.raises(tidelog.DataError, match="no time zone 'Europe/Berlin'"):
        db.schedule("other", "* * * * *", queue="jobs", tz="Europe/Berlin")
    clock.advance(61)
    queue = db.queue("jobs")
    job = queue.get("anna", block=0)
    assert job.value == 7
    job.ack()
    monkeypatch.undo()
    clock.advance(61)
    assert len(ticks(queue)) == 2, "of both, as soon as the zone is known"


def test_a_queue_key_of_another_type_stops_no_worker(db: Any, clock: testing.Clock) -> None:
    db.set("jobs", "a string")
    db.schedule("poll", every=60, queue="jobs")
    clock.advance(61)
    db.queue("others").put(1)
    assert db.queue("others").get("anna", block=0).value == 1
    db.delete("jobs")
    clock.advance(61)
    assert len(ticks(db.queue("jobs"))) == 1


def test_an_entry_that_another_client_spoiled_stops_no_worker(
    db: Any, clock: testing.Clock
) -> None:
    db.schedule("poll", every=60, queue="jobs")
    id = db.xadd("tidelog:schedules", {"name": "odd"})
    db.execute_command(
        *("XCLAIM", "tidelog:schedules", "due", "later", 0, id, "TIME", 5, "FORCE", "JUSTID")
    )
    db.execute_command(
        *("XCLAIM", "tidelog:schedules", "due", "later", 0, "9-9", "TIME", 5, "FORCE", "JUSTID")
    )
    clock.advance(61)
    assert len(ticks(db.queue("jobs"))) == 1
    assert [schedule.name for schedule in db.schedules.list()] == ["poll"]


def test_the_stream_of_schedules_is_no_queue(db: Any) -> None:
    db.schedule("poll", every=60, queue="jobs")
    assert names_of(db) == []


# --- crashes


@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_no_crash_loses_a_tick_or_makes_one_twice(seed: int) -> None:
    clock, disk, dice = testing.Clock(), SimulatedDisk(seed), random.Random(seed)
    seen: list[str] = []
    start = clock.now()
    for life in range(8):
        with tidelog.open(Path("/store"), disk=disk, clock=clock) as db:
            db.schedule("poll", every=60, queue="jobs", catch_up="all")
            queue = db.queue("jobs", retry_after=5)
            for _ in range(dice.randrange(5)):
                clock.advance(dice.choice((20, 60, 150)))
                for job in queue.consume("anna", block=0):
                    if dice.random() < 0.7:
                        with job:
                            seen.append(job.headers["tick"])
                if dice.random() < 0.3:
                    break
            left = disk.killed() if dice.random() < 0.5 else disk.power_loss(dice)
        disk = left
    with tidelog.open(Path("/store"), disk=disk, clock=clock) as db:
        clock.advance(61)
        for job in db.queue("jobs").consume("anna", block=60):
            with job:
                seen.append(job.headers["tick"])
            if not len(db.queue("jobs")):
                break
    last = int((clock.now() - start).total_seconds()) // 60
    wanted = [(start + timedelta(minutes=n)).isoformat() for n in range(1, last + 1)]
    assert sorted(seen) == wanted, f"seed {seed}"


def test_with_asyncio(tmp_path: Path, clock: testing.Clock) -> None:
    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", clock=clock) as db:
            schedule = await db.schedule("poll", every=60, queue="jobs", value="a")
            assert [each.name for each in await db.schedules.list()] == [schedule.name]
            queue = db.queue("jobs")
            assert await db.schedules.pause("poll") and await db.schedules.resume("poll")
            clock.advance(61)
            job = await queue.get("anna", block=0)
            assert job is not None and job.value == "a" and await job.ack()
            assert await db.schedules.remove("poll")

    asyncio.run(main())
