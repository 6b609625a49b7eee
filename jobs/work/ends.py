"""Ends: jobs that end, or go back to the queue, in the unit of a fetch, a beat or a closed consumer."""

from __future__ import annotations

from tidelog.engine.api import XNACK, Context, Group, Stream
from tidelog.engine.idlist import pack
from tidelog.jobs.options import Options
from tidelog.jobs.streams import among_held, stream_at
from tidelog.jobs.work.settle import log_done
from tidelog.jobs.work.shared import Job, Leftover, Shared


def log_finished(
    shared: Shared, options: Options, ctx: Context, stream: Stream, jobs: list[int]
) -> None:
    """[lock] Log that these jobs are done."""
    if shared.extended or shared.failed:
        shared.drop_notes(ctx, options, jobs)
        for job in jobs:
            shared.failed.pop(job, None)
    log_done(ctx, options, stream, jobs)
    shared.unswept += len(jobs)
    if shared.limited:
        shared.freed(jobs)
    shared.let_others_in()
    shared.ended(shared.results.firsts(stream, jobs))


def log_leftovers(
    shared: Shared, ctx: Context, stream: Stream, group: Group, mono: float
) -> list[Leftover]:
    """[lock] Write what ended deliveries left behind: finished jobs are done, unseen ones go back.

    The leftovers stay listed until the unit is in the log (`Shared.dealt_with`). Writing one twice does nothing.
    """
    left = list(shared.leftovers)
    for leftover in left:
        counts, worker = leftover.open, leftover.worker
        wanted = [(job, counts.get(job, 0)) for job in leftover.finished]
        done = among_held(group, worker, wanted)
        if done:
            log_finished(shared, leftover.options, ctx, stream, done)
        give_back(shared, leftover.options, ctx, group, worker, leftover.unseen, mono)
        shared.dropped.update(leftover.let_go())
    return left


def give_back(
    shared: Shared,
    options: Options,
    ctx: Context,
    group: Group,
    worker: bytes,
    unseen: list[Job],
    mono: float,
) -> None:
    """[lock] Undo the delivery of jobs that were fetched but never handed to the worker."""
    counts = {job: count for job, _, count in unseen}
    back = among_held(group, worker, counts.items())
    if back:
        shared.drop_notes(ctx, options, back)
        less = tuple(max(counts[job] - 1, 0) for job in back)
        key, name = options.key, options.group_key
        ctx.effects.append((XNACK, ctx.db, key, name, pack(back), less))
        for job, count in zip(back, less, strict=True):
            shared.give_back(job, count)


def log_all_leftovers(
    ctx: Context, lane_0: Shared, options: Options, mono: float
) -> list[Leftover]:
    """[lock] `log_leftovers` of all lanes of a queue. If a lane or its group is gone, there is nothing to write."""
    left: list[Leftover] = []
    for shared in lane_0.all_lanes():
        if not shared.leftovers:
            continue
        lane = options.lane(shared.priority)
        stream = stream_at(ctx, lane.key)
        group = None if stream is None else stream.groups.get(lane.group_key)
        if stream is None or group is None:
            left += shared.leftovers
        else:
            shared.fresh(ctx, lane, stream, group)
            left += log_leftovers(shared, ctx, stream, group, mono)
    return left
