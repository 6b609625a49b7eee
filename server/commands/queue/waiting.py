"""Calls of QUEUE that wait: for jobs, results, or room in a bounded queue."""

from __future__ import annotations

from tidelog.engine.api import Waiter
from tidelog.engine.reply import NULL_ARRAY, Reply
from tidelog.server.blocked import NOT_YET, BlockedCall
from tidelog.server.session import Session
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.durability import Promise


class Nudge(Caller):
    """Stands for a session among those that a queue wakes."""

    __slots__ = ("_call",)

    def __init__(self, call: BlockedCall) -> None:
        super().__init__()
        self._call = call

    def nudge(self) -> None:
        """See `Caller`."""
        self._call.nudge()


class Parked(BlockedCall):
    """A call that waits in the store's queue of waiters, which has its deadline."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.woke, None)
        self._session = session
        self._waiter: Waiter | None = None

    def begin(self) -> Reply:
        """The reply, or this call if it has to wait."""
        raise NotImplementedError

    def _got(self, reply: Reply, promise: Promise) -> Reply:
        """The reply for the outcome of a decision; NOT_YET: ask again."""
        raise NotImplementedError

    def _waits(self) -> None:
        """The call goes on waiting after a decision, which may have changed something."""

    def _over(self) -> None:
        """The call does not wait any more."""

    def _broke(self) -> None:
        """The decision failed, or the client will never see its outcome."""

    def look(self) -> Reply:
        """See `BlockedCall`."""
        waiter = self._waiter
        assert waiter is not None
        caller: Caller = waiter.owner
        if not caller.done:
            self._session.core.wake(waiter)
            if not caller.done:
                self._waits()
                return NOT_YET
        self._waiter = None
        self._over()
        if caller.error is not None:
            self._broke()
            raise caller.error
        assert caller.answer is not None
        found = self._got(*caller.answer)
        if found is NOT_YET:
            found = self.begin()
            return NOT_YET if found is self else found
        return found

    def next_look(self) -> float | None:
        """See `BlockedCall`."""
        core = self._session.core
        seconds = None if self._waiter is None else core.waits.patience(self._waiter)
        return None if seconds is None else core.monotonic() + seconds

    def late(self) -> Reply:
        """See `BlockedCall`. CLIENT UNBLOCK ends the wait; what came just before is handed out."""
        assert self._waiter is not None
        self._session.core.dismiss(self._waiter)
        found = self.look()
        return NULL_ARRAY if found is NOT_YET else found

    def forget(self) -> None:
        """See `BlockedCall`."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            self._over()
            self._session.core.leave(waiter)
            if waiter.owner.done:
                self._broke()
