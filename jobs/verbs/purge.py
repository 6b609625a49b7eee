"""QUEUE PURGE: delete the jobs of a queue that no worker holds, unit by unit."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final

from tidelog.engine import ids
from tidelog.engine.api import Context, Effect, Entries, EntryRow, Group, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Reply
from tidelog.jobs.dedup import PRODUCER, TAKER, let_go, needed_elsewhere, table_at
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import create_group, lanes_in
from tidelog.jobs.options import Options
from tidelog.jobs.streams import lost_of, waiting
from tidelog.jobs.verbs.verb import WORKS, Facts, Verb
from tidelog.jobs.work.freeing import free_window
from tidelog.jobs.work.later import GROUP, find_later
from tidelog.jobs.work.progressing import ended
from tidelog.jobs.work.results import first_id
from tidelog.store.commit.batch import Decided, run_unit
from tidelog.store.commit.core import Answer

PURGE_JOBS: Final = 1_000  # jobs that one unit deletes


class Purge(Verb):
    """One unit of a purge: (jobs deleted, whether more are left). A client may repeat it."""

    __slots__ = ()

    name = b"PURGE"
    facts = Facts(
        *(-3, WORKS, "RW delete", "0.1.0", "Delete jobs that are not in flight"),
        (
            "PURGE <name>",
            "Delete jobs that are not in flight; the reply tells whether there are more.",
        ),
    )

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
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
                words, dropped = _purge_later(ctx, options, *later)
                more = True
                engine.known.results.all_ended(engine.core)
                return words
            lanes = lanes_in(ctx.state, engine.db, options)
            for lane in lanes:
                if lane.group is None:
                    return [create_group(lane.options.key, lane.options.group_key)]
                words, dropped = _purge_lane(engine, ctx, lane.options, lane.stream, lane.group)
                if dropped:
                    more = dropped == PURGE_JOBS or lane is not lanes[-1]
                    return words
            return None

        reply, promise = engine.ask(
            engine.known.unit, partial(run_unit, engine.core, engine.db, plan)
        )
        if reply is not None and not dropped:
            # the unit only created the group or deleted unreadable streams; jobs may remain
            more = True
        if dropped:
            engine.known.made_room()
        return (dropped, more), promise

    def reply(self, result: tuple[int, bool]) -> Reply:
        """See `Verb`."""
        dropped, more = result
        return [dropped, int(more)]


def _purge_later(
    ctx: Context, options: Options, stream: Stream, group: Group
) -> tuple[list[list[bytes]], int]:
    """[lock] The commands of one unit that purges delayed jobs, and how many they delete."""
    pending = group.pending
    table = table_at(ctx, options.later_key, PRODUCER)
    outlives = table is not None and any(
        pid == PRODUCER and not pending.contains(job) for pid, _, job, _ in table.records()
    )
    if not outlives:
        taken = table_at(ctx, options.root, TAKER)
        jobs = [] if taken is None else [job for pid, _, job, _ in taken.records() if pid == TAKER]
        free = let_go(ctx, options, stream, filter(pending.contains, jobs))
        return [*map(Decided, free), [b"DEL", options.later_key]], len(pending)
    # The stream remembers the dedup IDs of jobs that have left it, so it stays.
    some = [job for job, *_ in pending.page(0, MAX, PURGE_JOBS)]
    free = let_go(ctx, options, stream, some) + free_window(ctx, options, some)
    texts = list(map(ids.text, some))
    gone = [b"XACKDEL", options.later_key, GROUP, b"ACKED", b"IDS", b"%d" % len(texts), *texts]
    return [*map(Decided, free), gone], len(some)


def _purge_lane(
    engine: QueueEngine, ctx: Context, options: Options, stream: Stream, group: Group
) -> tuple[list[list[bytes]], int]:
    """[lock] The commands of one unit that purges a lane, and how many jobs they delete."""
    lane_0 = engine.known
    known = lane_0.lane(options.priority)
    known.fresh(ctx, options, stream, group)
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
    known.ended(known.results.firsts(stream, jobs))
    if known.limited:
        known.freed(paused)
    if paused:
        words.append([b"XACK", options.key, options.group_key, *texts[: len(paused)]])
        entries = [
            ids.text(deferral.entry)
            for job in paused
            if (deferral := known.paused.pop(job, None)) is not None and deferral.entry
        ]
        if entries:
            words.append([b"XDEL", options.holds_key, *entries])
    words += map(Decided, _freed(ctx, options, stream, paused, unread))
    words += map(Decided, ended(ctx, known.progress, paused))
    words.append([b"XDELEX", options.key, b"ACKED", b"IDS", b"%d" % len(texts), *texts])
    return words, len(jobs)


def _freed(
    ctx: Context, options: Options, stream: Stream, paused: list[int], unread: Entries
) -> list[Effect]:
    """[lock] The effects that free the dedup IDs of jobs that a purge deletes."""
    free = let_go(ctx, options, stream, [*paused, *unread.ids()])
    keys = {options.key, options.later_key}
    if not any(table_at(ctx, key, PRODUCER) for key in keys):
        return free
    rows: list[tuple[int, EntryRow | None]] = [(job, stream.get(job)) for job in paused]
    rows += unread
    firsts = [
        ids.parse(first_id(job, row))
        for job, row in rows
        if row is not None and not needed_elsewhere(stream, options.group_key, job)
    ]
    return free + free_window(ctx, options, firsts)
