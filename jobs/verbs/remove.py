"""QUEUE REMOVE: remove a queue that holds no jobs, with all that it keeps beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tidelog.engine.api import DEL, Context
from tidelog.engine.errors import CommandError
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import lanes_in
from tidelog.jobs.names import has_jobs
from tidelog.jobs.options import PRIORITY_MAX, Options
from tidelog.jobs.rows import shown
from tidelog.jobs.rules import SCHEDULES
from tidelog.jobs.scheduling import stored
from tidelog.jobs.streams import depth, stream_at
from tidelog.jobs.verbs.verb import REMOVE, WORKS, Change, Facts
from tidelog.jobs.work.fetch import Fetch
from tidelog.jobs.work.later import find_later
from tidelog.jobs.work.pausing import paused_key

_CODE: Final = b"QUEUENOTEMPTY "


class Remove(Change):
    """Remove the queue: 1; 0 if it is not there."""

    __slots__ = ()

    name = b"REMOVE"
    facts = Facts(
        *(-3, WORKS, "RW delete", "0.2.0", "Remove a queue that holds no jobs"),
        ("REMOVE <name>", "Remove the queue, which must hold no jobs; the reply is 0 if there is none."),
    )  # fmt: skip
    needs = REMOVE

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """See `Change`."""
        return partial(_log_remove, engine)


def _log_remove(engine: QueueEngine, ctx: Context) -> int:
    """[lock] Log that the queue is gone. Returns 1, or 0 if it was not there. Raises CommandError if it is in use."""
    options = engine.options
    stream = ctx.stream(options.key)
    if stream is not None and stream.length and not has_jobs(stream):
        raise CommandError(
            b"ERR the stream at this key is no queue; XDEL, XTRIM or DEL delete its entries"
        )
    reasons = "; ".join(_reasons(engine, ctx))
    if reasons:
        raise CommandError(_CODE + f"{options.name} is not removed: {reasons}".encode())
    gone = tuple(key for key in _keys(options, ctx) if key in ctx.database.keys)
    if gone:
        ctx.effects.append((DEL, ctx.db, gone))
    return int(bool(gone))


def _reasons(engine: QueueEngine, ctx: Context) -> Iterator[str]:
    """The reasons that keep the queue from being removed, and what to do."""
    options = engine.options
    jobs = sum(
        max((depth(lane.stream, each) for each in lane.stream.groups.values()), default=lane.stream.length)
        for lane in lanes_in(ctx.state, ctx.db, options)
    )  # fmt: skip
    later = find_later(ctx, options)
    jobs += 0 if later is None else len(later[1].pending)
    if jobs:
        yield f"jobs that are not done: {jobs} (purge deletes those that nobody holds)"
    dead = stream_at(ctx, options.dead_key)
    if dead is not None and dead.length:
        yield f"dead jobs that it holds: {dead.length} (redrive or purge them)"
    rules = stored(ctx.database.keys.get(SCHEDULES))
    found = sorted(shown(each.rule.name) for each in rules if each.rule.queue == options.root)
    if found:
        yield f"schedules that put jobs into it: {', '.join(found)} (remove them)"
    waiters = (waiter.work for waiter in engine.core.waiting.at(engine.known.place))
    workers = sorted({shown(work.worker) for work in waiters if isinstance(work, Fetch)})
    if workers:
        yield f"workers that wait for its jobs: {', '.join(workers)} (stop them)"


def _keys(options: Options, ctx: Context) -> Iterator[bytes]:
    """The keys that a queue may have. Results and the progress of jobs expire by themselves."""
    groups = {options.group_key: None}
    for priority in range(PRIORITY_MAX + 1):
        lane = options.lane(priority)
        stream = stream_at(ctx, lane.key)
        groups |= dict.fromkeys(() if stream is None else stream.groups)
        yield from (lane.key, lane.holds_key)
    yield from (options.later_key, options.failures_key, options.dead_key, options.cancels_key)
    yield paused_key(options)
    for group in groups:
        yield options.root + b":rate:" + group
