"""Which jobs of a lane are due again: they were delivered before, and their pause is over."""

from __future__ import annotations

from tidelog.engine.api import Context, State
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import Lane
from tidelog.jobs.work.known import Known


def due_in(engine: QueueEngine, state: State, lane: Lane) -> list[int]:
    """[lock] Jobs of a lane that were delivered before and are due, in delivery order."""
    group = lane.group
    if group is None or not group.pending.nacked():
        return []
    core = engine.core
    ctx = Context(state, core.settings)
    ctx.db, ctx.now = engine.db, core.now
    known = known_of_lane(engine, ctx, lane)
    # Read the clock now: the times in a cache that was just read are not later.
    return known.due(group, known.monotonic())


def known_of_lane(engine: QueueEngine, ctx: Context, lane: Lane) -> Known:
    """[lock] What this process knows of a lane that has the group, as it is now."""
    lane_0, group = engine.known, lane.group
    assert group is not None
    # the store is read-only, and the writer cannot invalidate this process's cache
    if engine.core.checkpoints is None:
        lane_0.stale()
    known = lane_0.lane(lane.options.priority)
    known.fresh(ctx, lane.options, lane.stream, group)
    return known
