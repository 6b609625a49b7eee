"""The limit of time of a job, through every face of a queue: it is stored with the job, and goes where the job goes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
import redis
from tests.client.faces.faces import FACES, Commands
from tests.client.faces.test_dedup import take

import tidelog
from tidelog.engine.api import EntryRow
from tidelog.jobs.time_limits import time_limit_of


@pytest.mark.parametrize("how", [{}, {"delay": 1}, {"priority": 3}, {"retry": "max=1"}], ids=str)
def test_a_job_has_a_limit_of_its_own(face: Any, how: dict[str, Any]) -> None:
    id, other = face.put(b"a", time_limit=2.5, **how), face.put(b"b")
    assert (face.job(id).time_limit, face.job(other).time_limit) == (2.5, None)
    assert face.job(id).as_dict()["time_limit"] == 2.5
    face.pass_time(2)
    face.crash()
    found = {take(face) for _ in range(2)}
    if not isinstance(face, Commands):
        limits = {face.jobs["workers", each].time_limit for each in found}
        assert limits == {2.5, None}
    for each in found:
        face.end("workers", each, "fail")
    face.redrive("all")
    assert sorted(row[b"time_limit"] for row in rows(face) if b"time_limit" in row) == [b"2500"]


def rows(face: Any) -> list[dict[bytes, bytes]]:
    """The jobs of the queue."""
    lanes = ("q", *(f"q:priority:{number}" for number in range(1, 10)))
    return [row for lane in lanes for _, row in face.db.xrange(lane)]


def test_all_jobs_of_a_put_many_have_it(face: Any) -> None:
    face.put_many([b"a", b"b"], time_limit=3)
    assert [row[b"time_limit"] for row in rows(face)] == [b"3000"] * 2


def test_the_one_of_a_successor_is_stored() -> None:
    for kind in FACES:
        if kind is not Commands:
            with ExitStack() as stack:
                face: Any = kind(stack, {})
                face.put(b"a")
                job = face.jobs.pop(("workers", take(face)))
                assert job.done_and(face.queue.new(b"b", time_limit=timedelta(minutes=1)))
                assert [row[b"time_limit"] for row in rows(face)] == [b"60000"]


def test_a_job_knows_until_when_it_was_extended(methods: Any) -> None:
    job: Any
    methods.put(b"a")
    job = methods.jobs.pop(("workers", take(methods)))
    assert job.extended_until is None
    before = time.monotonic()
    assert job.extend(60) and job.extend(30)  # the longer one stays
    until = job.extended_until
    assert until is not None and before + 60 <= until <= time.monotonic() + 60
    assert job.ack() and not job.extend(90) and job.extended_until == until


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "5"], ids=str)
def test_the_argument_is_checked(bad: Any) -> None:
    with ExitStack() as stack:
        face: Any = FACES[0](stack, {})
        calls: tuple[Callable[[], Any], ...] = (
            lambda: face.put(b"a", time_limit=bad),
            lambda: face.put_many([b"a"], time_limit=bad),
            lambda: face.store.queue("q", time_limit=bad),
            lambda: face.queue.run(print, time_limit=bad, block=0),
        )
        for call in calls:
            with pytest.raises(tidelog.DataError, match="time_limit must be"):
                call()
        assert rows(face) == []


@pytest.mark.parametrize("words", ["0", "-1", "x", str(1 << 62)])
def test_the_words_are_checked(words: str) -> None:
    with ExitStack() as stack:
        face: Any = Commands(stack, {})
        with pytest.raises(redis.ResponseError):
            face.call("PUT", b"a", "TIMELIMIT", words)
        assert rows(face) == []


@pytest.mark.parametrize("found", [b"", b"x", b"0", b"-5", b"9" * 19, b"\xff"])
def test_a_limit_that_cannot_be_read_is_none(found: bytes) -> None:
    row: EntryRow = (b"value", b"a", b"time_limit", found)
    assert time_limit_of(row) is None
    assert time_limit_of((*row[:3], b"1500")) == 1.5
