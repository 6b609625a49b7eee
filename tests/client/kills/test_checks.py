"""Each check of the kill test fails for a story in which its promise is broken, and for that reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.kills import checks, ends
from tests.client.kills.cancels import cancelled_jobs_are_gone, cancels_of_running_jobs
from tests.client.kills.evidence import CUT, NS, SLACK_NS, Call, Story
from tests.client.kills.pauses import nothing_comes_from_a_paused_queue
from tests.client.kills.queues import FAR_S, PLANS, RETRY_AFTER_S
from tests.client.kills.ticks import ticks_are_made_once

S = NS
ID, LATER = "1000-0", "1000-2097152"


class Told:
    """A story that is told call by call, one second each."""

    def __init__(self) -> None:
        self.story = Story([], killed={"w": 100 * S, "v": 100 * S, "p": 100 * S}, wall_ns=(0, 0))
        self.now = 0

    def call(self, process: str, what: str, outcome: Any, **facts: Any) -> Call:
        self.now += S
        number = len(self.story.calls) + 1
        made = Call(process, number, "t", what, facts, self.now, self.now + S // 100, outcome)
        self.story.calls.append(made)
        return made

    def put(self, queue: str = "plain", value: str = "v", id: str = ID, **facts: Any) -> Call:
        return self.call("p", "put", id, queue=queue, values=[value], **facts)

    def take(self, process: str = "w", queue: str = "plain", **job: Any) -> Call:
        job = {"id": ID, "first": ID, "value": "v", "headers": {}, "count": 1, **job}
        job = {"priority": 0, "key": None, **job}
        return self.call(process, "take", job, queue=queue, worker=process)

    def end(self, take: Call, what: str = "ack", outcome: Any = True) -> Call:
        return self.call(take.process, what, outcome, take=take.number)


def lost(told: Told) -> None:
    told.put()
    told.end(told.take(), "release")


def lost_for_later(told: Told) -> None:
    told.put(delay=FAR_S, id=LATER)
    told.end(told.take(first=LATER))
    told.story.left.later["plain"] = []


def twice(told: Told) -> None:
    told.put()
    told.take(id="1001-0", first="1001-0")


def seen_again(told: Told) -> None:
    told.end(told.take())
    told.take("v", count=2)


def there_again(told: Told) -> None:
    told.end(told.take())
    told.story.left.taken["plain"] = [(ID, ID, "v", {})]


def cancelled(told: Told) -> None:
    told.call("p", "cancel", True, queue="plain", id=LATER)
    told.take(first=LATER)


def cancelled_and_done(told: Told) -> None:
    take = told.take()
    told.call("p", "cancel", True, queue="plain", id=ID)
    told.end(take)


def cancelled_and_dead(told: Told) -> None:
    told.end(told.take(), "nack")
    told.call("p", "cancel", True, queue="plain", id=ID)
    told.story.left.dead["plain"] = [(ID, "v", "no")]


def in_two_hands(told: Told) -> None:
    one, two = told.take("w"), told.take("v", count=2)
    told.end(one)
    told.end(two)


def after_a_kill(told: Told) -> None:
    """A process is killed, and another one has its job before the lease can have ended."""
    one = told.take("w")
    told.story.killed["w"] = told.now + S
    told.now += int(RETRY_AFTER_S * S / 10) - S
    two = told.take("v", count=2)
    assert one.end is not None and two.end is not None and two.end > one.end
    told.end(two)


def early(told: Told) -> None:
    told.put(delay=10.0, id=LATER)
    told.take(first=LATER)


def late(told: Told) -> None:
    told.put(delay=None, ttl=0.5)
    told.take()


def hangs(told: Told) -> None:
    call = told.put()
    call.end, call.outcome = None, None


def another_result(told: Told) -> None:
    told.end(told.take(), "result")
    told.story.left.results["plain", ID] = "something else"


def told_another_result(told: Told) -> None:
    told.call("p", "wait", ["result", "something else"], queue="plain", id=ID)
    told.end(told.take(), "ack")


def paused(told: Told) -> None:
    told.call("p", "resume", True, queue="plain")
    told.call("p", "pause", True, queue="plain")
    told.take()
    told.call("p", "resume", True, queue="plain")


def no_effect(told: Told) -> None:
    told.end(told.take(), "and")


def an_effect_of_nothing(told: Told) -> None:
    told.end(told.take(), "release")
    told.story.left.effects = [["plain", ID]]


def two_effects(told: Told) -> None:
    told.end(told.take(), "and")
    told.story.left.effects = [["plain", ID]] * 2


def dead_unseen(told: Told) -> None:
    """A worker has another job meanwhile."""
    told.put("few")
    told.put("few", "w", "1000-1")
    told.end(told.take(queue="few", id="1000-1", first="1000-1", value="w"))
    told.story.left.dead["few"] = [(ID, "v", "given up after 2 deliveries, never finished")]


def dead_for_nothing(told: Told) -> None:
    told.put("few")
    told.end(told.take(queue="few"))
    told.story.left.dead["few"] = [(ID, "v", "no")]


def dead_too_soon(told: Told) -> None:
    told.put("few")
    told.end(told.take(queue="few"), "nack")
    told.story.left.dead["few"] = [(ID, "v", "given up after 1 delivery; the last one failed")]


def dead_of_unknown_deliveries(told: Told) -> None:
    told.put("few")
    told.end(told.take(queue="few"), "nack")
    told.story.left.dead["few"] = [(ID, "v", "given up after 2 deliveries; the last one failed")]


def expired_without_a_limit(told: Told) -> None:
    told.put("few")
    told.story.left.dead["few"] = [(ID, "v", "expired")]


def counted_unseen(told: Told) -> None:
    """A wait was cancelled, and its job counts."""
    told.put("few")
    told.call("w", "take", CUT, queue="few", worker="w")
    told.end(told.take("v", "few", count=2))


def counted_though_given_back(told: Told) -> None:
    told.put("few")
    told.end(told.take(queue="few"), "release")
    told.end(told.take(queue="few", count=2))


def a_thread_is_left(told: Told) -> None:
    told.story.ended.add("w")
    told.call("w", "ended", ["tidelog-client"])


def never_said_that_it_ended(told: Told) -> None:
    told.put()
    told.story.ended.add("w")


def held(told: Told, id: str, value: str, mode: str) -> Call:
    return told.put("once", value, id, dedup=mode, dedup_id="d", delay=None)


def lost_while_held(told: Told) -> None:
    """Its job is not there, and no later put has replaced it."""
    held(told, FIRST, "v", "replace")
    held(told, FIRST, "w", "until-done")


FIRST, SECOND, HIGH = "1000-0", "1000-1", "1000-655360"


def another_priority(told: Told) -> None:
    told.put(priority=3, key="k")
    told.take(key="k")


def another_key(told: Told) -> None:
    told.put(priority=0, key="k")
    told.take(key="l")


def another_lane(told: Told) -> None:
    told.put(priority=5, id=HIGH)
    told.take(id=FIRST, first=HIGH, priority=5)


def keyed(told: Told, id: str, process: str = "w") -> Call:
    told.put("keyed", id, id, key="k")
    return told.take(process, "keyed", id=id, first=id, value=id, key="k")


def out_of_order(told: Told) -> None:
    """A job fails, the next one of its key is delivered, then the first one again."""
    told.end(keyed(told, FIRST), "nack")
    told.end(keyed(told, SECOND))
    told.take("w", "keyed", id=FIRST, first=FIRST, value=FIRST, key="k", count=2)


def out_of_order_at_the_end(told: Told) -> None:
    told.put("keyed", FIRST, FIRST, key="k")
    told.end(keyed(told, SECOND))
    told.story.left.taken["keyed"] = [(FIRST, FIRST, FIRST, {})]


def two_of_a_key(told: Told) -> None:
    one, two = keyed(told, FIRST), keyed(told, SECOND, "v")
    told.end(one)
    told.end(two)


def low_first(told: Told) -> None:
    """Jobs of priority 0 come while one of priority 5 waits, again and again."""
    told.put("narrow", HIGH, HIGH, priority=5)
    for number in range(20):
        told.put("narrow", f"v{number}", f"1000-{number}", priority=0)
        told.end(told.take(queue="narrow", id=f"1000-{number}", first=f"1000-{number}"))
    told.take(queue="narrow", id=HIGH, first=HIGH, priority=5)


@pytest.mark.parametrize(
    ("check", "tell", "says"),
    [
        (checks.nothing_put_is_lost, lost, "v is lost"),
        (checks.nothing_put_is_lost, lost_for_later, "a job for later is gone"),
        (checks.nothing_is_stored_twice, twice, "stored twice"),
        (checks.nothing_done_is_seen_again, seen_again, "after its acknowledgement"),
        (checks.nothing_done_is_seen_again, there_again, "is there, and was acknowledged"),
        (cancelled_jobs_are_gone, cancelled, "was cancelled before"),
        (cancelled_jobs_are_gone, cancelled_and_done, "was done and cancelled"),
        (cancelled_jobs_are_gone, cancelled_and_dead, "is there, and was cancelled"),
        (checks.nobody_has_it_besides, in_two_hands, "two workers had"),
        (checks.nobody_has_it_besides, after_a_kill, "two workers had"),
        (checks.nothing_comes_too_early, early, "before it was due"),
        (checks.nothing_comes_too_late, late, "after its time to live"),
        (nothing_comes_from_a_paused_queue, paused, "came in the pause"),
        (checks.no_call_hangs, hangs, "99.0 s"),
        (checks.results_are_stored, another_result, "is another one"),
        (checks.results_are_stored, told_another_result, "told another result"),
        (checks.effects_are_those_of_done_jobs, no_effect, "its effect is not there"),
        (checks.effects_are_those_of_done_jobs, an_effect_of_nothing, "not done"),
        (checks.effects_are_those_of_done_jobs, two_effects, "twice"),
        (checks.jobs_are_as_they_were_put, another_priority, "was put otherwise"),
        (checks.jobs_are_as_they_were_put, another_key, "was put otherwise"),
        (checks.jobs_are_as_they_were_put, another_lane, "lies in another lane"),
        (checks.jobs_of_a_key_are_in_order, out_of_order, "1000-0 (Delivery("),
        (checks.jobs_of_a_key_are_in_order, out_of_order_at_the_end, "1000-0 (left over)"),
        (checks.keys_are_limited, two_of_a_key, "2 jobs of a key at once"),
        (checks.the_highest_priority_goes_first, low_first, "20 came before one of a higher"),
        (checks.nothing_put_is_lost, lost_while_held, "v is lost"),
        (ends.deaths_are_explained, dead_unseen, "no handler began v"),
        (ends.deaths_are_explained, dead_for_nothing, "nobody gave v up"),
        (ends.deaths_are_explained, dead_too_soon, "given up after 1 delivery"),
        (ends.deaths_are_explained, dead_of_unknown_deliveries, "given up after 2 deliveries"),
        (ends.deaths_are_explained, expired_without_a_limit, "v has no time to live"),
        (ends.deliveries_are_explained, counted_unseen, "1 deliveries of"),
        (ends.deliveries_are_explained, counted_though_given_back, "1 deliveries of"),
        (ends.nothing_is_left_of_those_who_ended, a_thread_is_left, "w left ['tidelog-client']"),
        (ends.nothing_is_left_of_those_who_ended, never_said_that_it_ended, "w left None"),
    ],
)
def test_a_check_fails(
    check: Callable[[Story], None], tell: Callable[[Told], None], says: str
) -> None:
    told = Told()
    check(told.story)
    tell(told)
    with pytest.raises(AssertionError, match=re.escape(says)):
        check(told.story)


def test_deaths_and_doubts() -> None:
    """A check finds no fault in a thing that a kill explains."""
    told = Told()
    told.put("few")
    told.end(told.take(queue="few"), "nack")
    lost = told.call("v", "take", None, queue="few", worker="v")
    lost.end = None
    told.end(told.take(queue="few", count=3), "nack")
    told.story.left.dead["few"] = [(ID, "v", "given up after 3 deliveries; the last one failed")]
    ends.deaths_are_explained(told.story)
    ends.deliveries_are_explained(told.story)


def test_replaced_jobs() -> None:
    told = Told()
    held(told, FIRST, "v", "until-done")
    held(told, SECOND, "w", "replace")
    told.end(told.take(queue="once", id=SECOND, first=SECOND, value="w"))
    held(told, "1000-2", "x", "until-done")
    held(told, "1000-2", "y", "until-done")
    told.end(told.take(queue="once", id="1000-2", first="1000-2", value="x"))
    checks.nothing_put_is_lost(told.story)


def test_pauses() -> None:
    """A job that was asked for before the pause may come in it, and so may one after a `resume` of another putter."""
    told = Told()
    early = told.take()
    told.call("p", "pause", True, queue="plain")
    early.end = told.now + S // 2
    told.call("q", "resume", None, queue="plain").end = None
    told.take(count=2)
    nothing_comes_from_a_paused_queue(told.story)


def test_cancels() -> None:
    """A job that runs is cancelled: its end is refused. A cancel that came too late says so."""
    told = Told()
    told.put()
    take = told.take()
    told.call("p", "cancel", True, queue="plain", id=ID)
    told.end(take, "ack", False)
    told.end(told.take(id=LATER, first=LATER))
    told.call("p", "cancel", False, queue="plain", id=LATER)
    cancelled_jobs_are_gone(told.story)
    assert cancels_of_running_jobs(told.story) == 1


def test_limits() -> None:
    assert checks.most_at_once([(0, 5), (5, 9), (6, 9), (7, 8)]) == 3
    assert checks.most_in_a_second([(0, 1), (90, 95), (100, 102)], 100 + SLACK_NS) == 2


def ticked(told: Told, *ticks: int, fetch_at: float | None = None, outcome: Any = None) -> None:
    """The seconds of `ticks` were made; a worker fetched at another time."""
    told.call("p", "schedule", ["one", 1.0])
    told.call("p", "schedule", ["all", 1.0])
    for name in ("one", "all"):
        for number, tick in enumerate(ticks):
            headers = {"schedule": name, "tick": f"1970-01-01T00:00:{tick:02}+00:00"}
            told.take(queue="ticks", id=f"{number}-{tick}", headers=headers)
        told.story.left.ticks[name] = len(set(ticks))
    for call in told.story.of("take"):
        call.begin, call.end = 100 * S, 101 * S
    if fetch_at is not None:
        made = told.call("w", "take", outcome, queue="ticks", worker="w")
        made.begin, made.end = int(fetch_at * S), int((fetch_at + 0.1) * S)


ALL, ONE = PLANS[:2]


def test_ticks() -> None:
    told = Told()
    ticked(told, 1, 2, 3)
    ticks_are_made_once(told.story, ALL)
    ticks_are_made_once(told.story, ONE)
    told = Told()
    ticked(told, 1, 2, 4)
    ticks_are_made_once(told.story, ONE)
    with pytest.raises(AssertionError, match="tick 3000 of all is missing"):
        ticks_are_made_once(told.story, ALL)
    told = Told()
    ticked(told, 1, 2, 4, fetch_at=3.5)
    with pytest.raises(AssertionError, match="no worker made tick 3000 of one"):
        ticks_are_made_once(told.story, ONE)
    told.story.wall_ns = 0, S  # the wall clock was moved
    ticks_are_made_once(told.story, ONE)
    told = Told()
    ticked(told, 1, 2, 4, fetch_at=3.5, outcome=CUT)
    ticks_are_made_once(told.story, ONE)
    told = Told()
    ticked(told, 1, 2, 2, 3)
    with pytest.raises(AssertionError, match="made twice"):
        ticks_are_made_once(told.story, ALL)
