"""Embedded: a queue of a store that this process has open, for asyncio. It decides what the faces ask, and waits."""

from __future__ import annotations

from threading import get_ident
from typing import Any, NamedTuple

from tidelog.api.face import Inside
from tidelog.api.queue.running.plan import PASSING
from tidelog.engine.api import Waiter
from tidelog.jobs import rows
from tidelog.jobs.engine import InDatabase, QueueEngine
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.options import Options
from tidelog.jobs.putting import Attempt, AttemptMany, Put, created, put_aside
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.result import waited_ms
from tidelog.jobs.verbs.verb import OfDatabase, Question, Verb
from tidelog.jobs.work.later import Due

# threads: from tidelog.store.commit.callers import ThreadCaller
from tidelog.store.commit.tasks import TaskCaller  # asyncio


class AsyncDatabase:
    """A database of an open store, as its schedules use it."""

    def __init__(self, face: Inside) -> None:
        self._face, self._in = face, InDatabase(face.core, face.db)

    async def ask(self, verb: OfDatabase) -> Any:
        """See `AsyncAsked`."""
        found, promise = verb.decide(self._in)
        await self._face.fulfil(promise)
        return found


class Batches(NamedTuple):
    """How many jobs are put: with these options, due then, waiting for room until a time of the store's clock.

    waits    whether they wait for it at all
    """

    options: JobOptions
    due: Due | None
    until: float | None
    waits: bool


# A change is made at once, in the loop's thread; only the disk, a job or room is awaited.  # asyncio
# So a cancelled call has done either nothing or everything.  # asyncio
class AsyncEmbedded:
    """See `AsyncBackend`.

    engine    decides
    decode    the codec's
    store     the face that the queue is of
    """

    store: Any

    kind = ""
    passing: tuple[type[Exception], ...] = PASSING
    unpicklable = "a queue cannot be pickled: it belongs to its open store; open the store in the other process"

    def __init__(self, face: Inside, options: Options, opened_here: bool = False) -> None:
        self.options, self.opened_here = options, opened_here
        self.core, self.db, self.level, self.fulfils_each = face[:4]
        self.fulfilled, self.fulfil, self.wait, self.call = face[4:]
        self.engine = QueueEngine(self.core, self.db, options)
        self.decode = options.codec.decode
        self.puts_directly = not self.engine.bounded

    # --- putting

    async def put(self, request: PutJob, wait: float | None) -> str:
        """See `AsyncBackend`."""
        engine, job = self.engine, request.job
        due = engine.due(job)
        goes_aside = due is not None or job.priority and wait is None and self.puts_directly
        if goes_aside and job.dedup_id is None:
            id, promise = put_aside(engine, request.value, job, due)
            await self.fulfil(promise)
            return str(id)
        put = Put(engine, job.row(request.value), job, due)
        until = self._until(wait)
        while True:
            attempt = Attempt(put, None if wait == 0 else TaskCaller)
            _, promise = engine.unit(attempt)
            if attempt.id is not None:
                await self.fulfil(promise)
                return rows.text(attempt.id)
            await self._sleep(attempt.waits, until, 0)

    def batches(self, options: JobOptions, wait: float | None) -> Batches:
        """See `AsyncBackend`."""
        return Batches(options, self.engine.due(options), self._until(wait), wait != 0)

    async def put_some(self, how: Batches, values: list[bytes], before: int) -> int:
        """See `AsyncBackend`."""
        engine = self.engine
        while True:
            caller = TaskCaller if how.waits else None
            attempt = AttemptMany(engine, values, how.options, how.due, caller)
            stored, promise = created(engine, attempt)
            if stored:
                await self.fulfil(promise)
                return int(stored)
            await self._sleep(attempt.waits, how.until, before)

    def new(self, request: PutJob) -> Put:
        """See `AsyncBackend`."""
        return request.put(self.engine)

    def _until(self, wait: float | None) -> float | None:
        return None if wait is None else self.core.monotonic() + wait

    async def _sleep(self, caller: Any, until: float | None, stored: int) -> None:
        """Sleep until there may be room. Raises QueueFull."""
        try:
            if caller is None or (wait := self.engine.nap(until)) == 0:
                raise self.engine.full(stored)
            await caller.sleep(wait)
        finally:
            self.engine.known.room.pop(caller, None)

    # --- asking

    async def ask(self, verb: Verb) -> Any:
        """See `AsyncBackend`."""
        if isinstance(verb, Question):
            return await self.answer(verb, 0)
        found, promise = verb.decide(self.engine)
        await self.fulfil(promise)
        return found

    async def answer(self, request: Question, wait: float | None) -> Any:
        """The answer to a question. It may wait even with 0, until it is known where the job is."""
        question = request.question(self.engine, waited_ms(wait))
        try:
            outcome, promise = self.core.run(self.db, question, TaskCaller)
            if outcome.__class__ is Waiter:
                outcome, promise = await self.wait(outcome)
        except BaseException as error:
            if not isinstance(error, Exception):
                self.core.desert(get_ident())
            raise
        await self.fulfil(promise)
        return outcome

    async def time(self) -> float:
        """See `AsyncBackend`."""
        return self.engine.store_ms() / 1000
