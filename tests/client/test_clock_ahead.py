"""A store that a machine opened whose clock stood ten years ahead, after the clock was set right.

Its IDs and its time are in 2036. All that counts by a duration goes on, also while the store is closed, and what a
person named by a time is due at that time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from tests.client.conftest import KINDS, opened
from tests.rounds import rest_slow

import tidelog
from tidelog import testing

RIGHT: Final = datetime(2026, 1, 1, tzinfo=UTC)
AHEAD: Final = datetime(2036, 1, 1, tzinfo=UTC)
DAY: Final = 86_400.0
RETRY_AFTER: Final = 10
# The face, the lives before, and whether the store is closed while time passes.
WORLDS: Final = (
    ("embedded", "ahead", "open"),
    ("shared asyncio", "right, ahead", "closed"),
    ("embedded", "ahead", "closed"),
    ("embedded", "right, ahead", "closed"),
    ("embedded asyncio", "ahead", "closed"),
    ("shared", "ahead", "open"),
)


class World:
    """A store and a queue, seen by one kind of face.

    clock   of the machine; each life has its own, because a machine's monotonic clock begins anew
    ends    whether the store is closed while time passes
    """

    def __init__(self, root: Path, kind: str, ends: bool) -> None:
        self.root, self.kind, self.ends = root, kind, ends
        self.clock = testing.Clock(RIGHT)
        self.life = ExitStack()

    def begin(self, now: datetime) -> None:
        """Open the store on a machine whose clock shows `now`."""
        self.clock = testing.Clock(now)
        self.life = ExitStack()
        opening = opened(self.kind, self.root, clock=self.clock)
        self.db = self.life.enter_context(opening)
        self.q = self.db.queue("q", retry_after=RETRY_AFTER)

    def end(self) -> None:
        """Close the store."""
        self.life.close()

    def pass_time(self, seconds: float) -> None:
        """So much time passes."""
        if self.ends:
            self.end()
            self.begin(self.clock.now() + timedelta(seconds=seconds))
        else:
            self.clock.advance(seconds)

    def work_off(self) -> list[Any]:
        """The values of the jobs that are due, which are done then."""
        found = []
        while (job := self.q.get("anna", block=0)) is not None:
            found.append(job.value)
            job.ack()
        return found

    def ticks(self) -> list[tuple[str, str]]:
        """Schedule and tick of the jobs that are due, which are done then."""
        found = []
        while (job := self.q.get("anna", block=0)) is not None:
            found.append((job.headers["schedule"], job.headers["tick"]))
            job.ack()
        return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=rest_slow(WORLDS, 2), ids=": ".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """A store that was ahead, and is open under a clock that is right."""
    kind, before, how = request.param
    found = World(tmp_path / "s", kind, how == "closed")
    for each in before.split(", "):
        found.begin(RIGHT - timedelta(days=1) if each == "right" else AHEAD)
        found.q.put("old")
        found.q.put("sent")
        found.q.get("anna", block=0).ack()
        found.db.schedule("cron", "* * * * *", queue="q", value="cron")
        found.db.schedule("every", every=60, queue="q", value="every")
        found.db.schedules.pause("cron")
        found.db.schedules.pause("every")
        found.end()
    found.begin(RIGHT)
    assert found.work_off()[-1] == "sent"
    try:
        yield found
    finally:
        found.end()


def test_delay(world: World) -> None:
    world.q.put("a", delay=60)
    assert world.q.peek(scheduled=True)[0].due_at == RIGHT + timedelta(seconds=60)
    world.pass_time(59)
    assert world.work_off() == [] and world.q.stats().scheduled == 1
    world.pass_time(2)
    assert world.work_off() == ["a"]


def test_at(world: World) -> None:
    world.q.put("b", at=RIGHT + timedelta(seconds=90))
    world.q.put_many(["a"], at=RIGHT + timedelta(seconds=60))
    world.q.put("now", at=RIGHT - timedelta(seconds=1))
    due = [job.due_at for job in world.q.peek(scheduled=True, count=2)]
    assert due == [RIGHT + timedelta(seconds=60), RIGHT + timedelta(seconds=90)]
    assert world.work_off() == ["now"] and world.q.stats().scheduled == 2
    world.pass_time(59)
    assert world.work_off() == []
    world.pass_time(2)
    assert world.work_off() == ["a"]
    world.pass_time(30)
    assert world.work_off() == ["b"]


def test_moved(world: World) -> None:
    first = world.q.put("a", at=RIGHT + timedelta(days=1))
    second = world.q.put("b", delay=DAY)
    third = world.q.put("c", delay=DAY)
    assert world.q.move(first, delay=60) and world.q.move(second, at=RIGHT + timedelta(seconds=90))
    assert world.q.move(third, delay=0)
    assert world.work_off() == ["c"]
    world.pass_time(61)
    assert world.work_off() == ["a"]
    world.pass_time(30)
    assert world.work_off() == ["b"]


def test_ttl(world: World) -> None:
    world.q.put("late", ttl=60)
    world.q.put("in time", ttl=180)
    world.q.put("at", at=RIGHT + timedelta(seconds=30), ttl=60)
    world.pass_time(120)
    assert world.work_off() == ["in time"]
    assert [job.reason for job in world.q.dead.list()] == ["expired"] * 2
    assert world.q.dead.purge(older_than=60) == 0
    world.pass_time(61)
    assert world.q.dead.purge(older_than=60) == 2


def test_a_retry(world: World) -> None:
    world.q.put("a")
    world.q.get("anna", block=0).nack("again", delay=60)
    world.pass_time(59)
    assert world.work_off() == []
    world.pass_time(2)
    assert world.work_off() == ["a"]


def test_a_lease_of_a_worker_that_is_gone(world: World) -> None:
    world.q.put("a")
    assert world.q.get("anna", block=0).value == "a"
    world.end()
    world.begin(RIGHT + timedelta(seconds=1))
    assert world.q.get("berta", block=0) is None
    world.pass_time(RETRY_AFTER + 1)
    assert world.q.get("berta", block=0).value == "a"


def test_the_window_of_dedup_ids(world: World) -> None:
    first = world.q.put("a", dedup_id="x")
    world.pass_time(0.9 * DAY)
    assert world.q.put("b", dedup_id="x") == first
    world.pass_time(0.2 * DAY)
    assert world.q.put("c", dedup_id="x") != first
    assert world.work_off() == ["a", "c"]


def test_the_ttl_of_a_result(world: World) -> None:
    job = world.q.put("a")
    world.q.get("anna", block=0).ack(result=1, ttl=60)
    world.pass_time(59)
    assert world.q.result(str(job), 0) == 1
    world.pass_time(2)
    with pytest.raises(tidelog.NoResult):
        world.q.result(str(job), 0)


def test_the_expiry_of_a_key(world: World) -> None:
    world.db.set("k", "v", ex=60)
    assert world.db.ttl("k") == 60
    world.pass_time(59)
    assert world.db.get("k") == b"v"
    world.pass_time(2)
    assert world.db.get("k") is None


def test_schedules_of_the_time_before(world: World) -> None:
    """The programs of a real store declare their schedules at each start."""
    for name in ("cron", "every"):
        assert world.db.schedules.resume(name)
    assert {each.next_at for each in world.db.schedules.list()} <= {
        RIGHT + timedelta(seconds=seconds) for seconds in range(61)
    }
    assert world.ticks() == []
    world.pass_time(61)
    made = world.ticks()
    assert ("cron", "2026-01-01T00:01:00+00:00") in made and len(made) == 2
    world.pass_time(60)
    made = world.ticks()
    assert ("cron", "2026-01-01T00:02:00+00:00") in made and len(made) == 2


@pytest.mark.parametrize("priority", [0, 3])
def test_new_schedules(world: World, priority: int) -> None:
    for name, when in (("c", {"cron": "*/2 * * * *"}), ("e", {"every": 120})):
        made = world.db.schedule(name, queue="q", value=name, priority=priority, **when)
        assert made.next_at == RIGHT + timedelta(seconds=120)
    world.pass_time(119)
    assert world.ticks() == []
    world.pass_time(2)
    at = "2026-01-01T00:02:00+00:00"
    assert sorted(world.ticks()) == [("c", at), ("e", at)]


@pytest.mark.parametrize(("catch_up", "count"), [("one", 1), ("all", 5), ("none", 0)])
def test_ticks_that_no_worker_made(world: World, catch_up: str, count: int) -> None:
    world.db.schedule("s", "* * * * *", queue="q", catch_up=catch_up)
    world.db.schedule("rare", "*/5 * * * *", queue="q", catch_up=catch_up)
    world.pass_time(5 * 60 + 10)
    made = [tick for name, tick in world.ticks() if name == "s"]
    # the latest tick is ten seconds old, which no catch_up skips
    assert len(made) == max(count, 1) and made[-1] == "2026-01-01T00:05:00+00:00"


# --- schedules that were not paused, and the order of the lives


@pytest.mark.parametrize(("lives", "again"), [("ahead", False), ("right, ahead", True)])
def test_ticks_that_were_set_in_another_time(
    tmp_path: Path, kind: str, lives: str, again: bool
) -> None:
    world, now = World(tmp_path / "s", kind, False), RIGHT - timedelta(days=1)
    for each in lives.split(", "):
        world.begin(now if each == "right" else AHEAD)
        world.db.schedule("cron", "* * * * *", queue="q")
        world.db.schedule("every", every=60, queue="q")
        world.clock.advance(61)
        assert len(world.ticks()) >= 2
        world.end()
    world.begin(RIGHT)
    if again:
        made = world.db.schedule("cron", "* * * * *", queue="q")
        assert made.next_at == RIGHT + timedelta(seconds=60)
    world.ticks()  # of the life before that was right
    listed = {each.name: each for each in world.db.schedules.list()}
    assert listed["cron"].next_at == RIGHT + timedelta(seconds=60)
    assert listed["every"].next_at <= RIGHT + timedelta(seconds=60)
    assert listed["every"].ticks >= 1
    for minute in (1, 2):
        world.clock.advance(60.5)
        made = world.ticks()
        assert sorted(name for name, _ in made) == ["cron", "every"]
        assert ("cron", f"2026-01-01T00:0{minute}:00+00:00") in made
    world.end()


def test_a_clock_that_is_ahead_again_and_again_adds_nothing(tmp_path: Path, kind: str) -> None:
    """A machine whose clock stands ahead after each start, until a time server sets it right."""
    world = World(tmp_path / "s", kind, False)
    for day in range(4):
        for now in (AHEAD, RIGHT):
            world.begin(now + timedelta(days=day))
            world.q.put("a", delay=60)
            world.clock.advance(61)
            assert world.work_off() == ["a"]
            shown = datetime.fromtimestamp(world.db.time()[0], UTC)
            assert shown - AHEAD < timedelta(days=day + 1)
            world.end()


def test_the_log_warns_once(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path / "s", kind, False)
    caplog.set_level(logging.WARNING, "tidelog")
    world.begin(AHEAD)
    world.q.put("a")
    world.end()
    assert caplog.records == []
    for _ in range(2):
        world.begin(RIGHT)
        assert len(caplog.records) == 1
        text = caplog.records[0].getMessage()
        assert str(tmp_path / "s") in text and "3652 days" in text and "at=" in text
        world.q.put("b", at=RIGHT + timedelta(seconds=60))
        world.end()
        assert len(caplog.records) == 1
        caplog.clear()


def test_a_lead_below_a_minute_is_no_news(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path / "s", kind, False)
    world.begin(RIGHT + timedelta(seconds=59))
    world.q.put("a")
    world.end()
    world.begin(RIGHT)
    world.q.put("b", at=RIGHT + timedelta(seconds=30))
    assert world.q.stats().scheduled == 1
    world.end()
    assert caplog.records == []
