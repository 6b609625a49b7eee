"""The lead of a store's time over the wall clock: kept in checkpoints, through kills, restarts and followers.

The queue's part is in tests/client/test_clock_ahead.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgpack
import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.rounds import rest_slow
from tests.until import until

import tidelog
from tidelog import testing
from tidelog.aof.segment import Position
from tidelog.disk.real import RealDisk
from tidelog.snapshot.errors import DamagedCheckpoint
from tidelog.snapshot.rows.meta import Meta
from tidelog.snapshot.rows.opened import open_copy
from tidelog.store.clock import KEPT_MS, LEAP_MS, SET_MS, Times, resumed, times

RIGHT: Final = datetime(2026, 1, 1, tzinfo=UTC)
AHEAD: Final = datetime(2036, 1, 1, tzinfo=UTC)
LEAD_MS: Final = (AHEAD - RIGHT) // timedelta(milliseconds=1)
HOUR: Final = timedelta(hours=1)
HOUR_MS: Final = 3_600_000
NOW: Final = SET_MS + 2 * LEAP_MS
ROOT: Final = Path(__file__).parents[2]


def opened(root: Path, now: datetime, **options: Any) -> tidelog.Store:
    return tidelog.open(root, fsync="no", clock=testing.Clock(now), **options)


def meta_of(root: Path) -> Meta | None:
    """The description of the newest checkpoint."""
    try:
        found = open_copy(RealDisk(), root / "checkpoint")
    except FileNotFoundError:
        return None
    assert found is not None
    try:
        return found.meta
    finally:
        found.close()


def shown(db: Any) -> datetime:
    """The store's time."""
    seconds, micro = db.time()
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=micro)


def done(queue: Any) -> list[Any]:
    """The jobs that are due, done."""
    found = []
    for job in queue.consume("anna", block=0):
        with job:
            found.append(job)
    return found


def noted(db: tidelog.Store) -> bool:
    """Whether a checkpoint has a lead."""
    meta = inside.checkpoints(db).meta
    return meta is not None and meta.lead > 0


# --- the rules


@pytest.mark.parametrize(
    ("store", "wall", "shown_wall"),
    [
        (NOW, NOW, NOW),
        (NOW, NOW + 1, NOW),  # the clock was read a moment later
        (NOW, NOW + 1 - LEAP_MS, NOW),
        (NOW, NOW - LEAP_MS, NOW - LEAP_MS),
        (NOW, SET_MS, SET_MS),
        (NOW, SET_MS - 1, NOW),  # it is not set
    ],
)
def test_the_two_times(store: int, wall: int, shown_wall: int) -> None:
    assert times(store, wall) == Times(store, shown_wall)
    assert times(store, wall).lead == store - shown_wall


@pytest.mark.parametrize(
    ("newest", "wall", "lead", "time"),
    [
        (100, 200, 0, 200),
        (100, 200, 50, 200),  # the wall clock has passed it: no lead is left, and none is added
        (200, 100, 0, 200),  # time does not go back
        (200, 100, 150, 250),  # and went on while the store was closed
        (200, 100, 50, 200),
    ],
)
def test_the_time_at_an_open(newest: int, wall: int, lead: int, time: int) -> None:
    assert resumed(newest, wall, lead) == time


# --- checkpoints


def test_a_store_whose_clock_was_right_has_no_such_field(tmp_path: Path) -> None:
    for day in range(2):
        with opened(tmp_path / "s", RIGHT + timedelta(days=day)) as db:
            db.xadd("s", {"a": 1})
            db.checkpoint()
    meta = meta_of(tmp_path / "s")
    assert meta is not None and "lead" not in msgpack.unpackb(meta.pack(), strict_map_key=False)


@pytest.mark.parametrize("lead", [-1, 1 << 48, "1", 1.5, None])
def test_a_lead_that_cannot_be_is_damage(tmp_path: Path, lead: Any) -> None:
    meta = Meta(b"u" * 16, Position(1, 2, 1, 3, 4), lead=lead or 1)
    packed = meta.pack() if lead else msgpack.packb({**msgpack.unpackb(meta.pack()), "lead": None})
    with pytest.raises(DamagedCheckpoint, match="lead"):
        Meta.unpack(tmp_path, packed)


