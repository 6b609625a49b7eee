"""Puts with dedup IDs, and which job they mean."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from tests.client.kills.evidence import FULL, UNKNOWN, Call, Story

from tidelog.jobs.dedup import REPLACE


def is_stored(call: Call) -> bool:
    """Whether a put was acknowledged."""
    return call.end is not None and call.outcome not in (UNKNOWN, FULL)


def values_of(story: Story) -> dict[tuple[str, str], set[Any]]:
    """(queue, ID that a put returned) -> the values that may be those of the job."""
    found = defaultdict[tuple[str, str], set[Any]](set)
    for call in story.of("put"):
        if is_stored(call):
            found[call.facts["queue"], call.outcome].add(call.facts["values"][0])
    for each in story.deliveries():
        found[each.queue, each.first].add(each.value)
    for name, taken in story.left.taken.items():
        for _, first, value, _ in taken:
            found[name, first].add(value)
    return found


def is_replaced(story: Story, queue: str, value: Any) -> bool:
    """Whether a put with the dedup ID of this value's put may have replaced its job before a worker had it."""
    for call in story.of("put"):
        if call.facts.get("dedup") and call.facts["queue"] == queue:
            if value in call.facts["values"]:
                return any(
                    other.facts.get("dedup") == REPLACE
                    and other.facts["dedup_id"] == call.facts["dedup_id"]
                    and other is not call
                    and (other.end is None or other.end > call.begin)
                    for other in story.of("put")
                )
    return False
