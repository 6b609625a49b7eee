"""SharedQueue: the durable queue of a store that another process serves, for threads. Many processes may share it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from itertools import count, islice
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Generic, Self

from tidelog.api.queue.consuming import BATCH_MAX
from tidelog.api.queue.handle import Handle
from tidelog.api.queue.running.plan import SHARED_PASSING, count_processes, make_plan
from tidelog.api.queue.running.threads import run_threads
from tidelog.client.base import Base
from tidelog.client.dead import SharedDead
from tidelog.client.job import SharedJob, SharedPut
from tidelog.client.keeper import BEAT_S, RENEW_S, Held
from tidelog.client.link import Lane, Safe, ended_elsewhere, error_of
from tidelog.client.wire import Wire
from tidelog.engine import ids
from tidelog.engine.api import EntryRow
from tidelog.engine.errors import CommandError
from tidelog.jobs import rows
from tidelog.jobs.options import Options, job_number, make_options, named, positive, ranked
from tidelog.jobs.putting import BATCH_JOBS, lifetime
from tidelog.jobs.rows import Failure, WaitingJob
from tidelog.jobs.stats import Stats
from tidelog.jobs.typed import T
from tidelog.jobs.units import in_units
from tidelog.jobs.work.later import when
from tidelog.jobs.work.results import no_result, result_late
from tidelog.store.commit.callers import Holder
from tidelog.store.durations import Duration, patience, seconds
from tidelog.store.errors import (
    DataError,
    DecodeError,
    EncodeError,
    JobFailed,
    QueueFull,
    StoreClosed,
    TidelogError,
)
from tidelog.store.lifetime import DRAIN_SECONDS

CONFIRM: Final = b"confirm"  # a capability of servers from version 0.2 on
BLOCK_S: Final = 20.0  # a call that blocks for longer asks again after this time
DEFAULTS: Final = make_options("any")
_numbers = count(1)
Entry = tuple[bytes, int, EntryRow]  # ID, deliveries, row


class SharedQueue(Generic[T]):
    """A durable queue of a shared store. `SharedStore.queue` or `tidelog.queue(..., shared=True)` makes it.

    It has the methods of `Queue`. `len(queue)` is the number of jobs that are not done. An empty queue is still true.

    Any method may raise the errors that `Queue` lists, and Unreachable if no server of the store answers.
    """

    _opened_here = False

    def __init__(self, store: Base, options: Options, codec: Any = None) -> None:
        self._store = store
        self._given_codec = (
            codec  # which other processes can import; that of the options may be a closure
        )
        self._db = store._db
        self._options = options
        self._keeper, self._link = store._keeper, store._link
        self._key = options.key
        self.renew_s = min(RENEW_S, options.retry_after / 6)
        self.beat_s = min(BEAT_S, self.renew_s)
        self.lease_s = options.retry_after / 1.5
        self._beat_ms = b"%d" % max(1, round(self.lease_s * 1000))
        self._words = _option_words(options)
        self._own_worker: str | None = None
        self._begun: set[bytes] = set()  # workers for which HISTORY was sent

    @property
    def name(self) -> str:
        """Name of the queue, the key of its stream."""
        return self._options.name

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._options.group

    @property
    def store(self) -> Any:
        """The shared store that holds the queue."""
        return self._store

    @property
    def dead(self) -> SharedDead:
        """The dead jobs: those that were given up."""
        return SharedDead(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, group {self.group!r}>"

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
        self,
        value: T,
        *,
        dedup_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> Handle:
        """Put one job. As `Queue.put`. If the connection breaks meanwhile, the put is repeated, and adds one job.

        Args:
            value: Anything that the codec encodes.
            dedup_id: As in `Queue.put`.
            headers: As in `Queue.put`.
            timeout: As in `Queue.put`.
            delay: As in `Queue.put`.
            at: As in `Queue.put`.
            ttl: As in `Queue.put`.
            priority: As in `Queue.put`.
            key: As in `Queue.put`.

        Returns:
            The job's ID, `ms-seq`, as `Queue.put` returns it.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; nothing was put.
        """
        put = self.new(
            value,
            dedup_id=dedup_id,
            headers=headers,
            delay=delay,
            at=at,
            ttl=ttl,
            priority=priority,
            key=key,
        )
        words = [b"QUEUE", b"PUT", *put.words]
        id: bytes = self._until_room(words, patience("timeout", timeout))
        return Handle.of(self, id.decode())

    def new(
        self,
        value: T,
        *,
        dedup_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> SharedPut:
        """A job for `SharedJob.done_and` to put.

        Args:
            value: As in `put`.
            dedup_id: As in `put`.
            headers: As in `put`.
            delay: As in `put`.
            at: As in `put`.
            ttl: As in `put`.
            priority: As in `put`.
            key: As in `put`.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
        """
        row = rows.job_row(rows.encode_value(self._options, value), headers)
        words = [self._key, row[1]]
        if len(row) > 2:
            words += (b"HEADERS", b"%d" % ((len(row) - 2) // 2))
            words += [
                word if at % 2 else word.removeprefix(rows.HEADER)
                for at, word in enumerate(row[2:])
            ]
        if dedup_id is not None:
            words += (b"DEDUP", named("dedup_id", dedup_id))
        if delay is not None or at is not None or ttl is not None:
            words += _time_words(delay, at, ttl)
        words += _tail_words(priority, key)
        return SharedPut(self, [*words, *self._words])

    def _until_room(self, words: list[bytes], wait: float | None) -> Any:
        """The reply of a put, which waits so long for room. Raises QueueFull."""
        link = self._link
        if self._options.max_depth is None or wait == 0:
            return link.call(words, Safe.ONCE, self._db)
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = BLOCK_S if until is None else min(BLOCK_S, max(0.001, until - time.monotonic()))
            block = (b"BLOCK", b"%d" % max(1, round(left * 1000)))
            try:
                return link.call([*words, *block], Safe.ONCE, self._db, block=left)
            except QueueFull:
                if until is not None and time.monotonic() >= until:
                    raise

    def put_many(
        self,
        values: Iterable[T],
        *,
        timeout: Duration | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        ttl: Duration | None = None,
        priority: int = 0,
        key: str | None = None,
    ) -> int:
        """Put many jobs, up to 1,000 in one unit. As `Queue.put_many`.

        Args:
            values: Values as `put` takes them.
            timeout: As in `put`, for all of them together.
            delay: As in `put`.
            at: As in `put`.
            ttl: As in `put`.
            priority: As in `put`.
            key: As in `put`.

        Returns:
            How many were put.

        Raises:
            EncodeError: The codec cannot encode a value, or it is too large (PayloadTooLarge). Those before it were
                put; `stored` is their number.
            DataError: Another argument is invalid.
            QueueFull: The queue stayed full until the timeout; `stored` values were put, the first ones.
        """
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise DataError(f"put_many needs an iterable of values, not {type(values).__name__!r}")
        wait = patience("timeout", timeout)
        until = None if wait is None else time.monotonic() + wait
        options = [*_time_words(delay, at, ttl), *_tail_words(priority, key)]
        source = iter(values)
        total = 0
        while True:
            batch: list[bytes] = []
            error: Exception | None = None
            try:
                for value in islice(source, BATCH_JOBS):
                    batch.append(rows.encode_value(self._options, value))
            except Exception as broken:
                error = broken
            if not batch and error is None:
                return total
            for part in in_units(batch, len):
                try:
                    total += self._put_part(part, options, until)
                except QueueFull as full:
                    full.stored += total
                    raise
            if error is not None:
                if isinstance(error, EncodeError):
                    error.stored = total
                raise error

    def _put_part(self, part: list[bytes], options: list[bytes], until: float | None) -> int:
        stored = 0
        while stored < len(part):
            left = part[stored:]
            wait = None if until is None else max(0.0, until - time.monotonic())
            try:
                words = self.words(b"PUTMANY", b"%d" % len(left), *left, *options)
                stored += self._until_room(words, wait)
            except QueueFull as full:
                full.stored = stored
                raise
        return stored

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
            batch: As in `Queue.consume`.
            block: As in `Queue.consume`.
            time_limit: As in `Queue.consume`.
            reraise: As in `Queue.consume`.

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
        if worker is None:
            if self._own_worker is None or not self._own_worker.startswith(_here()):
                self._own_worker = f"{_here()}{next(_numbers)}"
            return self._own_worker
        named("worker", worker)
        name: str = worker
        return name

    def subscribe(self) -> None:
        """Create the group now if it is missing. As `Queue.subscribe`."""
        self._ask(b"SUBSCRIBE")

    def run(
        self,
        handler: Callable[[SharedJob[T]], object],
        *,
        workers: int = 4,
        drain: Duration | None = DRAIN_SECONDS,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        time_limit: Duration | None = None,
        results: bool = False,
        processes: int = 1,
    ) -> int:
        """Let threads take jobs, until SIGTERM or Ctrl-C comes. As `Queue.run`. If no server answers, they ask again.

            if __name__ == "__main__":
                mails.run(send, processes=4)

        With several processes, this one takes no jobs. It starts the others, starts one again that ends unexpectedly,
        and lets all end in order at a signal. They import the handler by its name, so it must be a function of a
        module, or of the program's main file if that calls `run` under `if __name__ == "__main__":`. An async function
        runs in tasks there.

        Args:
            handler: As in `Queue.run`.
            workers: As in `Queue.run`.
            drain: As in `Queue.run`.
            worker: As in `consume`.
            batch: As in `consume`.
            block: As in `Queue.run`.
            time_limit: As in `consume`.
            results: As in `Queue.run`.
            processes: How many processes, with so many workers each. 1 = this process.

        Returns:
            How many jobs were given back because their handlers did not end in time, in all processes.

        Raises:
            DataError: An argument is invalid, or another process cannot import the handler or the codec.
            CannotOpen: The processes cannot open the store; also its subclasses.
            NotStored: The system gives no more threads or processes.
        """
        if count_processes(processes) > 1:
            run = {"workers": workers, "drain": drain, "worker": worker, "batch": batch}
            run |= {"block": block, "time_limit": time_limit, "results": results}
            # here: few programs start processes
            from tidelog.client.working import run_processes

            return run_processes(self, handler, processes, run)
        return run_threads(
            make_plan(
                *(self, handler, workers, drain),
                asynchronous=False,
                passing=SHARED_PASSING,
                worker=worker,
                batch=batch,
                block=block,
                time_limit=time_limit,
                results=results,
            )
        )

    # --- results

    def result(self, job_id: str, timeout: Duration | None = None) -> Any:
        """Wait for the result of a job. As `Queue.result`.

        Args:
            job_id: The ID that `put` returned.
            timeout: Seconds or a timedelta to wait; None = for ever, 0 = not at all.

        Raises:
            JobFailed: The job became a dead job.
            NoResult: It has ended without a result, or the result has expired.
            ResultLate: It did not end in time.
            DecodeError: The codec cannot decode the result.
            DataError: An argument is invalid.
        """
        job, wait = _job_id(job_id), patience("timeout", timeout)
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = BLOCK_S if until is None else min(BLOCK_S, max(0.0, until - time.monotonic()))
            words = [] if wait == 0 else [b"BLOCK", b"%d" % max(1, round(left * 1000))]
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
        words = [b"COUNT", _positive("count", count)]
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
        words = [b"COUNT", _positive("count", count)]
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
        return bool(self._ask(b"CANCEL", _job_id(job_id), safe=Safe.ONCE))

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
        words = _time_words(delay, at, None)
        if not words:
            raise DataError("move needs the new time: delay or at")
        return bool(self._ask(b"MOVE", _job_id(job_id), *words, safe=Safe.ONCE))

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

        Args:
            drain: As in `SharedStore.close`.

        Returns:
            How many jobs were left in the hands of other threads and tasks.

        Raises:
            DataError: `drain` is not a duration.
        """
        return self._store.close(drain) if self._opened_here else 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class SharedConsumer(Generic[T]):
    """An iterator of jobs; `SharedQueue.consume` makes it. As `Consumer`.

    It is closed when it ends, by `close`, or as a context manager. Then jobs that were fetched but not handed out go
    back to the queue at once.
    """

    def __init__(
        self,
        queue: SharedQueue[T],
        worker: Any,
        batch: Any,
        block: Any,
        time_limit: Any,
        reraise: bool,
    ) -> None:
        _positive("batch", batch)
        if batch > BATCH_MAX:
            raise DataError(f"batch must be at most {BATCH_MAX}, not {batch}")
        self._wait = patience("block", block)
        self.worker = queue._worker(worker)
        self._queue = queue
        self._worked = queue, self.worker.encode()
        limit = None if time_limit is None else seconds("time_limit", time_limit)
        words = [b"COUNT", b"%d" % batch, *queue.heartbeat_words()]
        if limit is not None:
            words += (b"LIMIT", b"%d" % max(1, round(limit * 1000)))
        self._words = queue.words(b"TAKE", self._worked[1], *words)
        self._gathers = batch > 1
        self._reraise = reraise
        # Once, for the process: the server remembers how far it has come with the jobs of an earlier one.
        self._begins = worker is not None and self._worked[1] not in queue._begun
        self._unseen: deque[Entry] = deque()
        # Reentrant, because a signal handler may close a consumer while its thread has the lock.
        self._lock = threading.RLock()
        self._lanes: set[Lane] = set()  # [lock] of the calls that wait for jobs
        self._closed = False
        queue._keeper.add(self)

    def __repr__(self) -> str:
        return f"<consumer {self.worker!r} of {self._queue.name!r}>"

    def __iter__(self) -> Iterator[SharedJob[T]]:
        return self

    def __next__(self) -> SharedJob[T]:
        job = self.following()
        if job is None:
            raise StopIteration
        return job

    def following(self, holder: Holder | None = None) -> SharedJob[T] | None:
        """The next job; None at the end of the iteration.

        Args:
            holder: The task that gets it; None = this thread.

        Raises:
            Unreachable: `interrupt` ended the call.
        """
        me = get_ident() if holder is None else holder
        while True:
            if self._unseen and self._queue._keeper.is_late(self._worked):
                self._drop_lost()
            try:
                entry = self._unseen.popleft()
            except IndexError:
                if self._closed or not self._fetch(me):
                    self.close()
                    return None
                continue
            try:
                job = self._job(entry)
            except BaseException:
                self._unseen.appendleft(entry)  # it was not seen
                raise
            if job is not None:
                return job

    def _drop_lost(self) -> None:
        """Forget the jobs that another worker may have got since: this process was stopped for longer than a lease."""
        keeper = self._queue._keeper
        keeper.renew(self._worked)
        for entry in [each for each in self._unseen if not keeper.holds(self._worked, each[0])]:
            with suppress(ValueError):  # another thread has just taken it
                self._unseen.remove(entry)

    def _job(self, entry: Entry) -> SharedJob[T] | None:
        queue = self._queue
        value: Any = None
        broken: DecodeError | None = None
        try:
            value = rows.decode_row(queue._options.codec, entry[2])
        except DecodeError as error:
            broken = error
        made = SharedJob(
            queue, self.worker, entry, value, gathers=self._gathers, reraise=self._reraise
        )
        if broken is None:
            return made
        made.fail(broken)
        return None

    def _fetch(self, me: Holder) -> bool:
        """Get the next jobs. Returns False if none came in time, or the consumer was closed."""
        queue = self._queue
        link = queue._link
        if self._gathers:
            queue._keeper.write_finished(self._worked)
        until = None if self._wait is None else time.monotonic() + self._wait
        while not self._closed:
            left = BLOCK_S if until is None else min(BLOCK_S, until - time.monotonic())
            words = self._words
            if self._wait != 0 and left > 0:
                words = [*words, b"BLOCK", b"%d" % max(1, round(left * 1000))]
            if self._begins:
                words = [*words, b"HISTORY"]
            lane = link.take()
            with self._lock:
                self._lanes.add(lane)
            try:
                if self._closed:  # before the lane was in the list
                    return False
                came = self._take(lane, words, max(0.0, left), me)
            except TidelogError:
                if self._closed:
                    return False
                raise
            finally:
                with self._lock:
                    self._lanes.discard(lane)
                link.give_back(lane)
            if came:
                return True
            if until is not None and time.monotonic() >= until:
                return False
        return False

    def _take(self, lane: Lane, words: list[bytes], block: float, me: Holder) -> bool:
        """One QUEUE TAKE. Returns False if no jobs came. Raises Unreachable if `interrupt` ended it."""
        queue = self._queue
        link, worker = queue._link, self._worked[1]

        def said(wire: Wire) -> list[bytes]:
            return [*words, b"CONFIRM", lane.name] if CONFIRM in wire.can else words

        found = link.call(said, Safe.READ, queue._db, block=block, lane=lane)
        self._begins = False
        queue._begun.add(worker)
        if found is None:
            if lane.ended:
                raise ended_elsewhere()
            return False
        try:
            entries = [(job, number, tuple(row)) for job, number, row in found]
            held = [(job, Held(b"%d" % number, me)) for job, number, _ in entries]
            queue._keeper.hold(self._worked, held)
            self._unseen.extend(entries)
        except BaseException:
            lane.drop()  # the server takes the jobs back
            raise
        if lane.ended:
            self._give_back()
            raise ended_elsewhere()
        if lane.can(CONFIRM):
            # Before a handler begins. Nobody waits for the reply.
            first, one = held[0]
            link.post(lane, queue.words(b"CONFIRM", worker, first, one.deliveries))
        return True

    def _give_back(self) -> None:
        """Return the jobs that were not handed out."""
        queue = self._queue
        words: list[list[bytes]] = []
        while True:
            try:
                job, number, _ = self._unseen.popleft()
            except IndexError:
                break
            deliveries = b"%d" % number
            queue._keeper.let_go(self._worked, job, deliveries)
            words.append(queue.words(b"RELEASE", self._worked[1], job, deliveries))
        if words:
            for reply in queue._link.calls(words, Safe.READ, queue._db):
                if isinstance(reply, CommandError):
                    raise error_of(reply)

    def interrupt(self) -> None:
        """End the calls that wait for jobs, of all threads. They raise Unreachable, and the next call asks again.

        A server that can (CONFIRM) answers them, perhaps with jobs that came just before, which go back. The connection
        of a call that it does not answer is broken.
        """
        with self._lock:
            lanes = list(self._lanes)
            for lane in lanes:
                lane.ended = True
        queue, link = self._queue, self._queue._link
        for lane in lanes:
            if time.monotonic() - link.silent_at > link.timeout and lane.can(CONFIRM):
                try:
                    link.call(queue.words(b"UNBLOCK", lane.name), Safe.READ, queue._db)
                    continue
                except TidelogError:
                    link.silent_at = time.monotonic()
            with self._lock:
                if lane in self._lanes:
                    lane.hang_up()

    def __del__(self) -> None:
        try:
            unseen, keeper, worked = self._unseen, self._queue._keeper, self._worked
        except AttributeError:
            return  # an argument was invalid
        for job, number, _ in unseen:
            keeper.put_back(worked, job, b"%d" % number)

    def close(self) -> None:
        """Stop the iteration, also of a thread that waits for a job. Closing twice is allowed."""
        self._closed = True
        self.interrupt()
        queue = self._queue
        if queue._store.closed:
            return
        try:
            self._give_back()
            queue._keeper.write_finished(self._worked)
        except StoreClosed:
            pass  # these jobs will be delivered again

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _here() -> str:
    """The beginning of the names of this process's workers. A child of a fork has its own."""
    return f"{socket.gethostname()}-{os.getpid()}-shared-"