def test_a_close_notes_the_lead_and_the_next_open_counts_the_time_between(tmp_path: Path) -> None:
    with opened(tmp_path / "s", AHEAD) as db:
        db.set("k", "v", ex=7200)
    with opened(tmp_path / "s", RIGHT) as db:
        assert shown(db) == AHEAD and db.ttl("k") == 7200
    meta = meta_of(tmp_path / "s")
    assert meta is not None and meta.lead == LEAD_MS
    with opened(tmp_path / "s", RIGHT + HOUR) as db:
        assert shown(db) == AHEAD + HOUR and db.ttl("k") == 3600
        db.xadd("s", {"a": 1})
    with opened(tmp_path / "s", RIGHT + 2 * HOUR + timedelta(seconds=1)) as db:
        assert db.get("k") is None


def test_a_clock_that_passes_the_stores_time_ends_the_lead(tmp_path: Path) -> None:
    for now in (AHEAD, RIGHT, AHEAD + HOUR):
        with opened(tmp_path / "s", now) as db:
            db.xadd("s", {"a": 1})
    assert shown_by(tmp_path / "s", AHEAD + 2 * HOUR) == AHEAD + 2 * HOUR
    meta = meta_of(tmp_path / "s")
    assert meta is not None and meta.lead == 0


def shown_by(root: Path, now: datetime) -> datetime:
    with opened(root, now) as db:
        return shown(db)


def test_a_running_store_notes_a_clock_that_is_set(tmp_path: Path) -> None:
    clock = testing.Clock(RIGHT)
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        db.xadd("s", {"a": 1})
        clock.jump(-3600)
        db.xadd("s", {"a": 2})
        until(lambda: noted(db), "no checkpoint comes")
        meta = inside.checkpoints(db).meta
        assert meta.lead == HOUR_MS
        clock.jump(3600)
        db.xadd("s", {"a": 3})
        until(lambda: not noted(db), "no checkpoint comes")


@pytest.mark.parametrize("ahead", [KEPT_MS - 1, KEPT_MS])
def test_a_lead_below_a_minute_is_not_kept(tmp_path: Path, ahead: int) -> None:
    with opened(tmp_path / "s", RIGHT + timedelta(milliseconds=ahead)) as db:
        db.xadd("s", {"a": 1})
    with opened(tmp_path / "s", RIGHT) as db:
        db.checkpoint()
    meta = meta_of(tmp_path / "s")
    assert meta is not None and meta.lead == (0 if ahead < KEPT_MS else ahead)


def test_without_automatic_checkpoints_none_is_made_for_it(tmp_path: Path) -> None:
    options: dict[str, Any] = {"checkpoint_bytes": 0, "save": ()}
    for now in (AHEAD, RIGHT):
        with opened(tmp_path / "s", now, **options) as db:
            db.xadd("s", {"a": 1})
    assert meta_of(tmp_path / "s") is None


def test_a_clock_that_is_not_set_is_not_believed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a board without a battery, until it hears a time server."""
    with opened(tmp_path / "s", RIGHT) as db:
        db.xadd("s", {"a": 1})
    clock = testing.Clock(datetime(1970, 1, 1, tzinfo=UTC))
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        assert "shows 1970-01-01T00:00:00" in caplog.messages[0] and len(caplog.messages) == 1
        queue: Any = db.queue("q", retry_after=5)
        assert db.schedule("s", "* * * * *", queue="q").next_at == RIGHT + timedelta(minutes=1)
        queue.put("at", at=RIGHT + timedelta(seconds=30))
        clock.advance(61)
        assert [job.value for job in done(queue)] == [None, "at"]
        clock.jump((RIGHT + HOUR - clock.now()).total_seconds())
        clock.advance(6)
        assert [job.headers["tick"] for job in done(queue)] == ["2026-01-01T01:00:00+00:00"]
    meta = meta_of(tmp_path / "s")
    assert meta is None or meta.lead == 0


# --- kills


CHILD: Final = """
import os, signal, sys
from datetime import datetime
import tidelog
from tests.store.test_lead import noted
from tests.until import until
from tidelog import testing
root, now, notes = sys.argv[1:]
db = tidelog.open(root, fsync="no", clock=testing.Clock(datetime.fromisoformat(now)))
db.xadd("s", {"a": 1})
if not db.exists("k"):
    db.set("k", "v", ex=7200)
