"""Calls that block, on each face: what ends the wait, and with which result."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.client.faces.faces import METHODS, Embedded, Methods, Shared
from tests.until import parked

import tidelog

LONG_S = 60.0  # nothing here takes so long


@pytest.fixture(params=METHODS, ids=lambda kind: kind.__name__)
def face(request: pytest.FixtureRequest) -> Iterator[Methods]:
    """One of each kind, bounded to 12 jobs."""
    with ExitStack() as stack:
        yield request.param(stack, {})


BRIEFLY_S = 0.05  # a call that has not returned by then blocks


def blocked(
    face: Any, call: Callable[[], Any], then: Callable[[], Any], *, parks: bool = True
) -> Any:
    """The outcome of a call that blocks until `then` ends its wait. `parks`: the store knows that it waits."""
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(call())
        except tidelog.TidelogError as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    if parks:
        parked(getattr(face.db, "it", face.db))
    else:
        thread.join(BRIEFLY_S)
    assert not found
    then()
    thread.join(LONG_S)
    return found[0]


def test_a_worker_waits_for_a_job(face: Any) -> None:
    queue = face.queue
    job = blocked(face, lambda: queue.get("anna", LONG_S), lambda: queue.put(b"v"))
    assert (job.value, job.deliveries, job.worker) == (b"v", 1, "anna")
    assert queue.get("ben", 0) is None
    # --- for one that comes back
    again = blocked(face, lambda: queue.get("ben", LONG_S), job.release)
    assert (again.id, again.deliveries) == (job.id, 1)
    # --- for one of a dead job
    assert again.fail("no")
    redriven = blocked(face, lambda: queue.get("ben", LONG_S), queue.dead.redrive)
    assert redriven.origin == job.id and redriven.state == "open"
    assert redriven.enqueued_at == face.clock.now()
    assert redriven.ack() and redriven.state == "acked"
    assert (queue.name, queue.group) == ("q", "workers")
    if type(face) in (Embedded, Shared):
        assert queue.store is face.store


def test_a_put_waits_for_room(face: Any) -> None:
    queue = face.queue
    queue.put_many([b"%d" % n for n in range(12)])
    with pytest.raises(tidelog.QueueFull):
        queue.put(b"more", timeout=0)
    job = queue.get("anna", 0)
    id = blocked(face, lambda: queue.put(b"more", timeout=LONG_S), job.ack, parks=False)
    assert isinstance(id, str)
    many = lambda: queue.put_many([b"a"], timeout=LONG_S)  # noqa: E731
    assert blocked(face, many, queue.purge, parks=False) == 1
    assert [job.value for job in queue.peek()] == [b"a"]


def test_a_caller_waits_for_a_death(face: Any) -> None:
    queue = face.queue
    queue.put_many([b"a", b"b"])
    first, second = queue.get("anna", 0), queue.get("anna", 0)
    dead = blocked(face, lambda: next(iter(queue.deaths("0-0"))), lambda: first.fail("no"))
    assert (dead.original_id, dead.raw, dead.reason, dead.queue) == (first.id, b"a", "no", "q")
    assert second.fail("never")
    assert [each.reason for each in queue.deaths(dead.id, block=0)] == ["never"]
    assert [each.id for each in queue.deaths(block=0)] == []
    with pytest.raises(tidelog.DataError):
        queue.deaths("yesterday")


def test_a_caller_waits_for_a_result(face: Any) -> None:
    queue = face.queue
    first, second, third = (queue.put(b"v") for _ in range(3))
    jobs = {}
    for _ in range(3):
        job = queue.get("anna", 0)
        jobs[job.id] = job
    with pytest.raises(tidelog.ResultLate):
        queue.result(first, 0)
    ack = lambda: jobs[first].ack(result=b"made")  # noqa: E731
    assert blocked(face, lambda: queue.result(first, LONG_S), ack) == b"made"
    fail = lambda: jobs[second].fail("no")  # noqa: E731
    failed = blocked(face, lambda: queue.result(second, LONG_S), fail)
    assert isinstance(failed, tidelog.JobFailed) and failed.reason == "no"
    none = blocked(face, lambda: queue.result(third, LONG_S), jobs[third].ack)
    assert isinstance(none, tidelog.NoResult)