def _positive(name: str, value: Any) -> bytes:
    positive(name, value)
    return b"%d" % value


def _time_words(delay: Duration | None, at: datetime | None, ttl: Duration | None) -> list[bytes]:
    """The options of QUEUE PUT for a time. Raises DataError."""
    words: list[bytes] = []
    delay_ms, at_ms = when(delay, at)
    if delay_ms is not None:
        words += (b"DELAY", b"%d" % delay_ms)
    if at_ms is not None:
        words += (b"AT", b"%d" % at_ms)
    left = lifetime(ttl)
    if left is not None:
        words += (b"TTL", b"%d" % left)
    return words


def _tail_words(priority: Any, key: Any) -> list[bytes]:
    """The options of QUEUE PUT for a priority and a key. Raises DataError."""
    words = [b"PRIORITY", b"%d" % priority] if ranked(priority) else []
    return words if key is None else [*words, b"KEY", named("key", key)]


def _job_id(job_id: Any) -> bytes:
    return ids.text(job_number(job_id))


def _option_words(options: Options) -> list[bytes]:
    """The options of a queue as words of a command; the defaults are left out, which the server knows."""
    words: list[bytes] = []
    if options.group != DEFAULTS.group:
        words += (b"GROUP", options.group_key)
    if options.retry_after != DEFAULTS.retry_after:
        words += (b"RETRYAFTER", b"%d" % max(1, round(options.retry_after * 1000)))
    if options.max_deliveries != DEFAULTS.max_deliveries:
        words += (b"MAXDELIVERIES", b"%d" % options.max_deliveries)
    if options.max_failures != DEFAULTS.max_failures:
        words += (b"MAXFAILURES", b"%d" % options.max_failures)
    if options.max_depth is not None:
        words += (b"MAXDEPTH", b"%d" % options.max_depth)
    if options.concurrency is not None:
        words += (b"CONCURRENCY", b"%d" % options.concurrency)
    if options.concurrency_per_key is not None:
        words += (b"CONCURRENCYPERKEY", b"%d" % options.concurrency_per_key)
    if options.rate is not None:
        words += (b"RATE", str(options.rate).encode())
    if options.keep_count:
        words += (b"KEEP", b"%d" % options.keep_count)
    if options.keep_seconds:
        words += (b"KEEPMS", b"%d" % round(options.keep_seconds * 1000))
    if options.codec.name != "bytes":  # what commands take and give unless they are told
        words += (b"CODEC", options.codec.name.encode())
    return words
