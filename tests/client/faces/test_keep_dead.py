"""Which dead jobs a queue keeps, through every face: those of 30 days, and here the latest three."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from tests.client.faces.faces import Embedded
from tests.client.faces.test_dedup import take

STORE_OPTIONS: Final = {"keep_dead_jobs": 3}
DAY: Final = 86_400.0


def dead(face: Any) -> list[bytes]:
    return [raw for _, _, raw, *_ in face.dead()]


def bury(face: Any, *values: bytes) -> None:
    for value in values:
        face.put(value)
        assert face.end("workers", take(face), "fail")


def test_a_death_too_many_drops_the_oldest(face: Any) -> None:
    bury(face, b"1", b"2", b"3")
    assert dead(face) == [b"1", b"2", b"3"]
    bury(face, b"4")
    assert dead(face) == [b"2", b"3", b"4"]
    face.crash()
    assert dead(face) == [b"2", b"3", b"4"]
    bury(face, b"5")
    assert dead(face) == [b"3", b"4", b"5"]


def test_so_do_deaths_that_a_fetch_decides(face: Any) -> None:
    bury(face, b"0")
    for value in (b"1", b"2", b"3", b"4"):
        face.put(value, ttl=5)
    face.pass_time(6)
    assert face.take("workers", "anna", 9, None) == []
    assert dead(face) == [b"2", b"3", b"4"]


def test_a_job_that_was_delivered_too_often(face: Any) -> None:
    bury(face, b"0", b"1", b"2")
    face.put(b"3")
    for _ in range(3):
        assert face.end("workers", take(face), "nack")
        face.pass_time(6)
    assert dead(face) == [b"1", b"2", b"3"]


def test_old_ones_go_when_the_next_job_dies(face: Any) -> None:
    bury(face, b"old")
    face.pass_time(20 * DAY)
    bury(face, b"young")
    face.pass_time(11 * DAY)
    assert dead(face) == [b"old", b"young"]  # a queue at rest keeps them
    bury(face, b"new")
    assert dead(face) == [b"young", b"new"]


def test_old_ones_go_while_a_job_is_in_progress(face: Any) -> None:
    bury(face, b"old")
    face.put(b"works")
    face.pass_time(31 * DAY)
    id = take(face)
    face.pass_time(1)
    assert dead(face) == []
    assert face.end("workers", id, "ack")


def test_a_redriven_job_is_not_dropped(face: Any) -> None:
    bury(face, b"1", b"2")
    assert face.redrive("first") == 1
    face.pass_time(31 * DAY)
    bury(face, b"3", b"4", b"5", b"6")
    assert dead(face) == [b"3", b"4", b"5"]
    assert face.take("workers", "anna", 1, None)[0][2] == b"6"


def test_without_limits_all_stay() -> None:
    with ExitStack() as stack:
        face: Any = Embedded(stack, {}, {"keep_dead_seconds": 0, "keep_dead_jobs": 0})
        bury(face, b"1", b"2")
        face.pass_time(400 * DAY)
        bury(face, b"3", b"4")
        assert dead(face) == [b"1", b"2", b"3", b"4"]
