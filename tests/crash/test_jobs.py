"""The model of a queue does what the documentation says, and has no idea of the engine."""

from __future__ import annotations

import pytest

from tidelog.crash.errors import WrongId
from tidelog.crash.jobs import DELIVERIES_MAX, Jobs, Limits, priority
from tidelog.crash.model import Model

A, B, C = b"5-0", b"5-1", b"5-2"


def filled() -> Jobs:
    queue = Jobs()
    for job_id in (A, B, C):
        queue.apply("put", job_id, b"value of " + job_id, b"", b"")
    return queue


def test_a_job_is_taken_and_done() -> None:
    queue = filled()
    queue.apply("take", b"ann", A)
    assert queue.contents()[0][0] == (A, b"value of 5-0", b"", b"", 1, b"ann", False, False)
    queue.apply("done", A)
    assert [job[0] for job in queue.contents()[0]] == [B, C]


def test_a_known_dedup_id_adds_nothing() -> None:
    queue = Jobs()
    queue.apply("put", A, b"first", b"once", b"")
    queue.apply("take", b"ann", A)
    queue.apply("done", A)
    queue.apply("put", A, b"second", b"once", b"")
    assert queue.known(b"once") == A
    assert not any(queue.contents()[:-2])


def test_a_failed_job_waits_and_dies_after_its_last_delivery() -> None:
    queue = filled()
    for delivery in range(1, DELIVERIES_MAX + 1):
        queue.apply("take", b"ann", A)
        queue.apply("retry", A, b"bad", delivery == 1)
        paused = [job for job in queue.contents()[0] if job[0] == A and not job[6]]
        assert bool(paused) == (1 < delivery < DELIVERIES_MAX)
    jobs, failures, dead = queue.contents()[:3]
    assert [job[0] for job in jobs] == [B, C]
    assert failures == tuple((A, b"ann", n, b"bad") for n in range(1, DELIVERIES_MAX + 1))
    assert dead == ((A, b"value of 5-0", b"", DELIVERIES_MAX),)
    queue.apply("redrive", [b"6-0"])
    assert queue.contents()[0][-1] == (b"6-0", b"value of 5-0", A, b"", 0, b"", True, False)
    assert queue.contents()[2] == ()
    queue.apply("take", b"ann", b"6-0")
    queue.apply("fail", b"6-0", b"worse")
    queue.apply("redrive", [b"7-0"])
    assert queue.contents()[0][-1] == (b"7-0", b"value of 5-0", A, b"", 0, b"", True, False)


def test_a_job_that_is_given_back_was_not_delivered() -> None:
    queue = filled()
    queue.apply("take", b"ann", A)
    queue.apply("release", A)
    assert queue.contents()[0][0][4:] == (0, b"", True, False)


def test_a_worker_of_the_same_name_gets_its_jobs_again() -> None:
    queue = filled()
    queue.apply("take", b"ann", A)
    queue.apply("take", b"ann", B)
    assert queue.following(b"ann", 5, {A, B}) == [([C], [], [], [])]
    # they were lost, and come one by one
    assert queue.following(b"ann", 5, set()) == [([A], [], [], [])]
    assert queue.following(b"ann", 5, {A}) == [([B], [], [], [])]
    assert queue.following(b"bob", 5, set()) == [([C], [], [], [])]
    queue.apply("extend", A)
    assert queue.following(b"ann", 1, set()) == [([B], [], [], [])]
    queue.apply("take", b"ann", B)
    assert queue.contents()[1] == ((B, b"ann", 1, b"abandoned"),)


def test_a_job_that_kills_its_worker_dies_at_last() -> None:
    queue = filled()
    for _ in range(DELIVERIES_MAX):
        queue.apply("take", b"ann", A)
    assert queue.following(b"ann", 1, set()) == [([B], [A], [], [])]
    queue.apply("abandon", b"ann", A)
    assert queue.contents()[2] == ((A, b"value of 5-0", b"", DELIVERIES_MAX),)


def test_a_job_that_was_lost_with_others_at_its_last_delivery_has_one_more() -> None:
    queue = filled()
    for _ in range(DELIVERIES_MAX - 1):
        queue.apply("take", b"ann", A)
        queue.apply("retry", A, b"failed", True)
    queue.apply("take", b"ann", A)
    assert queue.following(b"ann", 5, set()) == [([A], [], [], [])]
    queue.apply("take", b"ann", A)
    assert queue.following(b"ann", 1, set()) == [([B], [A], [], [])]


