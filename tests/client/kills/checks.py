"""Checks of a story. They hold no matter which processes were killed; an AssertionError names the job or the call."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from tests.client.kills.account import account
from tests.client.kills.cancels import (
    cancelled_jobs_are_gone,
    cancels,
    cancels_of_running_jobs,
)
from tests.client.kills.crowd import HANG_S, NAME, START_S
from tests.client.kills.dedup import is_replaced, is_stored, values_of
from tests.client.kills.ends import (
    deaths_are_explained,
    deliveries_are_explained,
    nothing_is_left_of_those_who_ended,
)
from tests.client.kills.evidence import DONE, NS, SLACK_NS, Call, Delivery, Story
from tests.client.kills.pauses import nothing_comes_from_a_paused_queue, pauses
from tests.client.kills.queues import (
    BY_NAME,
    CONCURRENCY,
    FAR_S,
    PER_KEY,
    PLANS,
    RATE,
    RETRY_AFTER_S,
)
from tests.client.kills.ticks import ticks_are_made_once

from tidelog.jobs.work.fetch import FAIR

SEEN_BY_NOBODY: Final = (
    3  # jobs that were on the way to a worker that was killed, while others looked for jobs
)
BUSY: Final = 5.0  # a machine that is so much slower than usual
CROWDED: Final = "narrow"  # the queue whose jobs wait for workers
Span = tuple[int, int]


def check_all(story: Story) -> None:
    """Every check. A note on the error tells what happened to the jobs that its message names."""
    try:
        _check_all(story)
    except AssertionError as wrong:
        wrong.add_note(account(story, str(wrong)))
        raise


def _check_all(story: Story) -> None:
    no_call_hangs(story)
    nothing_put_is_lost(story)
    nothing_is_stored_twice(story)
    nothing_done_is_seen_again(story)
    nobody_has_it_besides(story)
    nothing_comes_too_early(story)
    nothing_comes_too_late(story)
    results_are_stored(story)
    effects_are_those_of_done_jobs(story)
    deaths_are_explained(story)
    deliveries_are_explained(story)
    nothing_is_left_of_those_who_ended(story)
    jobs_are_as_they_were_put(story)
    jobs_of_a_key_are_in_order(story)
    keys_are_limited(story)
    nothing_comes_from_a_paused_queue(story)
    cancelled_jobs_are_gone(story)
    the_highest_priority_goes_first(story)
    assert held_at_once(story) <= CONCURRENCY, "workers held more jobs at once than they may"
    assert delivered_in_a_second(story) <= RATE, "more jobs were delivered in a second than may be"
    for plan in PLANS:
        ticks_are_made_once(story, plan)


def limits_are_reached(story: Story) -> None:
    """Otherwise nobody tried to exceed them. And the schedules have ticked.

    On a busy machine the putters are too slow to make jobs wait for each other.
    """
    ticks, held, of_a_key = story.left.ticks, held_at_once(story), held_of_a_key(story)
    assert all(number > 10 for number in ticks.values()), f"few ticks: {ticks}"
    assert (held, of_a_key) == (CONCURRENCY, PER_KEY), f"held at once: {held}; {of_a_key} of a key"
    assert pauses(story) > 3, f"{pauses(story)} pauses"
    running = cancels_of_running_jobs(story)
    assert running > 3, f"{running} jobs were cancelled while they ran"
    rate = delivered_in_a_second(story)
    assert rate >= 0.6 * RATE, f"{rate} jobs were delivered in a second"
    if story.slowness < BUSY:
        waited = overtakings(story)
        assert waited > 3, f"{waited} jobs came before earlier ones of a lower priority"


# --- calls


def no_call_hangs(story: Story) -> None:
    """Each call ends in time: after it began, or after the last kill of an owner meanwhile.

    A busy machine has more time, in proportion to the time that processes needed to start meanwhile.
    """
    begins: dict[str, int] = {}
    for call in story.calls:
        begins[call.process] = min(call.begin, begins.get(call.process, call.begin))
    starts = [(at, begins[who]) for who, at in story.started.items() if who in begins]
    for call in story.calls:
        end = story.killed[call.process] if call.end is None else call.end
        if any(who == call.process and a < end and call.begin < b for who, a, b in story.frozen):
            continue
        times = (*story.owners_killed, *(thawed for _, thawed in story.owners_frozen))
        kills = (at for at in times if call.begin < at < end)
        took = (end - max(kills, default=call.begin)) / NS
        wait = call.facts.get("wait", 0.0)
        if took > HANG_S + wait:
            meanwhile = ((b - a) / NS / START_S for a, b in starts if a < end and call.begin < b)
            patience = HANG_S * max(story.slowness, *meanwhile, 1.0) + wait
            assert took <= patience, f"{took:.1f} s, and not more than {patience:.1f}: {call}"


def nothing_put_is_lost(story: Story) -> None:
    """Every acknowledged put was done, died, was cancelled, or is still there."""
    there: set[tuple[str, Any]] = set()
    for name, taken in story.left.taken.items():
        there |= {(name, value) for _, _, value, _ in taken}
    for name, dead in story.left.dead.items():
        there |= {(name, value) for _, value, _ in dead}
    for name, later in story.left.later.items():
        there |= {(name, value) for _, value in later}
    for each in story.deliveries():
        closing = each.closing
        if closing is not None and closing.what in DONE:
            if closing.outcome is True or closing.is_doubtful:
                there.add((each.queue, each.value))
    gone = {
        (call.facts["queue"], call.facts["id"])
        for call in story.of("cancel")
        if call.outcome is True or call.is_doubtful
    }
    known = values_of(story)
    for call, value in story.puts():
        queue = call.facts["queue"]
        if is_stored(call) and (queue, value) not in there and (queue, call.outcome) not in gone:
            values = known[queue, call.outcome]
            held = any((queue, other) in there for other in values)
            another = any(is_replaced(story, queue, other) for other in (value, *values))
            assert call.facts.get("dedup") and (held or another), f"{value} is lost: {call}"
    for call in story.of("put"):
        if call.facts.get("delay") == FAR_S and is_stored(call):
            moved = [
                each
                for each in story.of("move")
                if (each.facts["queue"], each.facts["id"]) == (call.facts["queue"], call.outcome)
            ]
            place = call.facts["queue"], call.outcome
            if not moved and place not in gone:
                left = {id for id, _ in story.left.later[call.facts["queue"]]}
                assert call.outcome in left, f"a job for later is gone: {call}"


def nothing_is_stored_twice(story: Story) -> None:
    """Each value has one ID, also if its put was repeated, or two processes put it with one dedup ID."""
    ids = defaultdict[tuple[str, Any], set[str]](set)
    for call in story.of("put"):
        if is_stored(call):
            ids[call.facts["queue"], call.facts["values"][0]].add(call.outcome)
    for each in story.deliveries():
        if "tick" not in each.headers:
            ids[each.queue, each.value].add(each.first)
    for name, taken in story.left.taken.items():
        for _, first, value, headers in taken:
            if "tick" not in headers:
                ids[name, value].add(first)
    for name, later in story.left.later.items():
        for id, value in later:
            ids[name, value].add(id)
    twice = {value: found for value, found in ids.items() if len(found) > 1}
    assert not twice, f"these were stored twice: {twice}"


def nothing_done_is_seen_again(story: Story) -> None:
    """After its acknowledgement, a job is not delivered, not dead and not there."""
    done: dict[tuple[str, str], Delivery] = {}
    for each in story.deliveries():
        if each.closing is not None and each.closing.what in DONE:
            if each.closing.outcome is True:
                assert each.job not in done, f"two acknowledgements: {each} and {done[each.job]}"
                done[each.job] = each
    for each in story.deliveries():
        last = done.get(each.job)
        if last is not None and last.closing is not None and last.closing.end is not None:
            # A worker that was slow to note an earlier delivery has a lower count.
            assert each.begin <= last.closing.end or each.count < last.count, (
                f"{each} after its acknowledgement {last.closing}"
            )
    left = [(name, each[0]) for name, taken in story.left.taken.items() for each in taken]
    left += [(name, each[0]) for name, dead in story.left.dead.items() for each in dead]
    for job in left:
        assert job not in done, f"{job} is there, and was acknowledged: {done.get(job)}"


def hold(story: Story, each: Delivery) -> Span | None:
    """A span in which the job surely was the worker's: until it ended it. None: it lost it meanwhile.

    A job of a worker that was killed is the worker's until the lease ends, unless the next worker of its name comes.
    """
    closing = each.closing
    if closing is not None and closing.end is not None:
        return (each.end, closing.begin) if closing.outcome is True else None
    lease_ends = each.begin + int(RETRY_AFTER_S * NS) - SLACK_NS
    if closing is None and BY_NAME[each.queue].batch == 1 and not each.worker.startswith(NAME):
        return each.end, max(each.end, lease_ends)
    end = story.killed[each.process] if closing is None else closing.begin
    return each.end, max(each.end, min(end, lease_ends))


def holds(story: Story) -> Iterator[tuple[Delivery, Span]]:
    """The spans in which jobs surely were in the hands of their workers. A cancel may end one at any time."""
    cancelled = cancels(story)
    for each in story.deliveries():
        if (each.queue, each.first) not in cancelled and (span := hold(story, each)) is not None:
            yield each, span


def nobody_has_it_besides(story: Story) -> None:
    """No job is in the hands of two workers at once."""
    spans = defaultdict[tuple[str, str], list[Span]](list)
    for each, span in holds(story):
        spans[each.job].append(span)
    for job, found in spans.items():
        assert most_at_once(found) <= 1, f"two workers had {job} at once: {found}"


def nothing_comes_too_early(story: Story) -> None:
    """A delayed job is delivered when it is due, by the time of its put, or of the last move."""
    moved = defaultdict[tuple[str, str], list[Call]](list)
    for call in story.of("move"):
        moved[call.facts["queue"], call.facts["id"]].append(call)
    due: dict[tuple[str, str], int] = {}
    for call in story.of("put"):
        # A put whose dedup ID is taken returns the ID of a job that may be due before.
        if is_stored(call) and call.facts.get("delay") and not call.facts.get("dedup"):
            place = call.facts["queue"], call.outcome
            times = [
                each.begin + int(each.facts["delay"] * NS)
                for each in (call, *moved[place])
                if each is call or each.outcome is not False
            ]
            due[place] = min(times)
    for each in story.deliveries():
        at = due.get((each.queue, each.first), each.end)
        early = (at - each.end) / NS
        assert early <= SLACK_NS / NS, f"{each} came {early:.3f} s before it was due"


def nothing_comes_too_late(story: Story) -> None:
    """A job is not delivered after its `ttl`, which counts from when it is due."""
    limits: dict[tuple[str, str], int] = {}
    for call in story.of("put"):
        if is_stored(call) and call.facts.get("ttl") and call.end is not None:
            span = (call.facts["delay"] or 0.0) + call.facts["ttl"]
            limits[call.facts["queue"], call.outcome] = call.end + int(span * NS)
    moved = {(call.facts["queue"], call.facts["id"]) for call in story.of("move")}
    for each in story.deliveries():
        limit = limits.get((each.queue, each.first))
        if limit is not None and (each.queue, each.first) not in moved:
            late = (each.begin - limit) / NS
            assert late <= SLACK_NS / NS, f"{each} came {late:.3f} s after its time to live"
    for name, dead in story.left.dead.items():
        for _, value, reason in dead:
            assert reason, f"{name}: {value} died without a reason"


def results_are_stored(story: Story) -> None:
    """Every acknowledged result is there at the end, and no caller was told another one."""
    told = {
        (call.facts["queue"], call.facts["id"]): call.outcome[1]
        for call in story.of("wait")
        if call.end is not None and call.outcome[0] == "result"
    }
    for each in story.deliveries():
        place, wanted = (each.queue, each.first), f"result of {each.value}"
        if each.closing is not None and each.closing.what == "result":
            if each.closing.outcome is True:
                assert story.left.results[place] == wanted, f"the result of {each} is another one"
        assert told.get(place, wanted) == wanted, f"a caller was told another result of {each}"


def effects_are_those_of_done_jobs(story: Story) -> None:
    """`done_and` put each job once, in the unit that ended its cause."""
    effects = Counter((queue, id) for queue, id in story.left.effects)
    assert all(number == 1 for number in effects.values()), f"twice: {effects.most_common(3)}"
    possible = set()
    for each in story.deliveries():
        closing = each.closing
        if closing is not None and closing.what == "and":
            if closing.outcome is True:
                assert each.job in effects, f"{each} is done, and its effect is not there"
            if closing.outcome is True or closing.is_doubtful:
                possible.add(each.job)
    assert effects.keys() <= possible, f"effects of jobs that are not done: {effects}"
    for name, taken in story.left.taken.items():
        for id, *_ in taken:
            assert (name, id) not in effects, f"{id} is there, and its effect as well"


# --- priorities and keys


def jobs_are_as_they_were_put(story: Story) -> None:
    """A job has the priority and the key of its put, and its ID lies in the lane of its priority."""
    given = {
        (call.facts["queue"], value): (call.facts.get("priority", 0), call.facts.get("key"))
        for call, value in story.puts()
    }
    for each in story.deliveries():
        place = each.priority, each.key
        assert lane_of(each.id) == each.priority, f"{each} lies in another lane"
        if "tick" not in each.headers:
            assert place == given[each.queue, each.value], f"{each} was put otherwise"


def lane_of(id: str) -> int:
    """The priority that the ID of a job tells."""
    _, _, seq = id.partition("-")
    return int(seq) >> 17


def order_of(id: str) -> tuple[int, int]:
    """Of IDs of one lane: jobs lie in this order."""
    ms, _, seq = id.partition("-")
    return int(ms), int(seq)


def jobs_of_a_key_are_in_order(story: Story) -> None:
    """Where a key has one place: once a job was delivered, none that lies before it is delivered, or is there."""
    keys = {value: call.facts.get("key") for call, value in story.puts()}
    seen = defaultdict[tuple[str, str, int], list[tuple[str, Span, Any]]](list)
    for each in story.deliveries():
        if each.key is not None and is_limited(each.queue):
            span = each.begin, each.end
            seen[each.queue, each.key, each.priority].append((each.id, span, each))
    for name, taken in story.left.taken.items():
        for id, _, value, _ in taken:
            if (key := keys.get(value)) is not None and is_limited(name):
                at_the_end = max(call.begin for call in story.calls) + NS
                seen[name, key, lane_of(id)].append((id, (at_the_end, at_the_end), "left over"))
    for place, found in seen.items():
        found.sort(key=lambda one: order_of(one[0]))
        # Since they are sorted by ID: the earliest time by which a job with a larger ID was surely delivered.
        bound: tuple[str, int, Any] | None = None
        for id, (begin, end), what in reversed(found):
            if bound is not None and bound[0] != id:
                assert begin <= bound[1], f"{place}: {id} ({what}) after {bound[0]} ({bound[2]})"
            if bound is None or end < bound[1]:
                bound = id, end, what


def is_limited(queue: str) -> bool:
    """Whether its keys have places."""
    return "concurrency_per_key" in BY_NAME[queue].options


def keys_are_limited(story: Story) -> None:
    """Of each key, workers hold no more jobs at once than it has places."""
    held = held_of_a_key(story)
    assert held <= PER_KEY, f"workers held {held} jobs of a key at once"


def held_of_a_key(story: Story) -> int:
    """How many jobs of one key the workers surely held at once, where keys have places."""
    spans = defaultdict[tuple[str, str], list[Span]](list)
    for each, span in holds(story):
        if each.key is not None and is_limited(each.queue):
            spans[each.queue, each.key].append(span)
    return max(map(most_at_once, spans.values()), default=0)


class Wait(NamedTuple):
    """A job that surely waited from the end of its put to the begin of the call that took it. `end`: of that call."""

    priority: int
    put: int
    taken: int
    end: int


def waits(story: Story) -> list[Wait]:
    """Waits of jobs of the queue that has more than its workers can do, but for jobs that were given back."""
    put = {
        call.outcome: call.end
        for call in story.of("put")
        if call.facts["queue"] == CROWDED and is_stored(call) and not call.facts.get("delay")
    }
    first: dict[str, Delivery] = {}
    returned = set()
    for each in sorted(story.deliveries(), key=lambda one: one.begin):
        if each.queue == CROWDED:
            first.setdefault(each.id, each)
            if each.closing is not None and each.closing.what == "release":
                returned.add(each.id)
    return [
        Wait(each.priority, put_at, each.begin, each.end)
        for id, each in first.items()
        if (put_at := put.get(id)) is not None and each.count == 1 and id not in returned
    ]


def the_highest_priority_goes_first(story: Story) -> None:
    """A job comes before one of a higher priority only when it is the turn of the one that was put first."""
    inverted, taken = turns_of_priorities(story)
    assert inverted <= taken / FAIR + SEEN_BY_NOBODY, (
        f"of {taken} jobs, {inverted} came before one of a higher priority"
    )


def turns_of_priorities(story: Story) -> tuple[int, int]:
    """How many jobs were delivered while one of a higher priority surely waited; and how many were delivered."""
    waiting = waits(story)
    taken = [each for each in story.deliveries() if each.queue == CROWDED]
    inverted = sum(
        any(
            one.put < each.begin and each.end < one.taken and each.priority < one.priority
            for one in waiting
        )
        for each in taken
    )
    return inverted, len(taken)


def overtakings(story: Story) -> int:
    """How many jobs were delivered while one of a lower priority, which was put before them, surely waited."""
    waiting = waits(story)
    return sum(
        any(
            one.put < each.put and each.end < one.taken and one.priority < each.priority
            for one in waiting
        )
        for each in waiting
    )


# --- limits


def held_at_once(story: Story) -> int:
    """How many jobs of the queue with `concurrency` the workers surely held at once."""
    return most_at_once([span for each, span in holds(story) if each.queue == "narrow"])


def delivered_in_a_second(story: Story) -> int:
    """How many jobs of the queue with `rate` the workers surely got within one second."""
    return most_in_a_second(
        [(each.begin, each.end) for each in story.deliveries() if each.queue == "rated"]
    )


def most_at_once(spans: Sequence[Span]) -> int:
    """How many of them overlap at most."""
    turns = sorted([(end, -1) for _, end in spans] + [(begin, 1) for begin, _ in spans])
    now = most = 0
    for _, step in turns:
        now += step
        most = max(most, now)
    return most


def most_in_a_second(spans: Sequence[Span], second: int = NS) -> int:
    """How many deliveries surely lie within one second. Each lies somewhere in its span."""
    most = 0
    for begin, _ in spans:
        inside = sum(begin <= a and b <= begin + second - SLACK_NS for a, b in spans)
        most = max(most, inside)
    return most
