"""Lives: what became of each job of runs that were killed, what its handlers say of it, and whether both agree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tests.client.kills.acts import (
    ERRORS,
    FINISH,
    GAVE_UP,
    HANG,
    MOST,
    OF_OWNER,
    OWN_LIMIT_S,
    OWN_MOST,
)
from tests.client.kills.dedup import is_stored
from tests.client.kills.evidence import NS, Call, Story
from tests.client.kills.queues import RETRY_AFTER_S

from tidelog.jobs.rows import EXPIRED
from tidelog.jobs.status import CANCELLED, DEAD, DONE, JobStatus
from tidelog.jobs.work.look import ABANDONED

Place = tuple[str, str]  # queue, ID that `put` returned
GIVEN_UP: Final = re.compile(r"given up after (\d+) deliver")
SETTLED: Final = ("ack", "and")


@dataclass
class Life:
    """One job. Its evidence is by time.

    put        the call that put it; None if nobody knows whether it did
    status     at the end; None if nothing of it is left
    handled    its handlers: a call without an end was killed
    settled    calls by which handlers ended it
    noted      what the hooks were told
    """

    queue: str
    id: str
    put: Call | None = None
    status: JobStatus | None = None
    handled: list[Call] = field(default_factory=list)
    settled: list[Call] = field(default_factory=list)
    cancels: list[Call] = field(default_factory=list)
    noted: list[Call] = field(default_factory=list)

    @property
    def name(self) -> str:
        """That of its value; "" if it is known by a cancel alone."""
        if self.put is not None:
            return str(self.put.facts["values"][0])
        return str(self.handled[0].facts["name"]) if self.handled else ""

    @property
    def end(self) -> str:
        """done, dead, cancelled, expired; or a state that is no end.

        Of a job that `done_and` ended nothing is left, and of cancels a thousand are kept.
        """
        if self.status is None:
            return CANCELLED if self.is_cancelled() else DONE
        return EXPIRED if self.status.reason == EXPIRED else self.status.state

    @property
    def begin(self) -> int | None:
        """The time at which it was put, ns, or was first seen."""
        return min((each.begin for each in [*self.handled, self.put] if each), default=None)

    def acknowledged(self) -> list[Call]:
        """The calls and notes by which an acknowledgement has landed."""
        notes = [each for each in self.noted if each.what == "acked"]
        return [*notes, *(each for each in self.settled if each.outcome is True)]

    def is_cancelled(self) -> bool:
        """Whether a caller was told so."""
        return any(each.outcome is True for each in self.cancels)


@dataclass
class Lives:
    """All jobs of a run, and what was done to processes meanwhile."""

    story: Story
    all: dict[Place, Life]

    def ends(self) -> Counter[str]:
        """The number of jobs that have ended in each way."""
        return Counter(life.end for life in self.all.values())

    @property
    def last(self) -> int:
        """The time at which the last process had ended, ns."""
        return max(self.story.killed.values(), default=0)

    def troubles(self, begin: int, end: int) -> int:
        """The number of times that a process was killed, stopped or asked to end in a span."""
        story = self.story
        times = [*story.owners_killed, *story.children_killed, *story.killed.values()]
        times += [at for span in story.owners_frozen for at in span]
        times += [at for _, *span in story.frozen for at in span]
        return sum(begin <= at <= end for at in times)


def lives_of(story: Story, ask: Callable[[str, str], JobStatus | None]) -> Lives:
    """The lives of a story. `ask`: the status of a job of a queue."""
    found: dict[Place, Life] = {}

    def life(queue: str, id: str) -> Life:
        if (queue, id) not in found:
            found[queue, id] = Life(queue, id)
        return found[queue, id]

    for call in sorted(story.calls, key=lambda call: call.begin):
        facts = call.facts
        if call.what == "put" and is_stored(call):
            life(facts["queue"], call.outcome).put = call
        elif call.what == "cancel":
            life(facts["queue"], facts["id"]).cancels.append(call)
        elif call.what == "handle":
            life(facts["queue"], facts["id"]).handled.append(call)
        elif call.what in SETTLED:
            life(facts["queue"], facts["id"]).settled.append(call)
        elif call.what in ("acked", "retried"):
            life(facts["queue"], facts["id"]).noted.append(call)
    names = {(each.queue, each.name): each for each in found.values()}
    for call in story.of("died"):  # it has another ID, if it was delayed
        names[call.facts["queue"], call.facts["name"]].noted.append(call)
    for (queue, id), each in found.items():
        each.status = ask(queue, id)
    return Lives(story, found)


def check_lives(lives: Lives) -> None:
    """Every check. An AssertionError names the job, and a note tells all that is known of it."""
    for life in lives.all.values():
        try:
            for check in CHECKS:
                check(life, lives)
        except AssertionError as wrong:
            wrong.add_note("\n".join(map(str, told(life, lives))))
            raise
    effects_are_those_of_done_jobs(lives)


def told(life: Life, lives: Lives) -> Iterator[Any]:
    """All that is known of a job, by time."""
    yield life.status
    calls = [*life.handled, *life.settled, *life.cancels, *life.noted]
    calls += [] if life.put is None else [life.put]
    story = lives.story
    lines: list[tuple[int, object]] = [(call.begin, call) for call in calls]
    begin = min((at for at, _ in lines), default=0)
    end = max((call.end or call.begin for call in calls), default=0) + 5 * NS
    lines += [(at, "an owner was killed, or asked to end") for at in story.owners_killed]
    lines += [(at, "a process of a run was killed") for at in story.children_killed]
    lines += [(a, f"an owner was stopped until {b}") for a, b in story.owners_frozen]
    lines += [(a, f"{who} was stopped until {b}") for who, a, b in story.frozen]
    for process, at in story.killed.items():
        lines.append((at, f"{process} had {'ended' if process in story.ended else 'been killed'}"))
    for at, line in sorted(lines, key=lambda one: one[0]):
        if begin <= at <= end:
            yield f"{at} {line}"


def much_has_happened(lives: Lives) -> None:
    """Otherwise the kills had little to strike."""
    ends, what = lives.ends(), Counter(call.what for call in lives.story.calls)
    few = {each: ends[each] for each in (DONE, DEAD, CANCELLED, EXPIRED) if ends[each] < 10}
    few |= {each: what[each] for each in ("recycled", "pause", "and", "ack") if what[each] < 3}
    hung = sum(each.facts["act"] in HANG for life in lives.all.values() for each in life.handled)
    running = sum(map(cancelled_while_it_ran, lives.all.values()))
    assert not few and hung > 10 and running > 3, (
        f"{few}; {hung} hung, {running} ran when cancelled"
    )


def cancelled_while_it_ran(life: Life) -> bool:
    """Whether a handler surely worked on the job when it was cancelled."""
    return any(
        cancel.outcome is True and last.begin < cancel.begin <= (last.end or cancel.begin)
        for cancel in life.cancels
        for last in life.handled[-1:]
    )


# --- one job each


def it_ends_once(life: Life, lives: Lives) -> None:
    """As done, dead, cancelled or expired; and nobody was told another end."""
    ends = (DONE, DEAD, CANCELLED, EXPIRED)
    assert life.end in ends, f"{life.queue} {life.id} is {life.end}"
    deliveries = {(each.facts["count"], each.facts["worker"]) for each in life.acknowledged()}
    assert len(deliveries) <= 1, f"{life.queue} {life.id} was acknowledged twice: {deliveries}"
    if deliveries:
        assert life.end == DONE, f"{life.queue} {life.id} was acknowledged, and is {life.end}"
    if life.is_cancelled():
        assert life.end == CANCELLED, f"{life.queue} {life.id} was cancelled, and is {life.end}"


def its_end_is_explained(life: Life, lives: Lives) -> None:
    """Somebody did what the end says."""
    name, status = f"{life.queue} {life.id}", life.status
    if life.end == DONE:
        did = [each for each in life.handled if each.outcome == ["done"]]
        did += [each for each in life.settled if each.outcome is True or each.end is None]
        did = [each for each in did if each.facts["act"] in FINISH]
        assert did, f"{name} is done, and no handler has done it"
        if status is None or status.result is None:
            assert any(each.what == "and" for each in did), f"{name} has no result: {status}"
        elif life.put is not None:
            wanted = f"result of {life.put.facts['values'][0]}"
            assert status.result == wanted, f"{name} has another result: {status.result}"
    elif life.end == CANCELLED:
        asked = any(each.outcome is True or each.is_doubtful for each in life.cancels)
        assert asked, f"{name} was cancelled by nobody"
    elif life.end == EXPIRED:
        assert life.put is None or life.put.facts["ttl"], f"{name} has no time to live"
    elif status is not None:
        it_died_of_its_deliveries(life, lives, status)


def it_died_of_its_deliveries(life: Life, lives: Lives, status: JobStatus) -> None:
    name, reason = f"{life.queue} {life.id}", status.reason or ""
    raised = {each.outcome[1] for each in life.handled if each.outcome and len(each.outcome) > 1}
    own = status.retry is not None
    if reason == GAVE_UP:
        assert "GiveUp" in raised, f"{name}: no handler gave it up"
    elif (given_up := GIVEN_UP.match(reason)) is not None:
        most = OWN_MOST if own else MOST
        number = int(given_up[1])
        # One that was lost with its worker may be followed by one more.
        struck = bool(life.begin is not None and lives.troubles(life.begin, lives.last))
        assert number == status.deliveries, f"{name}: {reason}, and {status.deliveries} counted"
        assert most <= number <= most + struck, f"{name}: {reason}, of {most}"
    else:
        assert own and "KeyError" in reason and "KeyError" in raised, f"{name}: {reason}"


def its_deliveries_are_explained(life: Life, lives: Lives) -> None:
    """Handlers have begun those that count, but for some that were on the way when a process was killed."""
    counts = {each.facts["count"] for each in life.handled}
    most = max([0, *counts])
    if life.status is not None and life.status.deliveries is not None:
        # A handler begins without waiting for the server to hear of it, and one that was killed has not heard: then
        # this is no delivery, and the next one has its number.
        unheard = any(life.begin and life.begin < at for at in lives.story.owners_killed)
        most_told = life.status.deliveries + unheard
        assert most <= most_told, f"{life.status} was delivered more often: {counts}"
        most = life.status.deliveries
    missing = most - len(counts)
    if missing and life.begin is not None:
        struck = lives.troubles(life.begin, lives.last)
        assert missing <= struck, f"{life.queue} {life.id}: {missing} deliveries reached nobody"


def its_failures_are_explained(life: Life, lives: Lives) -> None:
    """Each failure that is recorded is that of a handler of the worker."""
    for each in () if life.status is None else life.status.failures:
        why_it_failed(life, lives, each.worker, each.error, each.deliveries)


def why_it_failed(life: Life, lives: Lives, worker: str, error: str, count: int) -> None:
    """A handler at the worker failed by this at this delivery, or its process died, or its server did."""
    if error == ABANDONED:
        assert lives.troubles(life.begin or 0, lives.last), "nobody was struck"
        return
    kind = error.partition(":")[0]
    for each in life.handled:
        if (each.facts["worker"], each.facts["count"]) != (worker, count):
            continue
        cut = each.end is None or each.outcome != ["done"]
        long = each.end is not None and each.end - each.begin >= OWN_LIMIT_S * NS / 2
        if kind == ERRORS.get(each.facts["act"]) and cut:
            return
        if kind == "ProcessDied" and each.end is None:
            return
        stopped = each.end is None or each.outcome == ["raised", "CancelledError"]
        if kind == "TimeLimitExceeded" and (stopped or long):  # it may be slow on a busy machine
            return
        if kind in OF_OWNER and lives.troubles(each.begin, (each.end or each.begin) + 60 * NS):
            return
    raise AssertionError(f"{life.queue} {life.id}: no handler failed by {error}, delivery {count}")


def nothing_begins_after_its_end(life: Life, lives: Lives) -> None:
    """Not after its acknowledgement has landed, nor its cancel.

    But a worker that was stopped for a while may begin an earlier delivery, which it had before; and one that got the
    job just before its cancel learns of that when it renews its leases.
    """
    beat = int(RETRY_AFTER_S * NS * lives.story.slowness)
    ends = [(each, 0) for each in life.acknowledged()]
    ends += [(each, beat) for each in life.cancels if each.outcome is True]
    for each, grace in ends:
        assert each.end is not None
        for handler in life.handled:
            if handler.begin > each.end + grace and not is_late(life, lives, handler):
                raise AssertionError(f"{handler} began after {each}")


def is_late(life: Life, lives: Lives, handler: Call) -> bool:
    """Whether the worker may have begun with the job long after it got it."""
    story, begin = lives.story, handler.begin
    spans = [*story.owners_frozen, *((a, b) for _, a, b in story.frozen)]
    return any(a < begin and begin - b < NS for a, b in spans)


def its_death_was_told(life: Life, lives: Lives) -> None:
    """`on_dead` was called for a dead job."""
    if life.end in (DEAD, EXPIRED):
        assert any(each.what == "died" for each in life.noted), f"nobody was told of {life.status}"


CHECKS: Final = (
    it_ends_once,
    its_end_is_explained,
    its_deliveries_are_explained,
    its_failures_are_explained,
    nothing_begins_after_its_end,
    its_death_was_told,
)


# --- all jobs


def effects_are_those_of_done_jobs(lives: Lives) -> None:
    """`done_and` put each job once, in the unit that ended its cause."""
    effects = Counter((queue, id) for queue, id in lives.story.left.effects)
    assert all(number == 1 for number in effects.values()), f"twice: {effects.most_common(3)}"
    possible = set[Place]()
    for place, life in lives.all.items():
        for each in life.settled:
            if each.what == "and" and (each.outcome is True or each.end is None):
                possible.add(place)
                if each.outcome is True:
                    assert place in effects, f"{place} is done, and its effect is not there"
    assert effects.keys() <= possible, f"effects of nobody: {effects.keys() - possible}"
