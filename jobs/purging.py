"""Delete the jobs of a queue that no worker holds, unit by unit."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Any, Final

from tidelog.engine import ids
from tidelog.engine.api import Context, Group, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import create_group, lanes_in
from tidelog.jobs.options import Options
from tidelog.jobs.streams import lost_of, waiting
from tidelog.jobs.work.later import find_later
from tidelog.store.commit.batch import run_unit

PURGE_JOBS: Final = 1_000  # jobs that one unit deletes


def purge_some(engine: QueueEngine) -> tuple[int, Any, bool]:
    """One unit of a purge: (jobs deleted, promise, whether more are left)."""
    options = engine.options
    dropped, more = 0, False

    def plan(ctx: Context) -> list[list[bytes]] | None:
        nonlocal dropped, more
        lost = lost_of(ctx, options)
        if lost:  # their jobs cannot be counted
            more = True
            return [[b"DEL", *lost]]
        ctx.stream(options.key)
        later = find_later(ctx, options)
        if later is not None and len(later[1].pending):
            dropped, more = len(later[1].pending), True
            engine.shared.results.all_ended(engine.core)
            return [[b"DEL", options.later_key]]
        lanes = lanes_in(ctx.state, engine.db, options)
        for lane in lanes:
            if lane.group is None:
                return [create_group(lane.options.key, lane.options.group_key)]
            words, dropped = _purge_lane(engine, ctx, lane.options, lane.stream, lane.group)
            if dropped:
                more = dropped == PURGE_JOBS or lane is not lanes[-1]
                return words
        return None

    reply, promise = engine.ask(engine.shared.unit, partial(run_unit, engine.core, engine.db, plan))
    if reply is not None and not dropped:
        # the unit only created the group or deleted unreadable streams; jobs may remain
        more = True
    if dropped:
        engine.shared.made_room()
    return dropped, promise, more


def _purge_lane(
    engine: QueueEngine, ctx: Context, options: Options, stream: Stream, group: Group
) -> tuple[list[list[bytes]], int]:
    """[lock] The commands of one unit that purges a lane, and how many jobs they delete."""
    lane_0 = engine.shared
    shared = lane_0.lane(options.priority)
    shared.fresh(ctx, options, stream, group)
    paused = list(islice((job for t, job in group.pending.by_age() if t < 0), PURGE_JOBS))
    unread = reading.between(stream, group.last_id + 1, MAX, PURGE_JOBS - len(paused))
    jobs = [*paused, *unread.ids()]
    words: list[list[bytes]] = []
    if not jobs:
        return words, 0
    if unread:
        last = unread.ids()[-1]
        read = b"%d" % (stream.entries_added - waiting(stream, group) + len(unread))
        words.append(
            [b"XGROUP", b"SETID", options.key, options.group_key, ids.text(last)]
            + [b"ENTRIESREAD", read]
        )
    texts = list(map(ids.text, jobs))
    shared.ended(shared.results.firsts(stream, jobs))
    if shared.limited:
        shared.freed(paused)
    if paused:
        words.append([b"XACK", options.key, options.group_key, *texts[: len(paused)]])
        entries = [
            ids.text(hold.entry)
            for job in paused
            if (hold := shared.paused.pop(job, None)) is not None and hold.entry
        ]
        if entries:
            words.append([b"XDEL", options.holds_key, *entries])
    words.append([b"XDELEX", options.key, b"ACKED", b"IDS", b"%d" % len(texts), *texts])
    return words, len(jobs)
