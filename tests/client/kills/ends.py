"""Checks of how jobs and processes end: each delivery that counts, and each death, is one that a worker knows of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

from tests.client.kills.evidence import Delivery, Story
from tests.client.kills.queues import BY_NAME

from tidelog.jobs.rows import EXPIRED

GIVEN_UP: Final = "given up after "


def deaths_are_explained(story: Story) -> None:
    """A dead job was given up by a worker, expired, or was delivered as often as it may be, and a handler began it."""
    seen = defaultdict[tuple[str, Any], list[Delivery]](list)
    for each in story.deliveries():
        seen[each.queue, each.value].append(each)
    may_expire = {
        (call.facts["queue"], value) for call, value in story.puts() if call.facts.get("ttl")
    }
    for name, dead in story.left.dead.items():
        most = BY_NAME[name].options_of()["max_deliveries"]
        for id, value, reason in dead:
            found = seen[name, value]
            if reason == EXPIRED:
                assert (name, value) in may_expire, f"{name}: {value} has no time to live"
                continue
            assert found, f"{name}: no handler began {value} ({id}), and it is dead: {reason}"
            if reason == "no":
                ends = [each.closing.what for each in found if each.closing is not None]
                assert "fail" in ends, f"{name}: nobody gave {value} up: {found}"
            else:
                given_up, number = reason.startswith(GIVEN_UP), reason.split()[3]
                assert given_up and int(number) >= most, f"{name}: {value}: {reason}"
                unknown = int(number) - max(each.count for each in found)
                assert unknown <= doubts(story, found), f"{name}: {value}: {reason}; {found}"


def doubts(story: Story, found: Sequence[Delivery]) -> int:
    """How many deliveries of a job may have been counted which its handlers do not know of.

    They were on the way to a worker that was killed, or stopped for longer than its lease, or came from such an owner.
    Of a batch, the jobs that were not begun may be lost as well.
    """
    queue, value = found[0].queue, found[0].value
    puts = [call.begin for call, put in story.puts() if put == value]
    begin = min([found[0].begin, *puts])
    trouble = [*story.owners_killed, *(at for span in story.owners_frozen for at in span)]
    if BY_NAME[queue].batch > 1:
        stopped = [at for _, *span in story.frozen for at in span]
        return sum(at > begin for at in (*trouble, *story.killed.values(), *stopped))
    count = 0
    for call in story.of("take"):
        end = story.killed[call.process] if call.end is None else call.end
        if call.facts["queue"] == queue and end > begin:
            stopped = [at for who, *span in story.frozen for at in span if who == call.process]
            struck = any(call.begin < at < end for at in (*trouble, *stopped))
            count += struck or call.is_doubtful
    return count


def deliveries_are_explained(story: Story) -> None:
    """A delivery counts only if a handler began it.

    Those of waits that were cancelled, and of processes that ended in order, do not.
    """
    before = defaultdict[tuple[str, str], list[Delivery]](list)
    for each in sorted(story.deliveries(), key=lambda one: one.begin):
        earlier = before[each.job]
        missing = each.count - 1 - sum(map(counts, earlier))
        if missing > 0:
            allowed = doubts(story, [each, *earlier])
            assert missing <= allowed, f"{missing} deliveries of {each} reached nobody: {earlier}"
        earlier.append(each)


def counts(each: Delivery) -> bool:
    """Whether the delivery may count. One that was given back does not."""
    closing = each.closing
    return closing is None or closing.what != "release" or closing.outcome is not True


def nothing_is_left_of_those_who_ended(story: Story) -> None:
    """A process that was asked to end has closed its store, with each thread and connection."""
    ended = {call.process: call.outcome for call in story.of("ended")}
    for process in story.ended:
        assert ended.get(process) == [], f"{process} left {ended.get(process)}"