def test_given_back_jobs_come_before_new_ones() -> None:
    queue = filled()
    for job_id in (A, B):
        queue.apply("take", b"ann", job_id)
        queue.apply("release", job_id)
    queue.apply("take", b"ann", A)
    assert queue.following(b"bob", 3, set()) == [([B, C], [], [], [])]


def test_a_delayed_job_arrives_under_another_id() -> None:
    queue = filled()
    for number in (1, 2, 3):
        queue.apply("later", b"5-90%d" % number, b"value", 0, b"")
    queue.apply("cancel", b"5-902")
    queue.apply("hasten", b"5-903")
    assert queue.contents()[3] == (
        (b"5-901", b"value", False, 0, b""),
        (b"5-903", b"value", True, 0, b""),
    )
    assert queue.contents()[8] == ((b"5-902", b"value", b"", 0),)
    assert queue.arriving() == [b"5-903"]
    queue.apply("arrive", [b"5-3"])
    assert queue.contents()[0][-1] == (b"5-3", b"value", b"5-903", b"", 0, b"", True, False)
    assert queue.contents()[3] == ((b"5-901", b"value", False, 0, b""),)


def test_a_delayed_job_keeps_its_priority_and_key() -> None:
    queue = Jobs()
    queue.apply("later", b"5-900", b"value", 5, b"k")
    queue.apply("hasten", b"5-900")
    assert queue.contents()[3] == ((b"5-900", b"value", True, 5, b"k"),)
    queue.apply("arrive", [HIGH])
    assert queue.contents()[0] == ((HIGH, b"value", b"5-900", b"k", 0, b"", True, False),)


def test_a_job_that_is_too_old_is_dead_and_the_fetch_goes_on() -> None:
    queue = Jobs()
    for job_id in (A, B):
        queue.apply("stale", job_id, b"old")
    queue.apply("put", C, b"new", b"", b"")
    assert queue.following(b"ann", 2, set()) == [([], [], [A, B], []), ([C], [], [], [])]
    assert queue.following(b"ann", 3, set()) == [([C], [], [A, B], [])]
    queue.apply("expired", A)
    assert queue.contents()[2] == ((A, b"old", b"", 0),)


def test_limits_hold_jobs_back() -> None:
    queue = filled()
    assert queue.following(b"ann", 3, set(), Limits(concurrency=2)) == [([A, B], [], [], [])]
    queue.apply("take", b"ann", A)
    assert queue.following(b"bob", 3, {A}, Limits(concurrency=2)) == [([B], [], [], [])]
    # The jobs that the worker's name held in an earlier life count already.
    assert queue.following(b"ann", 3, set(), Limits(concurrency=1)) == [([A], [], [], [])]
    queue.apply("counted", 4)
    assert queue.following(b"bob", 3, {A}, Limits(rate=5)) == [([B], [], [], [])]
    assert queue.following(b"bob", 3, {A}, Limits(rate=4)) == [([], [], [], [])]
    assert queue.contents()[6] == 4


HIGH = b"5-655360"
ONE = Limits(per_key=1)


def test_a_higher_priority_comes_first() -> None:
    queue = filled()
    queue.apply("put", HIGH, b"urgent", b"", b"")
    assert priority(HIGH) == 5
    assert queue.following(b"ann", 3, set()) == [([HIGH], [], [], [])]
    queue.apply("take", b"ann", HIGH)
    assert queue.following(b"bob", 1, {HIGH}, Limits(concurrency=1)) == [([], [], [], [])]
    assert queue.following(b"bob", 1, {HIGH}) == [([A], [], [], [])]
    assert queue.contents()[7] == ((0, (5, 2), (0, 0)), (5, (5, 655360), (5, 655360)))


def keyed() -> Jobs:
    """Two jobs of one key, and one without a key."""
    queue = Jobs()
    for job_id, key in ((A, b"k"), (B, b"k"), (C, b"")):
        queue.apply("put", job_id, b"value", b"", key)
    return queue


def test_a_job_waits_for_its_key() -> None:
    queue = keyed()
    assert queue.following(b"ann", 3, set(), ONE) == [([A, C], [], [], [B])]
    # A fetch of one job looks no further than it must.
    assert queue.following(b"ann", 1, set(), ONE) == [([A], [], [], [])]
    queue.apply("take", b"ann", A)
    assert queue.following(b"bob", 1, {A}, ONE) == [([C], [], [], [B])]
    queue.apply("take", b"bob", C)
    queue.apply("aside", B)
    assert queue.following(b"bob", 1, {A, C}, ONE) == [([], [], [], [])]
    queue.apply("done", A)
    assert queue.following(b"bob", 1, {C}, ONE) == [([B], [], [], [])]


