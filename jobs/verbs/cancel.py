"""QUEUE CANCEL: delete a delayed job."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.engine import ids
from tidelog.engine.api import Context, log_acked
from tidelog.engine.idlist import pack
from tidelog.jobs.dedup import let_go
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.verbs.verb import WORKS, Change, Facts, OneJob
from tidelog.jobs.work.freeing import free_window
from tidelog.jobs.work.later import GROUP, find_later


class Cancel(OneJob, Change):
    """Delete a delayed job: 1; 0 if it is no delayed job."""

    __slots__ = ()

    name = b"CANCEL"
    facts = Facts(
        *(-4, WORKS, "RW delete", "0.1.0", "Delete a delayed job"),
        ("CANCEL <name> <id>", "Delete a delayed job."),
    )

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """See `Change`."""
        return partial(_log_cancel, engine, number=self.job)


def _log_cancel(engine: QueueEngine, ctx: Context, number: int) -> int:
    """[lock] Log that a delayed job is deleted. Returns 1, or 0 if it is none."""
    options = engine.options
    found = find_later(ctx, options)
    if found is None or not found[1].pending.contains(number):
        return 0
    stream = found[0]
    here = [number] if stream.contains(number) else []
    engine.shared.ended([ids.text(number)])
    ctx.effects += let_go(ctx, options, stream, (number,)) + free_window(ctx, options, (number,))
    log_acked(ctx, options.later_key, stream, GROUP, pack([number]), here)
    return len(here)
