"""QUEUE RESULT, JOB and FIND: the outcome of a job, for which the client may have to wait, and what became of jobs."""

from __future__ import annotations

from functools import partial

from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs.verbs.verb import Question
from tidelog.server.commands.queue.given import Given
from tidelog.server.commands.queue.waiting import Nudge, Parked
from tidelog.server.commands.wait import parse_timeout
from tidelog.server.session import Session
from tidelog.store.commit.durability import Promise


def answer(session: Session, given: Given, request: Question) -> Reply:
    """The answer to a question. BLOCK 0 waits for ever; without BLOCK it does not wait for an end."""
    return _Asking(session, given, request).begin()


class _Asking(Parked):
    """A client that waits for an answer."""

    def __init__(self, session: Session, given: Given, request: Question) -> None:
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
