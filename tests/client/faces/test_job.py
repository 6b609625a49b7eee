"""The status of a job, through every face: each state, by the ID that `put` returned."""

from __future__ import annotations

import json
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import redis
from tests.client.faces.faces import Embedded
from tests.client.faces.test_dedup import take

import tidelog
from tidelog import testing
from tidelog.jobs.rows import moment

FACE_OPTIONS = {"keep": 2}  # three deliveries for a job at most; two jobs that are done are kept


def test_a_job_from_its_put_to_its_end(face: Any) -> None:
    id = face.put(b"v", priority=3, key="k")
    found = face.job(id)
    assert (found.id, found.state, found.present_id, found.deliveries) == (id, "waiting", id, 0)
    assert (found.value, found.headers, found.priority, found.key) == (b"v", {"h": "1"}, 3, "k")
    assert found.enqueued_at == moment(int(id.partition("-")[0]))
    take(face)
    found = face.job(id)
    assert (found.state, found.worker, found.deliveries) == ("running", "anna", 1)
    assert face.end("workers", id, "nack")
    found = face.job(id)
    assert (found.state, found.worker, found.deliveries) == ("paused", "anna", 1)
    assert found.due_at == face.clock.now() + timedelta(seconds=5)
    assert [(each.worker, each.error) for each in found.failures] == [("anna", "again")]
    face.crash()
    assert face.job(id) == found
    face.pass_time(5)
    assert face.job(id).state == "waiting" and take(face) == id
    face.end("workers", id, "result")
    found = face.job(id)
    assert (found.state, found.value, found.result) == ("done", b"v", id.encode())


def test_a_delayed_job_has_its_first_id_for_good(face: Any) -> None:
    id = face.put(b"v", delay=30)
    found = face.job(id)
    assert (found.state, found.present_id) == ("delayed", id)
    assert found.due_at == face.clock.now() + timedelta(seconds=30)
    face.move(id, delay=2)
    assert face.job(id).due_at == face.clock.now() + timedelta(seconds=2)
    face.pass_time(3)
    assert face.job(id).state == "waiting"
    present = take(face)
    found = face.job(id)
    assert (found.id, found.state, found.present_id) == (id, "running", present) and present != id
    face.end("workers", present, "ack")
    assert face.job(id) is None  # its entry has another ID, and it left no result


def test_a_dead_job_that_is_redriven(face: Any) -> None:
    id = face.put(b"v")
    take(face)
    face.end("workers", id, "fail")
    found = face.job(id)
    assert (found.state, found.value, found.reason, found.deliveries) == ("dead", b"v", "no", 1)
    assert found.present_id == face.dead()[0][0] and len(found.failures) == 1
    face.redrive("all")
    found = face.job(id)
    assert (found.state, found.deliveries) == ("waiting", 0)
    assert take(face) == found.present_id


def test_each_group_has_its_own_view(face: Any) -> None:
    face.subscribe("audit")
    id = face.put(b"v")
    face.take("audit", "ben", 1, None)
    assert face.job(id).state == "waiting"


def test_a_job_of_which_nothing_is_left(face: Any) -> None:
    assert face.job("1-1") is None
    gone = face.put(b"v")
    face.purge()
    assert face.job(gone) is None
    with pytest.raises((tidelog.DataError, redis.ResponseError)):
        face.job("v")


def test_facts_as_json() -> None:
    with ExitStack() as stack:
        face: Any = Embedded(stack, {})
        told = face.job(face.put(b"v", delay=1)).as_dict()
    assert told["value"] == "v" and told["state"] == "delayed"
    assert told["due_at"] == (face.clock.now() + timedelta(seconds=1)).isoformat()


def test_facts_of_a_json_queue_as_json() -> None:
    """They are the value that was put and the result, not text that is JSON once more."""

    def told(id: str) -> Any:
        found = mails.job(id)
        assert found is not None
        return json.loads(json.dumps(found.as_dict()))

    with testing.store() as db:
        mails = db.queue("mails", keep=1)
        id = mails.put({"to": "ann"})
        job = mails.get(block=0)
        assert job is not None and job.ack(result=[1, None])
        assert (told(id)["value"], told(id)["result"]) == ({"to": "ann"}, [1, None])
        other = db.xadd("mails", {"value": "{"})  # as another client may put it
        assert isinstance(other, bytes) and told(other.decode())["value"] == "{"
