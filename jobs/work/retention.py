"""Retention: keep acknowledged jobs for a while (`keep`), and delete the oldest. Never deletes unfinished jobs."""

from __future__ import annotations

from tidelog.engine import ids
from tidelog.engine.api import Context, reading
from tidelog.jobs.options import Options
from tidelog.jobs.streams import depth, find, needed_from
from tidelog.jobs.work.shared import Shared
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.core import Core

SWEEP_JOBS = 256  # acknowledged jobs between two sweeps


def sweep(core: Core, shared: Shared, options: Options) -> None:
    """Delete jobs that `keep` does not cover, as one unit; no unit if there are none. Raises the errors of a write."""
    run_unit(core, shared.db, lambda ctx: _words(ctx, shared.db, options))
    shared.unswept = 0


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
