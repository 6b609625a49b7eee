"""Whys: what `tidelog why` tells of a job agrees with what became of it, and with what its handlers say."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.client.kills.lives import Life, Lives, told, why_it_failed

from tidelog.engine.ids import parse
from tidelog.jobs.rows import EXPIRED
from tidelog.jobs.status import CANCELLED, DEAD, DONE
from tidelog.jobs.work.look import ABANDONED
from tidelog.tools.life import Event
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.why import in_order, story

TO: Final = re.compile(r"to (\S+) of group workers, delivery (\d+)$")
FAILED: Final = re.compile(r'failed in group workers at worker (\S+): "?(.*?)"?$')
OF_EACH: Final = 15  # jobs of each end that are looked at


def whys_agree(root: Path, lives: Lives, pick: random.Random) -> int:
    """Compare the lives of some jobs of each end. Returns how many. The store is not open."""
    by_end = defaultdict[str, list[Life]](list)
    for life in lives.all.values():
        by_end[life.end].append(life)
    some = [
        one for found in by_end.values() for one in pick.sample(found, min(len(found), OF_EACH))
    ]
    for life in some:
        files = LogFiles(root, snapshots=True)
        found = story(files, life.queue.encode(), parse(life.id.encode()), quiet=True)
        events = [event for _, events in in_order(found) for event in events]
        try:
            why_agrees(events, life, lives)
        except AssertionError as wrong:
            wrong.add_note("\n".join([*(f"{each.kind}: {each.text}" for each in events)]))
            wrong.add_note("\n".join(map(str, told(life, lives))))
            raise
    return len(some)


def why_agrees(events: list[Event], life: Life, lives: Lives) -> None:
    """See `whys_agree`. It tells one end, every delivery that reached a handler, and each failure."""
    name, kinds = f"{life.queue} {life.id}", [event.kind for event in events]
    ends = [event for event in events if event.kind in (CANCELLED, DEAD)]
    assert len(ends) <= 1 and kinds.count("acked") <= 1, f"{name} has several ends"
    end = ends[0].kind if ends else DONE if "acked" in kinds else "open"
    if end == DEAD and ends[0].text.endswith(f": {EXPIRED}"):
        end = EXPIRED
    assert end == life.end, f"{name} is {life.end}, and why says {end}"
    has_result = life.status is not None and life.status.result is not None
    assert ("result" in kinds) == has_result, f"{name} has a result: {has_result}"
    reached: list[tuple[str, int]] = []
    failures = 0
    for event in events:
        if (to := TO.search(event.text)) is not None:
            reached.append((to[1], int(to[2])))
        elif event.kind == "failed":
            failed = FAILED.match(event.text)
            assert failed is not None, event.text
            failures += 1
            count = 0 if failed[2] == ABANDONED else reached[-1][1]
            why_it_failed(life, lives, failed[1], failed[2], count)
    began = {(each.facts["worker"], each.facts["count"]) for each in life.handled}
    assert began <= set(reached), f"{name}: handlers began {began}, and why tells {reached}"
    most = max((count for _, count in reached), default=0)
    if life.status is not None and end in (CANCELLED, DEAD, EXPIRED):
        # A delivery that nobody saw is none. An abandoned one is recorded as its job dies.
        assert 0 <= most - (life.status.deliveries or 0) <= 1, (
            f"{life.status}, delivered {most} times"
        )
        assert failures == len(life.status.failures), f"{life.status}, and {failures} failures"
