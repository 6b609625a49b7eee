"""Which jobs of a lane are due again: they were delivered before, and their pause is over."""

from __future__ import annotations

from tidelog.engine.api import Context, State
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import Lane


def due_in(engine: QueueEngine, state: State, lane: Lane) -> list[int]:
    """[lock] Jobs of a lane that were delivered before and are due, in delivery order."""
    stream, group, options = lane.stream, lane.group, lane.options
    if group is None or not group.pending.nacked():
        return []
    core, lane_0 = engine.core, engine.shared
    ctx = Context(state, core.settings)
    ctx.db, ctx.now = engine.db, core.now
    # the store is read-only, and the writer cannot invalidate this process's cache
    if core.checkpoints is None:
        lane_0.stale()
    shared = lane_0.lane(options.priority)
    shared.fresh(ctx, options, stream, group)
    # Read the clock now: the times in a cache that was just read are not later.
    return shared.due(group, shared.monotonic())