if notes == "noted":
    until(lambda: noted(db))
db.xadd("s", {"a": 2})
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(root: Path, now: datetime, notes: str = "") -> None:
    """A process opens the store, and is killed, if asked only after a checkpoint has the lead."""
    words = [sys.executable, "-c", CHILD, str(root), now.isoformat(), notes]
    assert subprocess.run(words, cwd=ROOT).returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "lives", rest_slow([(AHEAD, RIGHT), (RIGHT, AHEAD, RIGHT), (AHEAD, RIGHT, AHEAD, RIGHT)], 1)
)
@pytest.mark.parametrize("notes", ["noted", ""])
def test_kills(tmp_path: Path, lives: tuple[datetime, ...], notes: str) -> None:
    root, last = tmp_path / "s", RIGHT
    for n, now in enumerate(lives):
        killed(root, last := now + n * HOUR / 4, notes if n == len(lives) - 1 else "")
    with opened(root, last + HOUR) as db:
        # Without a checkpoint nothing says how long the store was closed. The time does not go back, and runs.
        newest = int(db.xrevrange("s", count=1)[0][0].split(b"-")[0])
        passed = shown(db).timestamp() * 1000 - newest
        assert passed == (HOUR_MS if notes else 0)
        ids = [tuple(map(int, id.split(b"-"))) for id, _ in db.xrange("s")]
        assert ids == sorted(set(ids)) and len(ids) == 2 * len(lives)
        with tidelog.open(root, read_only=True, clock=testing.Clock(last + HOUR)) as beside:
            assert beside.digest() == db.digest()
        before = db.digest()
    with opened(root, last + HOUR) as db:
        assert db.digest() == before


# --- followers


def test_a_follower_has_its_leaders_time_and_goes_on_with_it(tmp_path: Path) -> None:
    with opened(tmp_path / "leader", AHEAD) as db:
        db.set("k", "v", ex=7200)
        db.xadd("s", {"a": 1})
    with ExitStack() as stack:
        here, there = testing.Clock(RIGHT), testing.Clock(RIGHT)
        pair = Pair(tmp_path, stack, clock=there)
        copy = pair.follow(clock=here)
        pair.db.xadd("s", {"a": 2})
        equal(pair.db, copy)
        caught_up(pair.db, copy)
        minute = timedelta(minutes=1)  # between the two clocks is the time of a link
        assert AHEAD <= shown(copy) < AHEAD + minute
        # the leader writes nothing for an hour
        there.advance(3600)
        here.advance(3600)
        until(lambda: shown(copy) >= AHEAD + HOUR)
        pair.serving.close()
        copy.promote()
        assert AHEAD + HOUR <= shown(copy) < AHEAD + HOUR + minute
        here.advance(1800)
        assert 1740 < copy.ttl("k") <= 1800
        copy.xadd("s", {"a": 3})
        digest = copy.digest()
        copy.close()
        with opened(tmp_path / "follower", RIGHT + 1.9 * HOUR) as db:
            assert db.digest() == digest and 300 < db.ttl("k") <= 360


def test_a_store_that_is_read_beside_its_writer_runs_on(tmp_path: Path) -> None:
    with opened(tmp_path / "s", AHEAD) as db:
        db.set("k", "v", ex=7200)
    with opened(tmp_path / "s", RIGHT) as db:
        db.xadd("s", {"a": 1})
    clock = testing.Clock(RIGHT + HOUR)
    with tidelog.open(tmp_path / "s", read_only=True, clock=clock) as db:
        assert db.ttl("k") == 3600
        clock.advance(3000)
        assert db.ttl("k") == 600
        db.refresh()
        assert db.ttl("k") == 600
        clock.advance(601)
        assert db.get("k") is None


