"""Remote: a queue of a shared store. It says what the faces ask in words, to the process that serves the store."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, NamedTuple

from tidelog.api.queue.running.plan import SHARED_PASSING
from tidelog.client.base import Inside, slice_s
from tidelog.client.errors import error_of
from tidelog.client.keeper import BEAT_S, RENEW_S
from tidelog.client.link import Words
from tidelog.client.pooled import numbered
from tidelog.client.wire import Wire
from tidelog.engine import ids
from tidelog.engine.errors import CommandError
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.option_words import needs_of, option_words
from tidelog.jobs.options import Options
from tidelog.jobs.own import ms_word
from tidelog.jobs.putting import NewJob
from tidelog.jobs.verbs.done_and import AckAnd, some_of
from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.named import Fences
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.put_many import PutMany
from tidelog.jobs.verbs.release import Release
from tidelog.jobs.verbs.result import AskResult
from tidelog.jobs.verbs.schedule import ChangeSchedule
from tidelog.jobs.verbs.verb import RELEASE, OfDatabase, Safe, Verb, all_needs
from tidelog.store.errors import DataError, QueueFull, ResponseError


class SharedPut(NewJob):
    """A job that `SharedJob.done_and` is to put."""

    __slots__ = ("remote", "request")

    def __init__(self, remote: Remote, request: PutJob) -> None:
        self.remote, self.request = remote, request


class Batches(NamedTuple):
    """How many jobs are put: with these options, waiting for room until a time of the monotonic clock."""

    options: JobOptions
    until: float | None


class RemoteDatabase:
    """A database of a shared store, as its schedules use it."""

    def __init__(self, face: Inside) -> None:
        self._face = face

    def ask(self, verb: OfDatabase) -> Any:
        """See `Asked`. The server checks the expression and the zone of a schedule."""
        words = [b"QUEUE", verb.name, *verb.words()]
        try:
            return verb.result(self._face.link.call(words, verb.safe, self._face.db))
        except ResponseError as error:
            if error.code == "ERR" and isinstance(verb, ChangeSchedule):
                raise DataError(str(error).removeprefix("ERR ")) from None
            raise


class Remote:
    """See `Backend`.

    link, keeper, db    of the store
    renew_s             time between two renewals of a lease
    beat_s              longest pause between two beats of the keeper
    lease_s             after so long without a renewal, the jobs may be lost
    codec               as the program gave it, which other processes can import; that of the options may be a closure
    begun               workers for which HISTORY was sent
    needs               the capabilities without which a server does not know the options
    store               the face that the queue is of
    """

    store: Any

    kind, puts_directly = "shared-", False
    passing: tuple[type[Exception], ...] = SHARED_PASSING
    unpicklable = "a shared queue cannot be pickled; in the other process, connect to its path"

    def __init__(
        self, face: Inside, options: Options, codec: Any, opened_here: bool = False
    ) -> None:
        self.link, self.keeper, self.db, self.call = face
        self.options, self.codec, self.opened_here = options, codec, opened_here
        self.renew_s = min(RENEW_S, options.lease / 6)
        self.beat_s = min(BEAT_S, self.renew_s)
        self.lease_s = options.lease / 1.5
        self.begun: set[bytes] = set()
        self._words, self.needs = option_words(options), needs_of(options)

    def words(self, verb: Verb, *more: bytes) -> list[bytes]:
        """A request as a QUEUE command, with more options."""
        options = self._words if verb.of_group else ()
        return [b"QUEUE", verb.name, self.options.key, *verb.words(), *more, *options]

    def end_words(self, verb: Ending, worker: bytes, job: int, deliveries: int) -> list[bytes]:
        """The words of a worker about a delivery, as a QUEUE command."""
        fence = worker, ids.text(job), b"%d" % deliveries
        return [b"QUEUE", verb.name, self.options.key, *fence, *verb.words(), *self._words]

    def release(self, worker: bytes, fences: Fences, safe: Safe = Safe.READ) -> list[bool]:
        """Give jobs of a worker back: whether it held each. Raises TidelogError.

        Each command is numbered, for servers that can: a repeated one could strike the next delivery of its job, which
        has the same number.
        """
        link = self.link
        pooled = link.take()
        try:
            words: list[Words] = []
            for fence in fences:
                said = self.end_words(Release(), worker, *fence)
                pooled.number += 1
                words.append(partial(_if_it_can, RELEASE, numbered(said, pooled), said))
            replies = link.calls(words, safe, self.db, pooled=pooled)
        finally:
            link.give_back(pooled)
        for reply in replies:
            if isinstance(reply, CommandError) and not reply.line.startswith(b"ONCE "):
                raise error_of(reply)
        return [reply != 0 for reply in replies]  # a number that was passed: it was made before

    def ask(self, verb: Verb, *more: bytes, block: float = 0.0) -> Any:
        """See `Backend`. With more options, and time for which the server may block the call."""
        words: Any = self.words(verb, *more)
        link = self.link
        if verb.more_words is not None:
            capability, option = verb.more_words
            words = partial(_if_it_can, capability, [*words, option], words)
        needs = verb.needs if self.needs is None else all_needs(self.needs, verb.needs)
        return verb.result(link.call(words, verb.safe, self.db, block=block, needs=needs))

    def answer(self, request: AskResult, wait: float | None) -> Any:
        """See `Backend`."""
        until = _until(wait)
        while True:
            left = slice_s(until)
            words = () if wait == 0 else (b"BLOCK", ms_word(left))
            outcome = self.ask(request, *words, block=left)
            if outcome is not None or until is not None and time.monotonic() >= until:
                return outcome

    def time(self) -> float:
        """See `Backend`."""
        clock = self.link.call((b"TIME",), Safe.READ)
        return int(clock[0]) + int(clock[1]) / 1e6

    # --- putting

    def put(self, request: PutJob, wait: float | None) -> str:
        """See `Backend`."""
        id: bytes = self._until_room(request, _until(wait))
        return id.decode()

    def batches(self, options: JobOptions, wait: float | None) -> Batches:
        """See `Backend`."""
        return Batches(options, _until(wait))

    def put_some(self, how: Batches, values: list[bytes], before: int) -> int:
        """See `Backend`."""
        try:
            return int(self._until_room(PutMany(values, how.options), how.until))
        except QueueFull as full:
            full.stored = before
            raise

    def _until_room(self, request: Verb, until: float | None) -> Any:
        """The result of a put, which waits until then for room. Raises QueueFull."""
        while True:
            left = slice_s(until)
            wait = () if self.options.max_depth is None or not left else (b"BLOCK", ms_word(left))
            try:
                return self.ask(request, *wait, block=left if wait else 0.0)
            except QueueFull:
                if not wait or until is not None and time.monotonic() >= until:
                    raise

    def new(self, request: PutJob) -> SharedPut:
        """See `Backend`."""
        return SharedPut(self, request)

    def joined(self, puts: tuple[NewJob, ...]) -> AckAnd:
        """The request of `done_and`. Raises DataError."""
        found, lacks = [], None
        for put in some_of(SharedPut, puts):
            if put.remote.link is not self.link or put.remote.db != self.db:
                raise DataError(
                    "done_and puts only into queues of the job's own store and database"
                )
            lacks = all_needs(lacks, put.request.needs, put.remote.needs)
            found.append(put.remote.words(put.request)[2:])
        return AckAnd(found, lacks)


def _if_it_can(
    capability: bytes, words: list[bytes], otherwise: list[bytes], wire: Wire
) -> list[bytes]:
    return words if capability in wire.can else otherwise


def _until(wait: float | None) -> float | None:
    return None if wait is None else time.monotonic() + wait
