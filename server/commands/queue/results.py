"""QUEUE RESULT: what the worker of a job gave, once the job is done."""

from __future__ import annotations

from functools import partial

from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs.verbs.result import AskResult
from tidelog.server.commands.queue.given import Given, given_of
from tidelog.server.commands.queue.waiting import Nudge, Parked
from tidelog.server.commands.wait import parse_timeout
from tidelog.server.session import Session
from tidelog.store.commit.durability import Promise


def result(session: Session, args: list[bytes]) -> Reply:
    """QUEUE RESULT name id [BLOCK ms] [option ...]: what the worker of a job gave to QUEUE DONE.

    Replies [DONE, value]; [DEAD, ID of the dead job, reason]; [NONE] if the job has ended and left no result; or null
    if it has not ended in time. BLOCK 0 waits for ever.
    """
    given = given_of(session, args[2], args[4:], AskResult.options)
    return _Asking(session, given, AskResult.parse(args[3:4], given.own)).begin()


class _Asking(Parked):
    """A client that waits for a result."""

    def __init__(self, session: Session, given: Given, request: AskResult) -> None:
        super().__init__(session)
        queue, block = given.queue, given.own.get(b"BLOCK")
        timeout_ms = None if block is None else parse_timeout(session, block[0])
        self._request = request
        self._question = request.question(queue.engine, timeout_ms)

    def begin(self) -> Reply:
        """The reply, or this call if it has to wait."""
        core = self._session.core
        reply, promise = core.run(self._session.db, self._question, partial(Nudge, self), False)
        if reply.__class__ is Waiter:
            self._waiter = reply
            return self
        return self._got(reply, promise)

    def _got(self, reply: Reply, promise: Promise) -> Reply:
        self._session.rest_on(promise)
        if isinstance(reply, CommandError):
            raise reply
        return self._request.reply(reply)
