"""SharedQueue: the durable queue of a store that another process serves, for threads. Many processes may share it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Final, Unpack

from tidelog.api.closing import Closing
from tidelog.api.queue.base import QueueOf
from tidelog.api.queue.handle import Handle
from tidelog.api.queue.running.by_threads import RunsThreads
from tidelog.api.queue.running.plan import SHARED_PASSING
from tidelog.client.base import Base, slice_s
from tidelog.client.consumer import SharedConsumer
from tidelog.client.dead import SharedDead
from tidelog.client.job import SharedJob, SharedPut
from tidelog.client.keeper import BEAT_S, RENEW_S
from tidelog.client.lane import Safe
from tidelog.client.wire import ms_word
from tidelog.client.words import count_word, job_word, option_words, time_words
from tidelog.engine import ids
from tidelog.jobs import rows
from tidelog.jobs.dedup import WINDOW
from tidelog.jobs.job_options import PutManyOptions, PutOptions, batch_options, job_options
from tidelog.jobs.options import Options, named
from tidelog.jobs.rows import Failure, WaitingJob
from tidelog.jobs.stats import Stats
from tidelog.jobs.typed import T
from tidelog.jobs.work.results import no_result, result_late
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import DataError, EncodeError, JobFailed, QueueFull
from tidelog.store.lifetime import DRAIN_SECONDS

DEDUP: Final = b"dedup"  # a capability of servers from version 0.2 on


class SharedQueue(RunsThreads[SharedJob[T]], QueueOf[T], Closing):
    """A durable queue of a shared store. `SharedStore.queue` or `tidelog.queue(..., shared=True)` makes it.

    It has the methods of `Queue`. `len(queue)` is the number of jobs that are not done. An empty queue is still true.

    Any method may raise the errors that `Queue` lists, and Unreachable if no server of the store answers.
    """

    _opened_here = False
    _kind = "shared-"
    _passing = SHARED_PASSING

    def __init__(self, store: Base, options: Options, codec: Any = None) -> None:
        super().__init__(options)
        self._store = store
        # Other processes can import this one; that of the options may be a closure.
        self._given_codec = codec
        self._db = store._db
        self._keeper, self._link = store._keeper, store._link
        self._key = options.key
        self.renew_s = min(RENEW_S, options.retry_after / 6)
        self.beat_s = min(BEAT_S, self.renew_s)
        self.lease_s = options.retry_after / 1.5
        self._beat_ms = ms_word(self.lease_s)
        self._words = option_words(options)
        self._named_by = os.getpid()
        self._begun: set[bytes] = set()  # workers for which HISTORY was sent

    @property
    def store(self) -> Any:
        """The shared store that holds the queue."""
        return self._store

    @property
    def dead(self) -> SharedDead:
        """The dead jobs: those that were given up."""
        return SharedDead(self)

    def __reduce__(self) -> Any:
        raise TypeError(
            "a shared queue cannot be pickled; in the other process, connect to its path"
        )

    def words(self, verb: bytes, *args: bytes) -> list[bytes]:
        """A QUEUE command with the queue's options."""
        return [b"QUEUE", verb, self._key, *args, *self._words]

    def heartbeat_words(self) -> list[bytes]:
        """HEARTBEAT and its milliseconds."""
        return [b"HEARTBEAT", self._beat_ms]

    def _ask(self, verb: bytes, *args: bytes, safe: Safe = Safe.READ, block: float = 0.0) -> Any:
        return self._link.call(self.words(verb, *args), safe, self._db, block=block)

    # --- putting

    def put(
        self, value: T, *, timeout: Duration | None = None, **options: Unpack[PutOptions]
    ) -> Handle:
        """Put one job. As `Queue.put`. If the connection breaks meanwhile, the put is repeated, and adds one job.

        Returns:
            The job's ID, `ms-seq`, as `Queue.put` returns it.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; nothing was put.
            Unsupported: The server is too old for a `dedup` other than "window"; nothing was put.
        """
        put = self.new(value, **options)
        words = [b"QUEUE", b"PUT", *put.words]
        id: bytes = self._until_room(words, patience("timeout", timeout), put.needs)
        return Handle.of(self, id.decode())

    def new(self, value: T, **options: Unpack[PutOptions]) -> SharedPut:
        """A job for `SharedJob.done_and` to put. As `Queue.new`.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
        """
        given = job_options(options)
        data = rows.encode_value(self._options, value)
        needs = None if given.mode == WINDOW else DEDUP
        return SharedPut(self, [self._key, data, *given.words(), *self._words], needs)

    def _until_room(
        self, words: list[bytes], wait: float | None, needs: bytes | None = None
    ) -> Any:
        """The reply of a put, which waits so long for room. Raises QueueFull."""
        link = self._link
        if self._options.max_depth is None or wait == 0:
            return link.call(words, Safe.ONCE, self._db, needs=needs)
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = slice_s(until)
            block = (b"BLOCK", ms_word(left))
            try:
                return link.call([*words, *block], Safe.ONCE, self._db, block=left, needs=needs)
            except QueueFull:
                if until is not None and time.monotonic() >= until:
                    raise

    def put_many(
        self,
        values: Iterable[T],
        *,
        timeout: Duration | None = None,
        **options: Unpack[PutManyOptions],
    ) -> int:
        """Put many jobs, up to 1,000 in one unit. As `Queue.put_many`.

        Returns:
            How many were put.

        Raises:
            EncodeError: The codec cannot encode a value, or it is too large (PayloadTooLarge). Those before it were
                put; `stored` is their number.
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; `stored` values were put, the first ones.
        """
        wait = patience("timeout", timeout)
        until = None if wait is None else time.monotonic() + wait
        given = batch_options(options).words()
        total = 0
        for batch, error in self._batches(values):
            while batch:
                left = None if until is None else max(0.0, until - time.monotonic())
                words = self.words(b"PUTMANY", b"%d" % len(batch), *batch, *given)
                try:
                    stored = self._until_room(words, left)
                except QueueFull as full:
                    full.stored = total
                    raise
                total += stored
                batch = batch[stored:]
            if error is not None:
                if isinstance(error, EncodeError):
                    error.stored = total
                raise error
        return total

    # --- consuming

    def consume(
        self,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        *,
        time_limit: Duration | None = None,
        reraise: bool = False,
    ) -> SharedConsumer[T]:
        """Iterate over jobs. As `Queue.consume`.

        Args:
            worker: The worker's name. After a restart of this process a worker of the same name gets its unfinished
                jobs at once. Without a name, any worker gets them `retry_after` later.

        Returns:
            An iterator of `SharedJob`.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The shared store was closed.
        """
        return SharedConsumer(self, worker, batch, block, time_limit, reraise)

    def get(self, worker: str | None = None, block: Duration | None = None) -> SharedJob[T] | None:
        """Fetch one job. As `Queue.get`.

        Args:
            worker: The worker's name, as in `consume`.
            block: Wait this many seconds (or a timedelta); None = for ever, 0 = not at all.

        Returns:
            The job; None if none came.

        Raises:
            DataError: An argument is invalid.
            StoreClosed: The shared store was closed.
        """
        return next(self.consume(worker, 1, block), None)

    def _worker(self, worker: Any) -> str:
        if self._named_by != os.getpid():
            # a child of a fork has names of its own
            self._own_worker, self._named_by = None, os.getpid()
        return super()._worker(worker)

    def subscribe(self) -> None:
        """Create the group now if it is missing. As `Queue.subscribe`."""
        self._ask(b"SUBSCRIBE")

    def _run_processes(
        self, handler: Callable[[SharedJob[T]], object], count: int, run: dict[str, Any]
    ) -> int:
        # here: few programs start processes
        from tidelog.client.working import run_processes

        return run_processes(self, handler, count, run)

    # --- results

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the result of a job. As `Queue.result`.

        Args:
            job_id: The ID that `put` returned.
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: It has ended without a result, was cancelled, or the result has expired.
            ResultLate: It did not end in time.
            DecodeError: The codec cannot decode the result.
            DataError: An argument is invalid.
        """
        job, wait = job_word(job_id), patience("timeout", timeout)
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = slice_s(until)
            words = [] if wait == 0 else [b"BLOCK", ms_word(left)]
            found = self._ask(b"RESULT", job, *words, block=left)
            if found is None and (until is None or time.monotonic() < until):
                continue
            outcome, *rest = found or (b"LATE",)
            if outcome == b"DONE":
                return rows.decode_result(self._options.codec, rest[0])
            if outcome == b"DEAD":
                raise JobFailed(job_id, rows.shown(rest[1]), rest[0].decode())
            raise no_result(job_id) if outcome == b"NONE" else result_late(job_id)

    # --- looking

    def stats(self) -> Stats:
        """Figures about the queue now."""
        flat = self._ask(b"STATS")
        found = {key.decode(): value for key, value in zip(flat[::2], flat[1::2], strict=True)}
        held = found["in_flight"]
        found["in_flight"] = {
            name.decode(): number for name, number in zip(held[::2], held[1::2], strict=True)
        }
        ranks = found["by_priority"]
        found["by_priority"] = {
            int(rank): number for rank, number in zip(ranks[::2], ranks[1::2], strict=True)
        }
        for name in ("name", "group"):
            found[name] = found[name].decode()
        for name in ("oldest_seconds", "put_per_second", "done_per_second"):
            found[name] = None if found[name] is None else float(found[name])
        return Stats(**found)

    def peek(self, count: int = 10, *, scheduled: bool = False) -> list[WaitingJob]:
        """The next jobs that are due, retries first. They are not delivered.

        Args:
            count: At most this many.
            scheduled: Show the delayed jobs that are not due yet instead, in the order of their times.

        Raises:
            DataError: `count` is not a positive integer.
        """
        codec = self._options.codec
        words = [b"COUNT", count_word("count", count)]
        if scheduled:
            words.append(b"SCHEDULED")
        return [
            rows.waiting_job(codec, ids.parse(job), tuple(row), *due)
            for job, row, *due in self._ask(b"PEEK", *words)
        ]

    def failures(self, job_id: str | None = None, count: int = 100) -> list[Failure]:
        """Recorded failures, newest first.

        Args:
            job_id: Only those of this job.
            count: At most this many.

        Raises:
            DataError: `count` is not a positive integer.
        """
        words = [b"COUNT", count_word("count", count)]
        if job_id is not None:
            words += (b"JOB", named("job_id", job_id))
        return [
            Failure(
                *(job.decode(), rows.moment(ms), worker.decode(), deliveries),
                *(rows.shown(error), rows.shown(trace)),
            )
            for job, ms, worker, deliveries, error, trace in self._ask(b"FAILURES", *words)
        ]

    def __len__(self) -> int:
        """Number of jobs that are not done."""
        return int(self._ask(b"LEN"))

    def __bool__(self) -> bool:
        return True  # an empty queue is a queue

    # --- delayed jobs

    def cancel(self, job_id: str) -> bool:
        """Delete a delayed job. As `Queue.cancel`.

        Args:
            job_id: The ID that `put` returned.

        Returns:
            False if it is no delayed job any more: it became due, or was cancelled.

        Raises:
            DataError: `job_id` is no ID.
        """
        return bool(self._ask(b"CANCEL", job_word(job_id), safe=Safe.ONCE))

    def forget(self, dedup_id: str) -> bool:
        """Free a dedup ID, so that the next put with it adds a job. As `Queue.forget`.

        Args:
            dedup_id: The ID that was given to `put`.

        Returns:
            False if it was free.

        Raises:
            DataError: `dedup_id` is no ID.
            Unsupported: The server is too old; nothing changed.
        """
        words = self.words(b"FORGET", named("dedup_id", dedup_id))
        return bool(self._link.call(words, Safe.ONCE, self._db, needs=DEDUP))

    def move(
        self, job_id: str, *, delay: Duration | None = None, at: datetime | None = None
    ) -> bool:
        """Make a delayed job due at another time. As `Queue.move`.

        Args:
            job_id: The ID that `put` returned.
            delay: Seconds or a timedelta from now.
            at: A datetime with a time zone. Give either this or `delay`. A time in the past means now.

        Returns:
            False if it is no delayed job any more: it became due, or was cancelled.

        Raises:
            DataError: An argument is invalid.
        """
        words = time_words(delay, at)
        if not words:
            raise DataError("move needs the new time: delay or at")
        return bool(self._ask(b"MOVE", job_word(job_id), *words, safe=Safe.ONCE))

    # --- the rest

    def purge(self) -> int:
        """Delete every job that is not in flight. Returns how many."""
        total, more = 0, 1
        while more:
            dropped, more = self._ask(b"PURGE")
            total += dropped
        return total

    def close(self, drain: Duration | None = DRAIN_SECONDS) -> int:
        """Disconnect, as `SharedStore.close`, if `tidelog.queue` connected for this queue. Otherwise do nothing.

        Returns:
            How many jobs were left in the hands of other threads and tasks.

        Raises:
            DataError: `drain` is not a duration.
        """
        return self._store.close(drain) if self._opened_here else 0