def test_a_job_that_waits_for_its_retry_keeps_its_key() -> None:
    queue = keyed()
    queue.apply("take", b"ann", A)
    queue.apply("retry", A, b"bad", False)
    assert queue.following(b"ann", 2, set(), ONE) == [([C], [], [], [B])]
    queue.apply("take", b"ann", C)
    queue.apply("aside", B)
    queue.apply("purge")
    assert [job[0] for job in queue.contents()[0]] == [C]


def test_a_released_job_is_the_first_of_its_key() -> None:
    queue = keyed()
    queue.apply("take", b"ann", A)
    queue.apply("aside", B)
    queue.apply("release", A)
    assert queue.following(b"ann", 2, set(), ONE) == [([A, C], [], [], [])]
    assert queue.following(b"ann", 2, set(), Limits(per_key=2)) == [([A, B], [], [], [])]


def test_new_jobs_that_must_all_wait_are_passed_by_a_unit_of_their_own() -> None:
    queue = keyed()
    queue.apply("take", b"ann", A)
    queue.apply("take", b"ann", C)
    queue.apply("put", b"5-3", b"value", b"", b"k")
    queue.apply("aside", B)
    assert queue.following(b"bob", 1, {A, C}, ONE) == [
        ([], [], [], [b"5-3"]),
        ([], [], [], []),
    ]


def test_a_key_is_kept_by_the_dead() -> None:
    queue = keyed()
    queue.apply("take", b"ann", A)
    queue.apply("fail", A, b"bad")
    assert queue.contents()[2] == ((A, b"value", b"k", 1),)
    queue.apply("redrive", [b"6-0"])
    assert queue.following(b"ann", 9, set(), ONE) == [([B, C], [], [], [b"6-0"])]


def test_a_result_has_the_id_that_put_returned() -> None:
    queue = Jobs()
    queue.apply("later", b"5-900", b"value", 0, b"")
    queue.apply("hasten", b"5-900")
    queue.apply("arrive", [A])
    queue.apply("answer", A, b"done")
    queue.apply("done", A)
    assert queue.contents()[4] == ((b"5-900", b"done"),)


def test_no_tick_puts_two_jobs() -> None:
    queue = Jobs()
    queue.apply("plan", b"nightly", b"value", 60)
    queue.apply("overdue", b"nightly", 0)
    queue.apply("tick", b"nightly", [[b"nightly@0", A], [b"nightly@60", B]], 120)
    queue.apply("tick", b"nightly", [[b"nightly@60", C], [b"nightly@120", C]], 180)
    assert [job[0] for job in queue.contents()[0]] == [A, B, C]
    assert queue.contents()[5] == ((b"nightly", b"value", 180, 4),)


def test_a_purge_leaves_what_workers_hold() -> None:
    queue = filled()
    queue.apply("take", b"ann", A)
    queue.apply("purge")
    assert [job[0] for job in queue.contents()[0]] == [A]


def test_ids_grow() -> None:
    queue = filled()
    with pytest.raises(WrongId, match="5-1"):
        queue.apply("put", B, b"again", b"", b"")
    with pytest.raises(ValueError, match="does not know"):
        queue.apply("sell", B)


def test_a_job_in_any_state_is_cancelled() -> None:
    queue = filled()
    queue.apply("take", b"ann", A)
    for job_id in (A, C):
        queue.apply("cancel", job_id)
    assert [job[0] for job in queue.contents()[0]] == [B]
    assert queue.contents()[8] == (*((A, b"value of 5-0", b"", 1), (C, b"value of 5-2", b"", 0)),)


def test_the_model_of_a_store_has_queues() -> None:
    model = Model()
    model.apply([["put", b"mails", A, b"x", b"", b""], ["set", b"key", b"y"]])
    assert model.contents() == {
        b"key": b"y",
        b"mails": (
            *(((A, b"x", b"", b"", 0, b"", True, False),), (), (), (), (), (), 0),
            *(((0, (5, 0), (0, 0)),), ()),
        ),
    }
    model.apply([["take", b"mails", b"ann", A]])
    model.apply([["done", b"mails", A], ["put", b"bills", B, b"z", b"", b""]])
    assert model.contents()[b"mails"] == ((), (), (), (), (), (), 0, ((0, (5, 0), (5, 0)),), ())
