"""A cancelled job, through every face: whatever it does at that moment, it ends once, as cancelled."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from tests.client.faces.test_dedup import take

import tidelog

FACE_OPTIONS = {"concurrency_per_key": 1}


def is_over(face: Any, id: str, **facts: Any) -> None:
    """A job is recorded as cancelled, nobody gets it, and a second cancel finds nothing."""
    found = face.job(id)
    assert (found.id, found.state, found.reason, found.value) == (
        id,
        "cancelled",
        "cancelled",
        b"v",
    )
    for name, value in facts.items():
        assert getattr(found, name) == value, name
    assert not face.cancel(id)
    assert face.take("workers", "ben", 1, None) == []
    assert face.result(id) is tidelog.NoResult
    face.crash()
    assert face.job(id) == found
    stats = face.figures("workers")["stats"]
    assert (stats["depth"], stats["dead"], stats["scheduled"]) == (0, 0, 0)


def test_a_waiting_job(face: Any) -> None:
    id = face.put(b"v", priority=3, key="k")
    assert face.cancel(id)
    is_over(face, id, worker=None, deliveries=0, priority=3, key="k", headers={"h": "1"})


def test_a_delayed_job(face: Any) -> None:
    id = face.put(b"v", delay=30)
    assert face.cancel(id)
    face.pass_time(31)
    is_over(face, id, deliveries=0)


def test_a_job_that_is_due_under_another_id(face: Any) -> None:
    id = face.put(b"v", delay=3, priority=2)
    face.pass_time(4)
    assert take(face) != id and face.cancel(id)
    is_over(face, id, deliveries=1, worker="anna", priority=2)


def test_a_paused_job(face: Any) -> None:
    id = face.put(b"v")
    take(face)
    face.end("workers", id, "nack")
    assert face.cancel(id)
    face.pass_time(6)
    is_over(face, id, deliveries=1, worker="anna")
    assert [each.error for each in face.job(id).failures] == ["again"]


@pytest.mark.parametrize("how", ("ack", "result", "nack", "fail", "release", "extend", "and"))
def test_a_running_job_whose_worker_then_says(face: Any, how: str) -> None:
    id = face.put(b"v")
    take(face)
    assert face.cancel(id)
    assert not face.end("workers", id, how)
    is_over(face, id, deliveries=1, worker="anna")
    assert face.dead() == [] and face.failures_of(id) == []


@pytest.mark.parametrize("how", ("ack", "result", "fail", "and"))
def test_a_job_that_has_ended_is_not_cancelled(face: Any, how: str) -> None:
    id = face.put(b"v")
    take(face)
    assert face.end("workers", id, how) and not face.cancel(id)
    found = face.job(id)
    assert found is None or found.state in ("done", "dead")
    assert not face.cancel("1-1")
    with pytest.raises((tidelog.DataError, redis.ResponseError)):
        face.cancel("v")


def test_a_redriven_job_by_its_first_id(face: Any) -> None:
    id = face.put(b"v")
    take(face)
    face.end("workers", id, "fail")
    face.redrive("all")
    assert face.cancel(id)
    found = face.job(id)
    assert found is not None and found.state == "cancelled"


def test_cancelled_jobs_are_found(face: Any) -> None:
    kept, first, second = face.put(b"v", key="a"), face.put(b"w", key="a"), face.put(b"x", key="b")
    assert face.cancel(first) and face.cancel(second)
    found, until = face.find("workers", state="cancelled")
    assert ([job.id for job in found], until) == ([first, second], None)
    found, _ = face.find("workers", state="cancelled", key="b")
    assert [job.id for job in found] == [second]
    found, _ = face.find("workers")
    assert [job.id for job in found] == [kept]
    assert face.find("audit", state="cancelled") == ([], None)


def test_it_is_cancelled_for_all_groups(face: Any) -> None:
    for group in ("workers", "audit"):
        face.subscribe(group)
    id = face.put(b"v")
    face.take("audit", "zoe", 1, None)
    assert face.cancel(id)
    assert not face.end("audit", id, "ack") and face.take("workers", "ben", 1, None) == []
    for group, worker in (("workers", None), ("audit", "zoe")):
        found, _ = face.find(group, state="cancelled")
        assert [(job.id, job.worker) for job in found] == [(id, worker)]


def test_it_is_cancelled_for_one_group(face: Any) -> None:
    for group in ("workers", "audit"):
        face.subscribe(group)
    id = face.put(b"v")
    with pytest.raises((tidelog.ResponseError, redis.ResponseError), match="for all groups"):
        face.cancel(id, "audit")
    face.take("audit", "zoe", 1, None)
    assert face.cancel(id, "audit") and not face.cancel(id, "audit")
    assert not face.end("audit", id, "ack")
    assert face.job(id).state == "waiting" and take(face) == id
    assert face.end("workers", id, "ack") and face.job(id) is None
    found, _ = face.find("audit", state="cancelled")
    assert [job.id for job in found] == [id]


def test_a_cancelled_job_holds_no_dedup_id(face: Any) -> None:
    held = face.put(b"v", dedup_id="d1", dedup="until-done")
    take(face)
    assert face.cancel(held) and face.put(b"v", dedup_id="d1", dedup="until-done") != held
    begun, waits = face.put(b"v", dedup_id="d2"), face.put(b"v", dedup_id="d3")
    face.take("workers", "anna", 3, None)
    assert face.cancel(begun) and face.put(b"v", dedup_id="d2") == begun, "a worker had it"
    face.end("workers", waits, "release")
    assert face.cancel(waits) and face.put(b"v", dedup_id="d3") != waits


def test_a_cancelled_job_makes_room_for_the_next_of_its_key(face: Any) -> None:
    ids = [face.put(b"v", key="k") for _ in range(2)]
    take(face)
    assert face.take("workers", "ben", 1, None) == []
    assert face.cancel(ids[0]) and take(face) == ids[1]
