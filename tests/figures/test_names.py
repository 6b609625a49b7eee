"""The names of a queue's streams, and which streams are helpers."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests import inside

import tidelog
from tidelog.engine.api import State
from tidelog.figures import names
from tidelog.figures.model import StreamFigures
from tidelog.figures.queues import in_state, of_queue
from tidelog.figures.resident import figures
from tidelog.figures.streams import is_helper_in, of_stream, stream_at
from tidelog.jobs.options import LANES, RESERVED, SCHEDULES
from tidelog.testing import Clock

MINE = {b"orders", b"orders:dead", b"log:later", b"a:priority:1", b"plain"}


@pytest.fixture
def store(tmp_path: Path) -> tidelog.Store:
    """Queues with every kind of helper, beside streams of the user's with such names."""
    db = tidelog.open(tmp_path / "db", fsync="no")
    mails = db.queue("mails", max_deliveries=2)
    mails.put_many(["a", "b", "c"])
    mails.put("urgent", priority=3)
    mails.put("later", delay=3600)
    for end in ("nack", "nack", "fail"):
        job = mails.get("w", block=0)
        assert job is not None
        getattr(job, end)("no")
    db.schedule("nightly", every=3600, queue="mails", value=1)
    for key in MINE:
        db.xadd(key, {"item": "tea"})
    db.xgroup_create("orders:dead", "readers", id="0")
    return db


def state_of(db: tidelog.Store) -> State:
    return inside.core(db).state


def test_the_names_are_those_of_the_queue() -> None:
    assert names.HELPERS == tuple(each.encode() for each in RESERVED)
    assert names.jobs_of(b"q") == [b"q", *(b"q" + lane.encode() for lane in LANES)]
    for key in (b"q:dead", b"q:priority:3", b"q:priority:3:holds", b"q:later", b"q:failures"):
        assert names.owner_of(key) == b"q"
    assert names.owner_of(b"q") is None and names.owner_of(b"q:priority:0") is None


def test_the_first_entry_tells_a_helper(store: tidelog.Store) -> None:
    with store:
        state = state_of(store)
        streams = {
            key: stream for key in state.databases[0].keys if (stream := stream_at(state, (0, key)))
        }
        helpers = {key for key, found in streams.items() if is_helper_in(state, (0, key), found)}
        assert helpers == {*streams} - MINE - {b"mails"}
        assert {b"mails:dead", b"mails:holds", b"mails:failures", b"mails:later"} <= helpers
        assert {b"mails:priority:3", SCHEDULES} <= helpers


def test_an_empty_stream_is_a_helper_beside_its_queue() -> None:
    assert names.is_helper(b"q:dead", None, True) and not names.is_helper(b"q:dead", None, False)
    assert names.is_helper(SCHEDULES, None, False) and not names.is_helper(b"q", None, True)


def test_a_scrape_shows_no_helper(store: tidelog.Store) -> None:
    with store:
        found = {each.key for each in figures(inside.core(store), 100)}
    assert found == MINE | {b"mails"}


def test_the_figures_of_a_stream_are_sums_over_its_groups(store: tidelog.Store) -> None:
    with store:
        state = state_of(store)
        store.xgroup_create("plain", "g", id="0")
        store.xgroup_create("plain", "h", id="0")
        store.xreadgroup("g", "c", {"plain": ">"})
        stream = stream_at(state, (0, b"plain"))
        assert stream is not None
        found = of_stream((0, b"plain"), stream)
    assert isinstance(found, StreamFigures)
    assert (found.length, found.groups, found.lag, found.pending) == (1, 2, 1, 1)
    assert found.oldest_ms is not None and found.due_ms is None
    assert {each.name: each.pending for each in found.each} == {b"g": 1, b"h": 0}


def test_a_queue_that_no_worker_has_opened_has_figures(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "db", fsync="no") as db:
        db.queue("mails").put("x")
        state = state_of(db)
        (one,) = of_queue(state, 0, b"mails", 0)
    assert (one.group, one.depth, one.waiting, one.in_flight) == (None, 1, 1, 0)


def test_queues_of_a_state_as_their_own_stats_tell_them(tmp_path: Path) -> None:
    clock = Clock()
    with tidelog.open(tmp_path / "db", fsync="no", clock=clock) as db:
        mails = db.queue("mails", max_deliveries=2, keep=1)
        mails.put_many(range(3))
        mails.put("urgent", priority=3)
        for _ in range(2):
            job = mails.get("anna", block=0)
            assert job is not None and job.ack()
        job = mails.get("bea", block=0)
        assert job is not None and job.nack("later", delay=60)
        held = mails.get("carla", block=0)
        assert held is not None
        mails.put("due by then", delay=5)
        mails.put("not due", delay=500)
        db.queue("drained").put(1)
        job = db.queue("drained").get(block=0)
        assert job is not None and job.ack()
        # These two have no streams of their own yet.
        db.queue("ranked").put(1, priority=9)
        db.queue("delayed").put(1, delay=500)
        db.schedule("nightly", "0 3 * * *", queue="mails", value=1)
        db.schedules.remove("nightly")
        db.xadd("plain", {"field": 1})
        db.xgroup_create("plain", "workers", id="0")
        clock.advance(9)
        own = {name: db.queue(name).stats() for name in ("mails", "drained", "ranked", "delayed")}
        now = inside.core(db).clocks().store
        rows = {row.key.decode(): row for row in in_state(state_of(db), (0,), now)}
        del held
    assert sorted(rows) == sorted(own)
    for name, stats in own.items():
        row = rows[name]
        assert row.group == b"workers"
        told = {key.decode(): count for key, count in row.held}
        assert (row.depth, row.waiting, told) == (stats.depth, stats.waiting, stats.in_flight), name
        assert (row.paused, row.scheduled or 0) == (stats.paused, stats.scheduled), name
        assert (row.dead, row.failures, row.kept) == (stats.dead, stats.failures, stats.kept), name
        assert dict(row.by_priority) == stats.by_priority, name
        assert (
            None if row.oldest_ms is None else (now - row.oldest_ms) / 1000
        ) == stats.oldest_seconds
    assert (rows["mails"].depth, rows["mails"].scheduled, rows["mails"].kept) == (3, 1, 2)
