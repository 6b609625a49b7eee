"""A paused queue, through every face: nothing is delivered, all else goes on, and those who wait are woken."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import redis
from tests.client.faces.faces import Embedded
from tests.client.faces.test_blocking import LONG_S, blocked
from tests.client.faces.test_dedup import take
from tests.until import until

import tidelog
from tidelog.jobs.work.limits import LOOK_SECONDS

REFUSED = (tidelog.ResponseError, redis.ResponseError)


def nothing(face: Any) -> bool:
    return not any(face.take(group, "ben", 1, None) for group in ("workers", "audit"))


def test_no_group_gets_a_job_until_the_queue_goes_on(face: Any) -> None:
    assert nothing(face)  # both groups have looked before
    first, urgent = face.put(b"first"), face.put(b"urgent", priority=9)
    at = face.clock.now()
    assert face.paused_at() is None and face.pause() and not face.pause()
    face.pass_time(1)
    assert face.paused_at() == at and nothing(face)
    face.crash()
    assert face.paused_at() == at and nothing(face)
    assert face.resume() and not face.resume() and face.paused_at() is None
    assert [take(face), take(face)] == [urgent, first]


def test_a_worker_ends_the_jobs_that_it_holds(face: Any) -> None:
    done, again = face.put(b"done"), face.put(b"again")
    assert [take(face), take(face)] == [done, again]
    face.pause()
    assert face.end("workers", done, "result") and face.end("workers", again, "nack")
    assert face.result(done) == done.encode()
    face.pass_time(20)
    assert nothing(face)
    face.resume()
    assert take(face) == again


def test_puts_and_delays_and_ticks_go_on(face: Any) -> None:
    face.pause()
    face.put(b"a", delay=2)
    face.put_many([b"b", b"c"])
    face.schedule(every=5.0, catch_up="all", priority=0)
    for _ in range(12):
        face.pass_time(1)
        assert nothing(face)
    figures = face.figures("workers")
    assert figures["later"] == [] and figures["schedules"][0][1] == 2
    face.resume()
    values = sorted(job[2] for job in face.take("workers", "anna", 9, None))
    assert len(values) == 5 and {b"a", b"b", b"c"} < set(values)


def test_a_key_of_another_type_is_named(face: Any) -> None:
    face.put(b"a")
    face.db.xadd("q:paused", {"a": "b"})
    for call in (face.pause, face.resume, face.paused_at):
        with pytest.raises(REFUSED, match="needs a string at key 'q:paused'"):
            call()
    face.db.delete("q:paused")


def test_a_worker_that_waits_is_woken(methods: Any) -> None:
    queue = methods.queue
    id = queue.put(b"v")
    queue.pause()
    job = blocked(methods, lambda: queue.get("anna", LONG_S), queue.resume)
    assert job.id == id and job.deliveries == 1 and job.ack()


def test_a_worker_that_waits_gets_no_job_that_is_put_meanwhile(methods: Any) -> None:
    queue = methods.queue
    queue.subscribe()

    def meanwhile() -> None:
        queue.pause()
        queue.put(b"v")
        assert nothing(methods)
        queue.resume()

    job = blocked(methods, lambda: queue.get("anna", LONG_S), meanwhile)
    assert job.value == b"v" and job.ack()


def test_delays_go_on_while_a_worker_waits(methods: Any) -> None:
    """The worker that waits puts the delayed jobs that are due into the queue."""
    queue = methods.queue
    queue.subscribe()
    queue.put(b"v", delay=2)
    queue.pause()

    def meanwhile() -> None:
        methods.pass_time(3)
        until(lambda: methods.db.xlen("q") == 1, "the delayed job is not put")
        queue.resume()

    job = blocked(methods, lambda: queue.get("anna", LONG_S), meanwhile)
    assert job.value == b"v" and job.ack()


def test_the_short_way_is_open_again_afterwards() -> None:
    """A pause costs nothing when it is over, and another client may delete the string."""
    with ExitStack() as stack:
        face: Any = Embedded(stack, {})
        queue = face.queue
        known = queue._engine.known
        queue.put_many([b"a", b"b"])
        with queue.get("anna", 0):
            assert known.plain
            queue.pause()
            assert not known.plain
        assert queue.get("anna", 0) is None
        face.db.delete("q:paused")
        face.clock.advance(LOOK_SECONDS)
        assert queue.get("anna", 0).value == b"b" and known.plain
