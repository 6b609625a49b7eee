"""A worker's report of its progress, through every face: callers are told of it until the job ends."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from tests.client.faces.test_dedup import take

import tidelog


def told(face: Any, id: str) -> tuple[float, str] | None:
    found = face.job(id)
    return (
        None
        if found is None or not found.progress
        else (found.progress.fraction, found.progress.text)
    )


def test_it_is_kept_with_the_job(face: Any) -> None:
    id = face.put(b"v", delay=1, priority=3)
    face.pass_time(2)
    now = take(face)
    assert told(face, id) is None
    assert face.progress("workers", now, 0.4, "page 4 of 10")
    assert told(face, id) == (0.4, "page 4 of 10") and face.job(id).progress.at == face.clock.now()
    assert face.job(id).as_dict()["progress"]["fraction"] == 0.4
    assert face.end("workers", now, "nack") and face.job(id).state == "paused"
    assert told(face, id) == (0.4, "page 4 of 10")
    face.crash()
    assert told(face, id) == (0.4, "page 4 of 10")


@pytest.mark.parametrize("how", ("ack", "result", "fail", "and"))
def test_it_goes_with_the_job(face: Any, how: str) -> None:
    id = face.put(b"v")
    take(face)
    assert face.progress("workers", id, 1)
    assert face.end("workers", id, how)
    assert told(face, id) is None and progress_keys(face) == []
    assert not face.progress("workers", id, 1) and progress_keys(face) == []


def test_a_cancelled_job_has_none(face: Any) -> None:
    id = face.put(b"v")
    take(face)
    face.progress("workers", id, 0)
    assert told(face, id) == (0.0, "") and face.cancel(id)
    assert told(face, id) is None and progress_keys(face) == []


def progress_keys(face: Any) -> list[bytes]:
    return list(face.db.execute_command("KEYS", "*:progress:*"))


@pytest.mark.parametrize("fraction", (-0.1, 1.5, "x", float("nan"), True))
def test_a_fraction_is_checked(face: Any, fraction: Any) -> None:
    id = face.put(b"v")
    take(face)
    with pytest.raises((tidelog.DataError, redis.ResponseError, redis.DataError)):
        face.progress("workers", id, fraction)
    with pytest.raises((tidelog.DataError, redis.ResponseError)):
        face.progress("workers", id, 0.5, "x" * 501)
    assert told(face, id) is None
