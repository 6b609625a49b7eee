"""QUEUE PAUSE: deliver no more jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.engine.api import SET, Context
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.verbs.verb import PAUSE, WORKS, Change, Facts
from tidelog.jobs.work.pausing import paused_key, paused_since


class Pause(Change):
    """Deliver no more jobs to any group: 1; 0 if the queue was paused."""

    __slots__ = ()

    name = b"PAUSE"
    facts = Facts(
        *(-3, WORKS, "RW insert", "0.2.0", "Deliver no more jobs"),
        ("PAUSE <name>", "Deliver no more jobs; the reply is 0 if it was paused."),
    )
    needs = PAUSE

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """See `Change`."""
        return partial(_log_pause, engine)


def _log_pause(engine: QueueEngine, ctx: Context) -> int:
    """[lock] Log that the queue is paused. Returns 1, or 0 if it was."""
    options = engine.options
    ctx.stream(options.key)  # raises for a key of another type
    if paused_since(ctx.database.keys, options) is not None:
        return 0
    ctx.effects.append((SET, ctx.db, paused_key(options), b"%d" % ctx.now, -1))  # without expiry
    for group in engine.known.later.groups:
        group.halt()
    return 1
