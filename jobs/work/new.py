"""New: the source of jobs that were never delivered. See selection.py."""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

from tidelog.engine.api import Entries, EntryRow, log_new, reading
from tidelog.jobs import rows
from tidelog.jobs.units import UNIT_BYTES
from tidelog.jobs.work.keyed import Keyed
from tidelog.jobs.work.selection import DEAD_MAX, Decision, Selection


def take_new(now: Decision, found: Selection, keyed: Keyed | None, left: int) -> None:
    """Take the next `left` jobs of a lane that has new ones. `keyed`: sorts them if keys are limited."""
    lane, ctx = found.lane, now.ctx
    stream, group = lane.stream, lane.group
    fresh = reading.after(stream, group.last_id, left)
    if keyed is not None and not _all_lack(fresh, rows.KEY):
        keyed.take_new(left, fresh)
        return
    late: dict[int, EntryRow] = {}
    if not _all_lack(fresh, rows.EXPIRES):
        while (late := _expired(fresh, ctx.now)) and left > 1 and _too_much(late):
            left = max(1, left // 4)
            fresh = reading.after(stream, group.last_id, left)
        for job, row in late.items():
            found.bury(job, row, 0, rows.EXPIRED, ())
        found.done += late
    log_new(ctx, lane.options.key, stream, group, now.worker, fresh)
    if late:
        fit: Any = [(job, row, 1) for job, row in fresh if job not in late]
        found.opened = dict.fromkeys([job for job, _, _ in fit], 1)
        found.got += fit
    else:
        jobs = fresh.ids()
        found.opened = dict.fromkeys(jobs, 1)
        whole: Any = chain.from_iterable(part.rows() for part in fresh.parts)
        found.got += zip(jobs, whole, repeat(1))


def _all_lack(fresh: Entries, name: bytes) -> bool:
    """Whether no job has a field, as far as this is known without a look at the jobs."""
    for part in fresh.parts:
        if not part.lacks(name):
            return False
    return True


def _expired(fresh: Entries, now: int) -> dict[int, EntryRow]:
    """Those of the new jobs that are too old to be delivered."""
    return {job: row for job, row in fresh if row is not None and rows.is_expired(row, now)}


def _too_much(late: dict[int, EntryRow]) -> bool:
    """Whether these are too many dead jobs for one unit."""
    return len(late) > DEAD_MAX or sum(sum(map(len, row)) for row in late.values()) > UNIT_BYTES