# --- timers


class Offset:
    """The system's clocks, with the wall clock set forward or back."""

    manual = False

    def __init__(self, seconds: float) -> None:
        self._ns = int(seconds * 1e9)

    def time_ns(self) -> int:
        return time.time_ns() + self._ns

    def monotonic(self) -> float:
        return time.monotonic()

    def ticked(self, callback: Callable[[], object]) -> None: ...


def test_a_blocked_claim_is_served_when_the_entry_is_idle_long_enough(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", clock=Offset(1e8)) as db:
        db.xgroup_create("s", "g", mkstream=True)
    with tidelog.open(tmp_path / "s", fsync="no", clock=Offset(0)) as db:
        db.xadd("s", {"a": 1})
        db.xreadgroup("g", "anna", {"s": ">"})
        found: list[Any] = []

        def claim() -> None:
            found.extend(
                db.xreadgroup("g", "berta", {"s": ">"}, block=60_000, claim_min_idle_time=300)
            )

        thread = threading.Thread(target=claim)
        thread.start()
        thread.join(30)
        assert not thread.is_alive() and len(found) == 1


def test_a_waiting_worker_wakes_by_the_real_clock(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", fsync="no", clock=Offset(1e8)) as db:
        db.schedule("every", every=1, queue="q", value="every")
        db.schedule("cron", "* * * * * *", queue="q", value="cron")
        assert db.queue("q").get("anna", block=0) is None
    with tidelog.open(tmp_path / "s", fsync="no", clock=Offset(0)) as db:
        queue: Any = db.queue("q")
        queue.put("delay", delay=0.4)
        queue.put("at", at=datetime.now(UTC) + timedelta(seconds=0.4))
        got: list[Any] = []
        while {"every", "cron", "delay", "at"} - set(got):
            job = queue.get("anna", block=60)
            got.append(job.value)
            if "tick" in job.headers:
                passed = datetime.now(UTC) - datetime.fromisoformat(job.headers["tick"])
                assert timedelta(0) <= passed < timedelta(minutes=1)
            job.ack()


def test_a_served_store_deletes_expired_keys_unasked(tmp_path: Path) -> None:
    with opened(tmp_path / "s", AHEAD) as db:
        db.xadd("s", {"a": 1})
    clock = testing.Clock(RIGHT)
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock) as db:
        db.set("k", "v", ex=60)
        with tidelog.serve(db, port=0):
            clock.advance(61)
            until(lambda: b"k" not in inside.databases(db)[0].keys, "it stays")


def test_old_segments_are_deleted_by_the_stores_time(tmp_path: Path) -> None:
    options: dict[str, Any] = {"segment_bytes": 8192, "retain_bytes": 0, "retain_seconds": 3600}

    def write(db: tidelog.Store) -> int:
        """Some segments, folded. Returns the first LSN."""
        before = inside.log(db).next_lsn
        for _ in range(100):
            db.xadd("s", {"a": "x" * 100})
        db.checkpoint()
        return before

    def first() -> int:
        """The first LSN of the log."""
        return min(int(each.stem) for each in (tmp_path / "s/aof").glob("*.aof"))

    with opened(tmp_path / "s", AHEAD, **options) as db:
        write(db)
        assert first() == 1
    clock = testing.Clock(RIGHT)
    with tidelog.open(tmp_path / "s", fsync="no", clock=clock, **options) as db:
        clock.advance(7200)
        newer = write(db)
        assert 1 < first() <= newer + 1
        clock.advance(1800)
        write(db)
        assert first() <= newer + 60  # the segment that was begun before, or the one after
        clock.advance(3601)
        newest = write(db)
        assert newest - 60 <= first() <= newest + 1
