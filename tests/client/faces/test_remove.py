"""A queue is removed once it holds nothing, through every face; what is in the way is named, and nothing changes."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from tests.client.faces.test_blocking import LONG_S, blocked
from tests.client.faces.test_dedup import take
from tests.client.faces.test_pause import REFUSED, nothing

import tidelog
from tidelog.jobs.names import HELPERS
from tidelog.jobs.options import PRIORITY_MAX
from tidelog.jobs.work.pausing import PAUSED

GROUPS = ("workers", "audit")


def refused(face: Any, what: str) -> None:
    with pytest.raises(REFUSED, match="q is not removed: " + what):
        face.remove()


def work(face: Any, how: str = "ack") -> None:
    """End a job in all groups."""
    for group in GROUPS:
        ((job, *_),) = face.take(group, "anna", 1, None)
        assert face.end(group, job, how)


def test_what_it_holds_is_in_the_way(face: Any) -> None:
    assert nothing(face)  # both groups have looked before
    face.put(b"v")
    refused(face, "jobs that are not done: 1 ")
    job = take(face)
    refused(face, "jobs that are not done: 1 ")
    assert face.end("workers", job, "ack")
    refused(face, "jobs that are not done: 1 ")  # the other group has not had it
    assert face.take("audit", "anna", 1, None) and face.end("audit", job, "fail")
    refused(face, "dead jobs that it holds: 1 ")
    face.put(b"later", delay=60)
    face.put(b"urgent", priority=9)
    refused(face, "jobs that are not done: 2 .*; dead jobs that it holds: 1 ")
    work(face)
    face.purge()
    face.dead_purge("all")
    face.schedule(every=5.0, catch_up="all", priority=0)
    refused(face, "schedules that put jobs into it: s ")


def test_it_begins_again_with_the_next_put(face: Any) -> None:
    assert nothing(face)
    face.put(b"first", dedup_id="x", dedup="until-done")
    face.put(b"urgent", priority=9)
    for _ in range(2):
        work(face, "ack")
    face.put(b"later", delay=60)
    face.purge()
    face.pause()
    assert face.remove() and not face.remove()
    assert face.db.keys("q*") == []
    face.crash()
    assert not face.remove()
    later = face.put(b"later", delay=2)
    jobs = [face.put(b"again", dedup_id="x", dedup="until-done"), face.put(b"low", priority=1)]
    face.pass_time(3)
    assert {take(face), take(face)} == {jobs[0], jobs[1]} and take(face) != later
    assert len(face.take("audit", "anna", 9, None)) > 0


def test_no_helper_key_is_left(face: Any) -> None:
    """A queue that has had everything leaves nothing but results and progress, which expire by themselves."""
    assert nothing(face)
    for priority in range(PRIORITY_MAX + 1):
        face.put(b"v", priority=priority)
        assert face.end("workers", take(face), "nack")
    for _ in range(PRIORITY_MAX + 1):
        face.take("audit", "anna", 1, None)
    face.purge()
    dead = face.put(b"dead")
    assert take(face) == dead and face.end("workers", dead, "fail")
    assert face.take("audit", "anna", 1, None)
    assert face.cancel(face.put(b"cancelled")) and face.put(b"later", delay=60)
    for group in GROUPS:
        face.db.set(f"q:rate:{group}", "as a limit of the rate stores it")
    face.pause()
    there = set(face.db.keys("q*"))
    assert {b"q" + suffix for suffix in (*HELPERS, PAUSED)} <= there
    for group, id in list(face.jobs):
        face.end(group, id, "ack")
    face.purge()
    face.dead_purge("all")
    assert face.remove() and face.db.keys("q*") == []


def test_a_purge_ends_the_progress_of_its_jobs(face: Any) -> None:
    paused, held = face.put(b"paused"), face.put(b"held")
    assert {take(face), take(face)} == {paused, held}
    assert face.progress("workers", paused, 0.5) and face.progress("workers", held, 0.5)
    assert face.end("workers", paused, "nack")
    face.purge()
    assert face.db.keys("q:progress:*") == [f"q:progress:{held}".encode()]
    assert face.job(held).progress.fraction == 0.5


def test_a_stream_that_is_no_queue_stays(face: Any) -> None:
    face.db.delete("q")
    face.db.xadd("q", {"a": "b"})
    with pytest.raises(REFUSED, match="no queue"):
        face.remove()
    face.db.delete("q")
    face.db.set("q", "a")
    with pytest.raises(REFUSED, match="WRONGTYPE|wrong kind"):
        face.remove()
    face.db.delete("q")


def test_a_worker_that_waits_is_in_the_way(methods: Any) -> None:
    queue = methods.queue
    queue.subscribe()

    def meanwhile() -> None:
        with pytest.raises((tidelog.ResponseError, redis.ResponseError), match="its jobs: anna "):
            queue.remove()
        queue.put(b"v")

    assert blocked(methods, lambda: queue.get("anna", LONG_S), meanwhile).ack()
