"""Check of the schedules of a story: which ticks had to be made."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from tests.client.kills.account import between
from tests.client.kills.evidence import CUT, SLACK_NS, UNKNOWN, Call, Story
from tests.client.kills.queues import BY_NAME, Plan


def ticks_are_made_once(story: Story, plan: Plan) -> None:
    """Each tick of a schedule is one job, and none is missing that had to be made."""
    found = [(each.headers, each.id) for each in story.deliveries() if each.queue == "ticks"]
    found += [(headers, id) for id, _, _, headers in story.left.taken.get("ticks", [])]
    jobs = defaultdict[int, set[str]](set)
    for headers, id in found:
        if headers["schedule"] == plan.name:
            jobs[round(datetime.fromisoformat(headers["tick"]).timestamp() * 1000)].add(id)
    twice = {tick: ids for tick, ids in jobs.items() if len(ids) > 1}
    assert not twice, f"these ticks of {plan.name} were made twice: {twice}"
    ticks = sorted(jobs)
    assert len(ticks) == story.left.ticks[plan.name], (
        f"{plan.name}: {len(ticks)} ticks were seen, {story.left.ticks[plan.name]} were made"
    )
    if not ticks:
        return  # the run was too short
    firsts = [
        call.outcome[1]
        for call in story.of("schedule")
        if call.outcome is not None and call.outcome[0] == plan.name
    ]
    first, last = round(min(firsts) * 1000), ticks[-1]
    wall_ns = story.wall_ns
    assert wall_ns is not None, "nobody looked at the clocks"
    looks = [call for call in story.of("take") if has_looked(call)]
    for tick in range(first, last, plan.every_ms):
        if tick in jobs:
            continue
        # Of several that are due, `one` and `none` make the latest only.
        assert plan.given["catch_up"] != "all", f"tick {tick} of {plan.name} is missing"
        # In this span of the monotonic clock it was surely the latest.
        begin = tick * 1_000_000 + SLACK_NS - min(wall_ns)
        end = (tick + plan.every_ms) * 1_000_000 - SLACK_NS - max(wall_ns)
        inside = [call for call in looks if begin < call.begin and _end_of(call) < end]
        assert not inside, (
            f"no worker made tick {tick} of {plan.name}, and {len(inside)} looked for jobs when it was due, from "
            f"{begin} to {end}; the wall clock was ahead by {wall_ns}: {inside}\n"
            + between(story, begin, end)
        )


def has_looked(call: Call) -> bool:
    """Whether the owner has surely looked for jobs between the begin and the end of this wait.

    A wait that was cut asked nobody, perhaps. Of a batch, only the first job needs a look.
    """
    answered = call.end is not None and call.outcome not in (UNKNOWN, CUT)
    return answered and BY_NAME[call.facts["queue"]].batch == 1


def _end_of(call: Call) -> int:
    assert call.end is not None
    return call.end
