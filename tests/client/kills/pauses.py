"""Check of pauses: a queue that is surely paused delivers nothing."""

from __future__ import annotations

from tests.client.kills.evidence import Story


def nothing_comes_from_a_paused_queue(story: Story) -> None:
    """No call takes a job that began after `pause` had returned, and ended before anybody called `resume`."""
    resumes = list(story.of("resume"))
    for pause in story.of("pause"):
        if pause.end is None or pause.is_doubtful:
            continue
        # One that was under way at the same time may have come after it.
        later = [
            each.begin
            for each in resumes
            if each.facts["queue"] == pause.facts["queue"]
            and (each.end is None or each.is_doubtful or each.end > pause.begin)
        ]
        until = min(later, default=None)
        for each in story.deliveries():
            if each.queue == pause.facts["queue"] and pause.end < each.begin:
                assert until is not None and until < each.end, f"{each} came in the pause {pause}"


def pauses(story: Story) -> int:
    """The number of those that are known to have begun."""
    return sum(call.outcome is True for call in story.of("pause"))
