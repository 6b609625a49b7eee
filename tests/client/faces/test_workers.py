"""The workers of a group, through every face of a queue."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from typing import Any

import pytest
from tests.client.faces.faces import METHODS, ROOT
from tests.client.faces.test_blocking import LONG_S, blocked
from tests.client.faces.test_dedup import take

import tidelog
from tidelog.disk.simulated import SimulatedDisk
from tidelog.jobs.verbs.workers import JOBS_MAX


def test_a_worker_from_its_first_job_to_its_end(face: Any) -> None:
    assert face.workers("workers") == []
    high, low = face.put(b"h", priority=4), face.put(b"l")
    assert [take(face), take(face)] == [high, low]
    begun = face.clock.now()
    (anna,) = face.workers("workers")
    assert (anna.name, anna.held, set(anna.jobs)) == ("anna", 2, {high, low})
    assert (anna.lives, anna.waits, anna.seen_at, anna.got_at) == (True, False, begun, begun)
    assert (anna.host, anna.pid) == (None, None)
    face.pass_time(1)
    face.end("workers", high, "ack")
    (anna,) = face.workers("workers")
    assert (anna.held, anna.jobs, anna.got_at) == (1, (low,), begun)
    face.crash()
    (anna,) = face.workers("workers")
    assert (anna.held, anna.jobs, anna.lives) == (1, (low,), False)  # nobody has taken it over
    assert face.take("workers", "ben", 1, None) == []
    face.pass_time(9)
    face.take("workers", "ben", 1, None)
    anna, ben = face.workers("workers")
    assert (anna.held, ben.held, ben.jobs, ben.lives) == (0, 1, (low,), True)


def test_the_progress_of_what_it_holds(face: Any) -> None:
    later, low = face.put(b"later", delay=1, priority=4), face.put(b"low")
    face.pass_time(2)
    now = take(face)
    assert now != later and take(face) == low
    assert face.progress("workers", now, 0.5, "half") and face.progress("workers", low, 0)
    for _ in range(2):
        (anna,) = face.workers("workers")
        come = {job: (each.fraction, each.text) for job, each in anna.progress.items()}
        assert come == {now: (0.5, "half"), low: (0.0, "")}
        assert anna.as_dict()["progress"][now]["text"] == "half"
        face.crash()


def test_each_group_has_its_own(face: Any) -> None:
    face.subscribe("audit")
    face.put(b"v")
    take(face)
    assert [each.name for each in face.workers("workers")] == ["anna"]
    assert face.workers("audit") == []


@pytest.mark.parametrize("kind", METHODS)
def test_one_that_waits(kind: Any) -> None:
    with ExitStack() as stack:
        face = kind(stack, {})
        seen: list[Any] = []

        def look() -> None:
            seen.extend(face.workers("workers"))
            assert face.workers("audit") == []
            face.put(b"v")

        job = blocked(face, lambda: face.queue.get(None, LONG_S), look)
        (waiting,) = seen
        assert (waiting.name, waiting.waits, waiting.lives) == (job.worker, True, True)
        assert (waiting.held, waiting.jobs, waiting.got_at) == (0, (), None)
        assert (waiting.host, waiting.pid) == (socket.gethostname(), os.getpid())
        (working,) = face.workers("workers")
        assert (working.held, working.jobs, working.waits) == (1, (job.id,), False)


def test_many_jobs_and_facts_as_json() -> None:
    with tidelog.open(ROOT, fsync="no", disk=SimulatedDisk(1)) as db:
        queue = db.queue("q", codec="bytes")
        queue.put_many([b"v"] * 50, priority=3)
        queue.put_many([b"v"] * JOBS_MAX)
        urgent = queue.consume("anna", batch=50, block=0)
        first, consumer = next(urgent), queue.consume("anna", batch=JOBS_MAX, block=0)
        next(consumer)
        (anna,) = queue.workers()
        assert (anna.held, len(anna.jobs), anna.jobs[0]) == (JOBS_MAX + 50, JOBS_MAX, first.id)
        told = anna.as_dict()
        assert (told["name"], told["pid"], told["jobs"][0]) == ("anna", None, first.id)
        assert anna.seen_at is not None and told["seen_at"] == anna.seen_at.isoformat()
        urgent.close()
        consumer.close()
