"""QUEUE RESUME: deliver jobs again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.engine.api import DEL, Context
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.verbs.verb import PAUSE, WORKS, Change, Facts
from tidelog.jobs.work.pausing import paused_key, paused_since


class Resume(Change):
    """Deliver jobs again: 1; 0 if the queue was not paused."""

    __slots__ = ()

    name = b"RESUME"
    facts = Facts(
        *(-3, WORKS, "RW delete", "0.2.0", "Deliver jobs again"),
        ("RESUME <name>", "Deliver jobs again; the reply is 0 if it was not paused."),
    )
    needs = PAUSE

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """See `Change`."""
        return partial(_log_resume, engine)


def _log_resume(engine: QueueEngine, ctx: Context) -> int:
    """[lock] Log that the queue goes on. Returns 1, or 0 if it was not paused."""
    options = engine.options
    if paused_since(ctx.database.keys, options) is None:
        return 0
    ctx.effects.append((DEL, ctx.db, (paused_key(options),)))
    # Those that wait look again, and find the string gone.
    engine.core.waiting.signal([engine.known.place])
    return 1
