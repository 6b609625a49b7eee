"""Checks of cancels: a job that was cancelled is done with, and has no other outcome."""

from __future__ import annotations

from tests.client.kills.evidence import DONE, Call, Story


def cancelled_jobs_are_gone(story: Story) -> None:
    """A cancelled job was not acknowledged, is not delivered afterwards, not dead, and not there."""
    cancelled = cancels(story)
    for each in story.deliveries():
        call = cancelled.get((each.queue, each.first))
        if call is None or call.end is None:
            continue
        assert each.begin <= call.end, f"{each} was cancelled before: {call}"
        closing = each.closing
        if closing is not None and closing.what in DONE:
            assert closing.outcome is not True, f"{each} was done and cancelled: {closing}, {call}"
    there = [(name, first) for name, taken in story.left.taken.items() for _, first, _, _ in taken]
    there += [(name, id) for name, dead in story.left.dead.items() for id, _, _ in dead]
    there += [(name, id) for name, later in story.left.later.items() for id, _ in later]
    for place in there:
        assert place not in cancelled, f"{place} is there, and was cancelled"


def cancels(story: Story) -> dict[tuple[str, str], Call]:
    """The cancels that took effect, by queue and the ID that `put` returned."""
    return {
        (call.facts["queue"], call.facts["id"]): call
        for call in story.of("cancel")
        if call.outcome is True
    }


def cancels_of_running_jobs(story: Story) -> int:
    """The number of jobs that surely were in a worker's hands when they were cancelled."""
    cancelled, count = cancels(story), 0
    for each in story.deliveries():
        call, closing = cancelled.get((each.queue, each.first)), each.closing
        if call is not None and call.end is not None and closing is not None:
            count += each.end < call.begin and call.end < closing.begin and closing.outcome is False
    return count
