"""Queue: the durable queue for threads.

with tidelog.queue("mail-data", "mails") as mails:
    mails.put({"to": "ann@example.org"})
    for job in mails.consume(block=0):
        with job:
            send(job.value)

Generated from aio.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import get_ident
from typing import Any, Unpack

from tidelog.api.closing import Closing
from tidelog.api.queue.base import QueueBase
from tidelog.api.queue.consuming import ConsumerBase
from tidelog.api.queue.handle import Handle
from tidelog.api.queue.job import Job
from tidelog.api.queue.running.by_threads import RunsThreads
from tidelog.api.queue.verbs import Verbs
from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.jobs import rows
from tidelog.jobs.job_options import PutManyOptions, PutOptions, batch_options, job_options
from tidelog.jobs.putting import Attempt, AttemptMany, Put, created
from tidelog.jobs.rows import VALUE
from tidelog.jobs.typed import T
from tidelog.jobs.units import PAYLOAD_BYTES_MAX, checked_payload
from tidelog.jobs.verbs.result import AskResult, waited_ms
from tidelog.jobs.verbs.verb import Question, Verb
from tidelog.jobs.work.fetch import DELIVERED, NEXT, NOTHING
from tidelog.jobs.work.shared import Delivery
from tidelog.store.commit.callers import ThreadCaller
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import DecodeError, EncodeError, StoreClosed, from_command
from tidelog.store.lifetime import DRAIN_SECONDS


class Queue(RunsThreads[Job[T]], QueueBase[T], Verbs[T], Closing):
    """A durable queue of an open store. `Store.queue` or `tidelog.queue` makes it; many threads may use it at once.

    Besides the errors that it names, any method may raise: ResponseError if one of the queue's keys holds no stream;
    StoreClosed; StorePoisoned; StoreDamaged; and if it writes, OutOfSpace, UnitTooLarge, OutcomeUnknown and, on a
    read-only store, ReadOnlyError. An empty queue is still true.
    """

    _opened_here = False

    # --- putting

    def put(
        self, value: T, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> Handle:
        """Put one job. Returns once it has reached the store's durability level (see `Store.fsync`).

        Args:
            value: Anything that the codec encodes.
            timeout: Seconds or a timedelta to wait while a bounded queue is full; None = for ever, 0 = not at all.
            options: `dedup_id`, `dedup`, `headers`, `delay`, `at`, `ttl`, `priority`, `key`. `PutOptions` describes
                them.

        Returns:
            The job's ID, `ms-seq`, a str; its method `result` waits for what the worker says. A delayed job gets a new
            ID when it is due; then `Job.origin` is this one.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; nothing was put.
        """
        if not options and timeout is None and not self._bounded:
            if self._raw and value.__class__ is bytes:
                data: Any = value
            else:
                try:
                    data = self._encode(value)
                except Exception:
                    data = rows.encode_value(self._options, value)  # a clear EncodeError
            if len(data) > PAYLOAD_BYTES_MAX:
                checked_payload(self._options.name, data)
            face, core = self._face, self._core
            try:
                effect, log, lsn = core.add(self._db, self._key, (VALUE, data))
            except CommandError as error:
                raise from_command(error) from None
            if face._holds_each or lsn > core.durability.through(log, face._level):
                face._hold((log, lsn, True))
            return Handle.of(self, f"{effect[3]}-{effect[4]}")
        given = job_options(options)
        due = self._engine.due(given)
        aside = self._put_aside(value, given, due, timeout)
        if aside is None:
            put = self._put_of(value, given, due)
            return Handle.of(self, self._put_slowly(put, timeout))
        id, promise = aside
        self._face._hold(promise)
        return Handle.of(self, id)

    def _put_slowly(self, put: Put, timeout: Duration | None) -> str:
        core, wait = self._core, patience("timeout", timeout)
        deadline = None if wait is None else core.monotonic() + wait
        while True:
            attempt = Attempt(put, None if wait == 0 else ThreadCaller)
            _, promise = self._engine.unit(attempt)
            if attempt.id is not None:
                self._face._hold(promise)
                return rows.text(attempt.id)
            self._sleep(attempt.waits, deadline, 0)

    def put_many(
        self,
        values: Iterable[T],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutManyOptions],
    ) -> int:
        """Put many jobs, up to 1,000 in one unit. Memory use does not depend on their number.

        Args:
            values: Values as `put` takes them.
            timeout: As in `put`, for all of them together.
            options: `delay`, `at`, `ttl`, `priority`, `key`, as in `put`, of all of them.

        Returns:
            How many were put.

        Raises:
            EncodeError: The codec cannot encode a value, or it is too large (PayloadTooLarge). Those before it were
                put; `stored` is their number.
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; `stored` values were put, the first ones.
        """
        core, wait = self._core, patience("timeout", timeout)
        deadline = None if wait is None else core.monotonic() + wait
        waits = None if wait == 0 else ThreadCaller
        total = 0
        given = batch_options(options)
        due = self._engine.due(given)
        for batch, error in self._batches(values):
            while batch:
                attempt = AttemptMany(self._engine, batch, given, due, waits)
                stored, promise = created(self._engine, attempt)
                if stored:
                    self._face._hold(promise)
                    total += stored
                    batch = batch[stored:]
                else:
                    self._sleep(attempt.waits, deadline, total)
            if error is not None:
                if isinstance(error, EncodeError):
                    error.stored = total
                raise error
        return total

    def _ask(self, verb: Verb) -> Any:
        if isinstance(verb, Question):
            return self._answered(verb, 0)
        found, promise = verb.decide(self._engine)
        self._face._hold(promise)
        return found

    def _time(self) -> float:
        return self._engine.store_ms() / 1000

    def _sleep(self, caller: Any, deadline: float | None, stored: int) -> None:
        """Sleep until there may be room. Raises QueueFull."""
        try:
            if caller is None or (wait := self._engine.nap(deadline)) == 0:
                raise self._engine.full(stored)
            caller.sleep(wait)
        finally:
            self._engine.shared.room.pop(caller, None)

    # --- consuming

    def consume(
        self,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        *,
        time_limit: Duration | None = None,
        reraise: bool = False,
    ) -> Consumer[T]:
        """Iterate over jobs: earlier jobs of this worker, abandoned jobs and retries that are due, then new jobs.

        Args:
            worker: The worker's name. After a restart a worker of the same name gets its unfinished jobs at once.
                Without a name, any worker gets them when their lease ends.
            batch: Jobs to fetch together. They are acknowledged together when all are done, or after a second, so a
                crash repeats at most this many.
            block: End the iteration after this many seconds (or a timedelta) without a job; None = never, 0 = at once.
            time_limit: Renew a job's lease for at most this many seconds (or a timedelta); None = as long as the job is
                held.
            reraise: Let an exception in a job's `with` block propagate after it was recorded. False: it is only
                recorded and logged.

        Returns:
            An iterator of `Job`.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The store was closed.
        """
        return Consumer(self, worker, batch, block, time_limit, reraise)

    def get(self, worker: str | None = None, block: Duration | None = None) -> Job[T] | None:
        """Fetch one job.

        Args:
            worker: The worker's name, as in `consume`.
            block: Wait this many seconds (or a timedelta); None = for ever, 0 = not at all.

        Returns:
            The job; None if none came.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The store was closed.
        """
        for job in self.consume(worker, 1, block):
            return job
        return None

    # --- results

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the result of a job, which its worker gives to `Job.ack`. `Handle.result` is the same.

        A delayed or redriven job is found by the ID that `put` returned, not by the one that it has now. After a
        redrive the outcome of the new job counts.

        Args:
            job_id: The ID that `put` returned.
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Returns:
            The result, decoded by the codec. A result can be asked for any number of times until it expires.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: It has ended without a result, was cancelled, or the result has expired.
            ResultLate: It did not end in time.
            DecodeError: The codec cannot decode the result.
            DataError: An argument is invalid.
        """
        request, wait = AskResult.of(job_id), patience("timeout", timeout)
        return self._result(job_id, self._answered(request, wait))

    def _answered(self, request: Question, wait: float | None) -> Any:
        """The answer to a question. It may wait even with 0, until it is known where the job is."""
        question = request.question(self._engine, waited_ms(wait))
        try:
            outcome, promise = self._core.run(self._db, question, ThreadCaller)
            if outcome.__class__ is Waiter:
                outcome, promise = self._face._wait(outcome)
        except BaseException as error:
            if not isinstance(error, Exception):
                self._core.desert(get_ident())
            raise
        self._face._hold(promise)
        return outcome

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Close the store, as `Store.close` does, if `tidelog.queue` opened it for this queue. Otherwise do nothing.

        Args:
            drain: As in `Store.close`.

        Returns:
            How many jobs were left in the hands of other threads and tasks.

        Raises:
            DataError: `drain` is not a duration.
        """
        return int(self.store.close(drain)) if self._opened_here else 0


class Consumer(ConsumerBase[T], Closing):
    """An iterator of jobs; `Queue.consume` makes it.

    It is closed when it ends, by `close`, or as a context manager. Then jobs that were fetched but not handed
    out go back to the queue at once.
    """

    _queue: Queue[T]
    _caller_class = ThreadCaller

    def __iter__(self) -> Iterator[Job[T]]:
        return self

    def __next__(self) -> Job[T]:
        while True:
            delivery = self._delivery
            if delivery is None or not delivery.jobs:
                delivery = None if self._closed else self._fetch()
                if delivery is None or self._closed:
                    if delivery is not None:  # another thread closed it meanwhile
                        self._engine.shared.leave(delivery)
                        self._delivery = delivery
                    self.close()
                    raise StopIteration
            entry: Any = None
            try:
                # In one step: an interrupt strikes after a call, before its result is kept.
                for entry in iter(delivery.jobs.pop, None):
                    me = get_ident()
                    if not delivery.gathers:
                        delivery.holder = me
                        self._delivery = None  # only the job keeps the delivery alive
                    elif delivery.holder != me:
                        delivery.taken(entry[0], me)
                    row = entry[1]
                    queue = self._queue
                    try:
                        value = queue._decode(row[1]) if row[0] == VALUE else queue._value(row)
                    except Exception:
                        value = queue._value(row)
                    return Job(self._place, delivery, entry, value)
            except DecodeError as error:
                broken = error
            except BaseException as error:
                if entry is None and isinstance(error, IndexError):
                    continue  # another thread took the job from this consumer, or returned it to the queue
                if entry is not None and not isinstance(error, Exception):  # interrupted: unseen
                    delivery.open[entry[0]] = entry[2]  # Python may have freed its object: a drop
                    delivery.jobs.append(entry)
                    self._delivery = delivery
                raise
            Job(self._place, delivery, entry, None).fail(broken)

    def _fetch(self) -> Delivery | None:
        queue = self._queue
        core, face = queue._core, queue._face
        while True:
            request = self._request()
            try:
                reply, promise = core.decided(queue._db, request, self._caller)
                if reply.__class__ is Waiter:
                    self._park(parked := reply)
                    try:
                        reply, promise = face._wait(parked, request.tell_deaths)
                    finally:
                        self._parked.discard(parked)
                if face._holds_each or promise[1] > core.durability.through(
                    promise[0], face._level
                ):
                    face._hold(promise)
            except CommandError as error:
                self._broke(request)
                raise from_command(error) from None
            except BaseException as error:
                if not isinstance(error, Exception):
                    core.desert(get_ident())
                self._broke(request)
                raise
            if reply is NEXT or (outcome := self._got(request, reply)) is DELIVERED:
                return self._take(request)
            if outcome is NOTHING:
                return None

    def close(self) -> None:
        """Stop the iteration, also of a thread that waits for a job. Closing twice is allowed."""
        try:
            promise = self._give_back()
            if promise is not None:
                self._queue._face._hold(promise)
        except StoreClosed:
            # Some acknowledgements could not be written. Their jobs will be delivered again.
            pass
