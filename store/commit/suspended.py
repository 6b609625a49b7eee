"""Suspended: a leader's store that takes no writes for a while, because it is about to hand over to a follower.

Nothing enters its log meanwhile, so the end of the log stays where it is, and a follower can reach it. Calls that
write fail with SUSPENDED; a server lets its clients wait instead. Reads go on. Consumers stay parked, and expired keys
are hidden but not deleted, since both would be written. Below all of that, `Log.suspend` refuses every unit.

`release` ends it. A change of the role ends it, too.
"""

from __future__ import annotations

from tidelog.engine.api import Context, Waiter, decide, resolve
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.store.commit.blocked import Waits
from tidelog.store.commit.core import Core
from tidelog.store.commit.following import ReadersOnly
from tidelog.store.commit.landing import SUSPENDED


def decide_suspended(ctx: Context, args: list[bytes]) -> Reply:
    """Decide the words of a command. Raises CommandError for a write."""
    if "write" in resolve(args).flags:
        raise CommandError(SUSPENDED)
    reply = decide(ctx, args)
    ctx.effects.clear()  # they only delete expired keys
    return reply


class SuspendedWaits(ReadersOnly):
    """The blocked calls of a suspended store. Only a deadline wakes them; what else is due is looked at afterwards."""

    def patience(self, waiter: Waiter) -> float | None:
        """See `Waits.patience`."""
        if self._clock.manual or waiter.deadline is None:
            return None
        return max(0.0, waiter.deadline - self._clock.monotonic())

    def wake(self, waiter: Waiter) -> None:
        """See `Waits.wake`."""
        if waiter.deadline is not None and self._clock.monotonic() >= waiter.deadline:
            self.dismiss(waiter)


def suspend(core: Core) -> None:
    """[lock] Take no writes from now on. The core leads, and everything gathered was flushed. May be repeated."""
    landing = core.landing
    core.log.suspend(True)
    core.waits, core.decide_words = (
        SuspendedWaits(landing, decide_suspended, core.clock),
        decide_suspended,
    )
    landing.expiring = False
    core.refusal = SUSPENDED  # last: says that the rest is done


def release(core: Core) -> None:
    """[lock] Take writes again, if the core is suspended. May be repeated."""
    if core.refusal is not SUSPENDED:
        return
    landing = core.landing
    landing.expiring = True
    core.waits, core.decide_words = Waits(landing, decide, core.clock), decide
    core.log.suspend(False)
    core.refusal = None  # last: says that the rest is done
    core.waits.nudge_all()
    if core.queues is not None:
        core.queues.nudge()
