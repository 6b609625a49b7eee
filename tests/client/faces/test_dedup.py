"""Dedup IDs, through every face of a queue: which job has an ID in each mode, and what frees it."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from tests.client.faces.faces import DEPTH, Commands

import tidelog

MODES = ("window", "until-done", "replace")
HELD = MODES[1:]
LONG = 86_400.0 * 3


def take(face: Any) -> str:
    """The ID of the next job, which the worker has in hand."""
    ((id, *_),) = face.take("workers", "anna", 1, None)
    return str(id)


def values(face: Any) -> list[bytes]:
    """The values of all jobs that wait or are delayed, in this order."""
    figures = face.figures("workers")
    return [row[1] for row in (*figures["peek"], *figures["later"])]


def is_free(face: Any, mode: str = "until-done", dedup_id: str = "d1") -> bool:
    """Whether a put with the ID adds a job, which is deleted again."""
    before = values(face)
    id = face.put(b"probe", dedup_id=dedup_id, dedup=mode, delay=LONG)
    free = len(values(face)) > len(before)
    assert free == face.cancel(id) or not free
    return free


# --- an end frees the ID


@pytest.mark.parametrize("mode", MODES)
def test_the_id_of_a_cancelled_job_is_free(face: Any, mode: str) -> None:
    first = face.put(b"a", dedup_id="d1", dedup=mode, delay=60)
    assert face.cancel(first)
    second = face.put(b"b", dedup_id="d1", dedup=mode, delay=60)
    assert second != first and values(face) == [b"b"] and face.cancel(second)
    face.crash()
    assert face.put(b"c", dedup_id="d1", dedup=mode) not in (first, second)
    assert values(face) == [b"c"]


@pytest.mark.parametrize("mode", MODES)
def test_the_id_of_a_purged_job_is_free(face: Any, mode: str) -> None:
    hows: list[dict[str, Any]] = [{}, {"delay": 60}, {"priority": 3}, {"delay": 1}]
    puts = [face.put(b"a", dedup_id=f"d{at}", dedup=mode, **how) for at, how in enumerate(hows)]
    face.pass_time(2)
    face.end("workers", take(face), "release")  # the last one is moved into the queue
    assert face.purge() == len(hows)
    face.crash()
    assert values(face) == []
    for at, first in enumerate(puts):
        assert face.put(b"b", dedup_id=f"d{at}", dedup=mode) != first
    assert values(face) == [b"b"] * len(hows)


@pytest.mark.parametrize("mode", MODES)
def test_the_id_of_a_job_that_expired_unseen_is_free(face: Any, mode: str) -> None:
    hows: list[dict[str, Any]] = [{}, {"delay": 1}, {"priority": 3}, {"key": "k"}]
    puts = [
        face.put(b"a", dedup_id=f"d{at}", dedup=mode, ttl=1, **how) for at, how in enumerate(hows)
    ]
    face.pass_time(5)
    assert face.take("workers", "anna", 1, None) == []
    assert face.figures("workers")["dead"] == len(hows)
    for at, first in enumerate(puts):
        assert face.put(b"b", dedup_id=f"d{at}", dedup=mode) != first
    assert values(face) == [b"b"] * len(hows)


@pytest.mark.parametrize("how", [{}, {"delay": 1}, {"priority": 3}], ids=str)
def test_a_done_job_keeps_its_id_in_the_window_only(face: Any, how: dict[str, Any]) -> None:
    puts = {mode: face.put(mode.encode(), dedup_id=mode, dedup=mode, **how) for mode in MODES}
    face.pass_time(2)
    for mode in MODES[:2]:
        assert face.put(b"x", dedup_id=mode, dedup=mode) == puts[mode]
    jobs = [take(face) for _ in MODES]
    for mode in MODES[:2]:
        assert face.put(b"x", dedup_id=mode, dedup=mode) == puts[mode]
    for job in jobs:
        face.end("workers", job, "ack")
    assert values(face) == []
    face.crash()
    assert face.put(b"x", dedup_id="window") == puts["window"]
    for mode in HELD:
        assert face.put(b"x", dedup_id=mode, dedup=mode) != puts[mode]
    assert face.purge() == 2
    assert face.put(b"x", dedup_id="window") == puts["window"]  # a purge leaves it


def test_every_end_frees_an_id_until_done(face: Any) -> None:
    hows: list[dict[str, Any]] = [{}, {"delay": 1}]
    for end, how in product(("result", "later", "fail"), hows):
        first = face.put(b"a", dedup_id="d1", dedup="until-done", **how)
        face.pass_time(2)
        job = take(face)
        assert face.put(b"b", dedup_id="d1", dedup="until-done") == first
        face.end("workers", job, end)
        face.purge()
        assert is_free(face)


def test_a_paused_job_has_its_id_and_a_dead_one_only_in_the_window(face: Any) -> None:
    puts = {mode: face.put(b"a", dedup_id=mode, dedup=mode) for mode in MODES[:2]}
    for delivery in range(3):
        for _ in puts:
            face.end("workers", take(face), "nack")
        if delivery < 2:
            for mode, id in puts.items():
                assert face.put(b"b", dedup_id=mode, dedup=mode) == id
        face.pass_time(6)
    assert (
        face.dead_count() if hasattr(face, "dead_count") else face.figures("workers")["dead"] == 2
    )
    assert face.put(b"b", dedup_id="window") == puts["window"]
    assert is_free(face, dedup_id="until-done")
    # A redriven job does not take its ID again.
    assert face.redrive("all") == 2
    assert is_free(face, dedup_id="until-done") and face.purge() == 2
    assert is_free(face, "window", "window")


def test_a_purge_of_dead_jobs_frees_their_ids(face: Any) -> None:
    first = face.put(b"a", dedup_id="d1")
    face.end("workers", take(face), "fail")
    assert face.put(b"b", dedup_id="d1") == first
    assert face.dead_purge("all") == 1
    assert face.put(b"b", dedup_id="d1") != first


def test_a_forgotten_id_is_free(face: Any) -> None:
    puts = {mode: face.put(b"a", dedup_id=mode, dedup=mode) for mode in MODES}
    later = face.put(b"a", dedup_id="later", delay=9)
    high = face.put(b"a", dedup_id="high", priority=4)
    for id in (*MODES, "later", "high"):
        assert face.forget(id) and not face.forget(id)
    assert not face.forget("unknown")
    face.crash()
    for mode, id in puts.items():
        assert face.put(b"b", dedup_id=mode, dedup=mode) != id
    assert face.put(b"b", dedup_id="later") != later and face.put(b"b", dedup_id="high") != high
    assert values(face).count(b"a") == 5  # the jobs stay as they are
    # Their ends do not take the IDs from the jobs that have them now.
    for _ in range(4):
        face.end("workers", take(face), "ack")
    assert not is_free(face, dedup_id="until-done")


def test_a_purge_of_delayed_jobs_leaves_the_ids_of_others(face: Any) -> None:
    done = face.put(b"a", dedup_id="done", delay=1)
    runs = face.put(b"b", dedup_id="runs", dedup="until-done", delay=1)
    face.pass_time(2)
    jobs = [take(face), take(face)]
    face.end("workers", jobs[0], "ack")
    gone = {mode: face.put(b"c", dedup_id=mode, dedup=mode, delay=60) for mode in MODES}
    assert face.purge() == len(MODES)
    face.pass_time(1)
    assert face.put(b"d", dedup_id="done") == done
    assert face.put(b"d", dedup_id="runs", dedup="until-done") == runs
    for mode, id in gone.items():
        assert face.put(b"d", dedup_id=mode, dedup=mode) != id
    assert face.end("workers", jobs[1], "ack") and is_free(face, dedup_id="runs")


# --- how long an ID is taken


def test_an_id_until_done_outlives_the_window(face: Any) -> None:
    first = face.put(b"a", dedup_id="d1", dedup="until-done", delay=LONG)
    old = face.put(b"a", dedup_id="d2", delay=LONG)
    face.pass_time(LONG - 1)
    assert face.put(b"b", dedup_id="d1", dedup="until-done") == first
    assert face.put(b"b", dedup_id="d2", delay=LONG) != old


def test_a_moved_job_keeps_its_id(face: Any) -> None:
    first = face.put(b"a", dedup_id="d1", dedup="until-done", delay=60)
    assert face.move(first, delay=1)
    face.pass_time(2)
    assert face.put(b"b", dedup_id="d1", dedup="until-done") == first
    job = take(face)
    assert job != first and face.put(b"b", dedup_id="d1", dedup="until-done") == first
    assert face.end("workers", job, "ack") and is_free(face)


def test_a_job_that_another_group_needs_keeps_its_id(face: Any) -> None:
    for group in ("workers", "audit"):
        face.subscribe(group)
    first = face.put(b"a", dedup_id="d1", dedup="until-done")
    face.end("workers", take(face), "ack")
    assert face.put(b"b", dedup_id="d1", dedup="until-done") == first
    ((job, *_),) = face.take("audit", "ben", 1, None)
    face.end("audit", job, "ack")
    assert is_free(face)


def test_the_id_of_a_job_that_another_client_deleted_is_free(face: Any) -> None:
    first = face.put(b"a", dedup_id="d1", dedup="until-done")
    face.db.xdel("q", first)
    assert face.put(b"b", dedup_id="d1", dedup="until-done") != first


@pytest.mark.parametrize("mode", MODES)
def test_a_job_may_put_its_successor(face: Any, mode: str) -> None:
    face.put(b"a", dedup_id="d1", dedup=mode)
    assert face.end("workers", take(face), mode)
    assert values(face) == ([] if mode == "window" else [b"next"])


def test_many_jobs_until_done_leave_nothing_behind(face: Any) -> None:
    for number in range(8):
        face.put(b"a", dedup_id=f"d{number}", dedup=HELD[number % 2])
    for _ in range(8):
        face.end("workers", take(face), "ack")
    assert face.db.xinfo_stream("q")["iids-tracked"] == 0


# --- replace


@pytest.mark.parametrize("mode", MODES)
def test_a_put_replaces_a_job_that_has_not_begun(face: Any, mode: str) -> None:
    firsts: list[dict[str, Any]] = [{}, {"delay": 60}, {"priority": 3}, {"key": "k"}]
    thens: list[dict[str, Any]] = [{}, {"delay": 30}, {"priority": 5}]
    for first, then in product(firsts, thens):
        old = face.put(b"old", dedup_id="d1", dedup=mode, **first)
        other = face.put(b"other", **first)
        new = face.put(b"new", dedup_id="d1", dedup="replace", **then)
        assert len({old, other, new}) == 3 and sorted(values(face)) == [b"new", b"other"]
        assert face.put(b"x", dedup_id="d1") == new
        newest = face.put(b"newest", dedup_id="d1", dedup="replace")
        assert newest != new and sorted(values(face)) == [b"newest", b"other"]
        face.pass_time(1)
        assert face.purge() == 2
        face.pass_time(1)
    face.put(b"old", dedup_id="d1", dedup=mode)
    face.put(b"new", dedup_id="d1", dedup="replace")
    face.crash()
    assert values(face) == [b"new"]


def test_a_put_replaces_a_job_that_became_due(face: Any) -> None:
    face.put(b"old", dedup_id="d1", dedup="replace", delay=1)
    face.put(b"first")
    face.pass_time(2)
    take(face)  # the delayed job is moved, and waits
    face.put(b"new", dedup_id="d1", dedup="replace")
    assert values(face) == [b"new"]


def test_a_put_replaces_a_job_that_was_released(face: Any) -> None:
    face.put(b"old", dedup_id="d1", dedup="replace")
    face.end("workers", take(face), "release")
    face.put(b"new", dedup_id="d1", dedup="replace")
    assert values(face) == [b"new"]
    assert [row[2] for row in face.take("workers", "anna", 2, None)] == [b"new"]


def test_a_job_that_runs_is_not_replaced(face: Any) -> None:
    old = face.put(b"old", dedup_id="d1", dedup="replace")
    job = take(face)
    new = face.put(b"new", dedup_id="d1", dedup="replace")
    assert old != new and values(face) == [b"new"] and face.end("workers", job, "ack")
    face.put(b"newer", dedup_id="d1", dedup="replace")  # it holds the ID, not the job that ended
    assert values(face) == [b"newer"]


def test_a_failed_job_is_not_replaced(face: Any) -> None:
    face.put(b"old", dedup_id="d1", dedup="replace")
    face.end("workers", take(face), "nack")
    face.put(b"new", dedup_id="d1", dedup="replace")
    face.pass_time(6)
    assert sorted(values(face)) == [b"new", b"old"]


def test_a_full_queue_has_room_for_what_replaces_a_job_of_it(face: Any) -> None:
    face.put(b"old", dedup_id="d1", dedup="replace")
    while face.put_many([b"x"]) != "full":
        pass
    face.put(b"new", dedup_id="d1", dedup="replace")
    assert face.figures("workers")["stats"]["waiting"] == DEPTH and b"old" not in values(face)
    with pytest.raises(tidelog.QueueFull):
        face.put(b"y", dedup_id="d2", dedup="replace")


# --- arguments


def test_a_job_shows_the_id_that_it_holds(face: Any) -> None:
    puts = {mode: face.put(b"a", dedup_id=f"{mode} é", dedup=mode, delay=1) for mode in MODES}
    face.pass_time(2)
    jobs = [take(face) for _ in puts]
    if isinstance(face, Commands):
        rows = dict(face.db.xrange("q"))
        shown = [rows[id.encode()].get(b"dedup", b"").decode() or None for id in jobs]
    else:
        shown = [face.jobs["workers", id].dedup_id for id in jobs]
    assert shown == [None, "until-done é", "replace é"]


def test_the_mode_is_checked(face: Any) -> None:
    if isinstance(face, Commands):
        for words in (("DEDUP", "d", "MODE", "always"), ("MODE", "replace")):
            with pytest.raises(Exception, match="MODE is WINDOW, UNTIL-DONE or REPLACE"):
                face.call("PUT", "v", *words)
        return
    with pytest.raises(tidelog.DataError, match="dedup must be 'window'"):
        face.put(b"a", dedup_id="d", dedup="always")
    with pytest.raises(tidelog.DataError, match="needs a dedup_id"):
        face.put(b"a", dedup="replace")
    with pytest.raises(tidelog.DataError, match="dedup_id must be"):
        face.forget("")
