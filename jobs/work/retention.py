"""Retention: keep acknowledged jobs for a while (`keep`), and delete the oldest. Never deletes unfinished jobs.

Dead jobs are kept by limits of the store (`keep_dead_seconds`, `keep_dead_jobs`).
"""

from __future__ import annotations

import logging

from tidelog.engine import ids
from tidelog.engine.api import Context, Stream, reading
from tidelog.engine.errors import CommandError
from tidelog.jobs.options import Options
from tidelog.jobs.streams import depth, find, needed_from
from tidelog.jobs.work.known import Known
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.core import Core
from tidelog.store.errors import TidelogError
from tidelog.store.options import KeepDead

log = logging.getLogger("tidelog.queue")

SWEEP_JOBS = 256  # acknowledged jobs between two sweeps


def sweep(core: Core, known: Known, options: Options) -> None:
    """Delete jobs that `keep` does not cover, as one unit; no unit if there are none. Raises the errors of a write."""
    run_unit(core, known.db, lambda ctx: _words(ctx, known.db, options))
    known.unswept = 0


def _words(ctx: Context, db: int, options: Options) -> list[list[bytes]] | None:
    stream, group = find(ctx.state, db, options)
    if stream is None or group is None or not stream.length:
        return None
    end = needed_from(stream)
    if options.keep_seconds:
        end = min(end, max(0, ctx.now - int(options.keep_seconds * 1000)) << 64)
    else:
        excess = stream.length - depth(stream, group) - options.keep_count
        if excess <= 0:
            return None
        oldest = reading.between(stream, 0, end - 1, excess)
        if not oldest:
            return None
        end = min(end, oldest.parts[-1].ids()[-1] + 1)
    if stream.first_id() >= end:
        return None
    return [[b"XTRIM", options.key, b"MINID", b"=", ids.text(end)]]


def sweep_dead(core: Core, db: int, options: Options) -> None:
    """Delete the dead jobs of a queue beyond the limits of the store, as one unit. To be called after a death.

    Raises nothing that a write raises: the death itself is stored, and the next one tries again.
    """
    kept = core.checkpoints.keep_dead if core.checkpoints is not None else None
    if kept is None or not any(kept):
        return
    try:
        run_unit(core, db, lambda ctx: outdated(ctx, options, kept) or None)
    except (TidelogError, CommandError) as error:
        log.warning("queue %s: old dead jobs could not be deleted: %s", options.name, error)


def outdated(ctx: Context, options: Options, kept: KeepDead) -> list[list[bytes]]:
    """The commands that delete the dead jobs beyond these limits, each after the one before it."""
    dead = ctx.database.keys.get(options.dead_key)
    found: list[list[bytes]] = []
    if not isinstance(dead, Stream) or not dead.length:
        return found
    if kept.jobs and dead.length > kept.jobs:
        found.append([b"XTRIM", options.dead_key, b"MAXLEN", b"=", b"%d" % kept.jobs])
    end = max(0, ctx.now - int(kept.seconds * 1000)) << 64
    if kept.seconds and dead.first_id() < end:
        found.append([b"XTRIM", options.dead_key, b"MINID", b"=", ids.text(end)])
    return found
