"""Job: one delivered job that a worker holds. `Job` is for threads, `AsyncJob` for asyncio."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from random import random
from threading import get_ident
from types import TracebackType
from typing import Any, Final, Generic, Self

from tidelog.engine.api import Context, EntryRow
from tidelog.engine.errors import CommandError
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.durability import Promise
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError, QueueFull, TidelogError, from_command
from tidelog.store.queue import rows
from tidelog.store.queue.base import Prepared, Put, QueueBase
from tidelog.store.queue.consuming import Place
from tidelog.store.queue.lanes import depth_of
from tidelog.store.queue.typed import T
from tidelog.store.queue.work import settle
from tidelog.store.queue.work.deaths import tell
from tidelog.store.queue.work.results import NO_RESULT, RESULT_SECONDS
from tidelog.store.queue.work.shared import Delivery
from tidelog.store.queue.work.shared import Job as Entry

OPEN: Final = "open"
ACKED: Final = "acked"
GIVEN: Final = "given"  # nacked, failed or released
LOST: Final = "lost"  # given to another worker, or settled by one

log = logging.getLogger("tidelog.queue")
Settled = tuple[bool, Promise | None]


class JobBase(Generic[T]):
    """The common part of both kinds of job."""

    __slots__ = ("value", "_place", "_delivery", "_entry", "_state")

    def __init__(self, place: Place, delivery: Delivery, entry: Entry, value: T) -> None:
        self.value = value
        """The value that was put, decoded by the queue's codec."""
        self._place = place
        self._delivery = delivery
        self._entry = entry
        self._state = OPEN

    @property
    def _queue(self) -> QueueBase:
        return self._place.queue

    @property
    def _number(self) -> int:
        return self._entry[0]

    @property
    def _row(self) -> EntryRow:
        return self._entry[1]

    @property
    def deliveries(self) -> int:
        """How often the job was delivered, this delivery included: 1 at the first."""
        return self._entry[2]

    @property
    def id(self) -> str:
        """The job's ID, `ms-seq`."""
        return rows.text(self._number)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that were put with it."""
        return rows.headers_of(self._row) if len(self._row) > 2 else {}

    @property
    def origin(self) -> str | None:
        """The ID that `put` returned, if a delayed or a redriven job has another one since; None for any other."""
        found = rows.fields_of(self._row).get(rows.ORIGIN)
        return None if found is None else rows.shown(found)

    @property
    def priority(self) -> int:
        """The priority that it was put with, from 0 to 9."""
        return rows.priority_of(self._row) if len(self._row) > 2 else 0

    @property
    def key(self) -> str | None:
        """The key that it was put with; None if it has none."""
        return rows.shown_key(self._row) if len(self._row) > 2 else None

    @property
    def enqueued_at(self) -> datetime:
        """When it was put, in UTC."""
        return rows.moment(self._number >> 64)

    @property
    def worker(self) -> str:
        """Name of the worker that it was delivered to."""
        return self._place.worker

    @property
    def state(self) -> str:
        """`open`; `acked`; `given` (back for a retry, or dead); or `lost` to another worker."""
        return self._state

    def __repr__(self) -> str:
        return f"<job {self.id} of {self._queue.name!r}, delivery {self.deliveries}, {self._state}>"

    def __reduce__(self) -> Any:
        raise TypeError(
            "a job cannot be pickled: its lease belongs to this process. Send its value, and settle the job here"
        )

    # --- settling: each method returns whether the worker still had the lease, and the promise to wait for before the
    # caller is told

    def _ack(self) -> Settled:
        if self._state is not OPEN:
            return self._state is ACKED, None
        place, delivery = self._place, self._delivery
        queue = place.queue
        core, shared = queue._core, queue._shared
        number, _, count = self._entry
        try:  # as `_plan`, two calls less
            decide = partial(settle.ack, delivery, number, count)
            done, promise = core.decided(queue._db, decide)
        except CommandError as error:
            shared.stale()
            raise from_command(error) from None
        except BaseException:
            shared.stale()
            raise
        self._state = ACKED if done else LOST
        delivery.open.pop(number, None)
        if done and not (delivery.gathers or delivery.open):
            # The worker's next job will reuse this delivery, so this job must drop its reference. Otherwise a caller
            # that keeps a finished job would keep the next job's lease alive. From now on, settling this job does
            # nothing.
            self._delivery = place.past
            place.spare = delivery
        if shared.room:
            shared.made_room()
        if queue._keeps and done:
            queue._acknowledged(delivery.shared, 1)
        return done, None if queue._face._holds_already(promise) else promise

    def _plan(self, plan: Callable[[settle.Held, Context], Any], end: str) -> Settled:
        """Run one unit of commands that ends this delivery as `end`. OPEN: the delivery goes on."""
        if self._state is not OPEN:
            return False, None
        queue, delivery = self._queue, self._delivery
        held = settle.Held(delivery, self._number, self.deliveries, self._row)
        unit = partial(run_unit, queue._core, queue._db, partial(plan, held))
        reply, promise = queue._ask(delivery.shared.unit, unit)
        if reply is None:
            self._state = LOST
            delivery.settled(self._number)
        elif end is not OPEN:
            self._state = end
            delivery.settled(self._number)
            delivery.shared.made_room()
            if held.dead is not None:
                tell(delivery.options, [held.dead])
        return reply is not None, promise

    def _ack_with(self, result: Any, ttl: Duration) -> Settled:
        queue = self._queue
        return self._acked_with(rows.encode_value(queue._options, result), seconds("ttl", ttl))

    def _acked_with(self, result: bytes, ttl: float) -> Settled:
        ttl_ms = max(1, round(ttl * 1000))
        done = self._plan(lambda held, ctx: settle.done_with(held, ctx, result, ttl_ms), ACKED)
        if done[0]:
            self._queue._acknowledged(self._delivery.shared, 1)
        return done

    def _nack(self, reason: str | BaseException, delay: Duration | None) -> Settled:
        return self._nacked(*rows.evidence(reason), delay)

    def _nacked(self, error: str, trace: str, delay: Duration | None) -> Settled:
        pause = None if delay is None else seconds("delay", delay, zero=True)
        chance = random()
        return self._plan(
            lambda held, ctx: settle.nack(held, ctx, error, trace, pause, chance), GIVEN
        )

    def _fail(self, reason: str | BaseException) -> Settled:
        return self._failed(*rows.evidence(reason))

    def _failed(self, error: str, trace: str) -> Settled:
        return self._plan(lambda held, ctx: settle.fail(held, ctx, error, trace), GIVEN)

    def _release(self) -> Settled:
        return self._plan(settle.release, GIVEN)

    def _extend(self, more: Duration) -> Settled:
        length = seconds("seconds", more)
        done = self._plan(lambda held, ctx: settle.extend(held, ctx, length), OPEN)
        if done[0]:
            delivery = self._delivery
            if delivery.until is not None:
                delivery.until = max(delivery.until, self._queue._core.monotonic() + length)
        return done

    def _done_and(self, puts: Sequence[Put]) -> Settled:
        for put in puts:
            if not isinstance(put, Put):
                raise DataError(
                    f"done_and takes puts made by queue.new(...), not {type(put).__name__!r}"
                )
            if put.queue._core is not self._queue._core:
                raise DataError(
                    f"done_and works within one store; queue {put.queue.name!r} is in another store"
                )
        own = self._queue._db
        if any(put.queue._db != own for put in puts):
            raise DataError("done_and puts only into queues of the job's own database")

        def adds(ctx: Context) -> settle.Words:
            _check_room(ctx, puts, self._queue)
            prepared = Prepared()
            return [words for put in puts for words in put.words(ctx, prepared)]

        done = self._plan(lambda held, ctx: settle.done_and(held, ctx, adds), ACKED)
        if done[0]:
            self._queue._acknowledged(self._delivery.shared, 1)
        return done

    # --- the with block

    def _leave(self, error: BaseException) -> Settled:
        """Settle the job after an exception left its block."""
        if not isinstance(error, (Exception, SystemExit)):
            # KeyboardInterrupt and CancelledError are not failures of the job
            return self._release()
        done = self._nack(error, None)
        if isinstance(error, Exception) and not self._place.reraise:
            log.error(
                "queue %s: job %s failed at delivery %d: %s",
                *(self._queue.name, self.id, self.deliveries, rows.evidence(error)[0]),
                exc_info=error,
            )
        return done

    def _kept(self, failure: TidelogError) -> None:
        """Log that the job could not be given back."""
        log.warning(
            "queue %s: job %s could not be returned; it will be delivered again when its lease ends: %s",
            *(self._queue.name, self.id, str(failure)),  # str: its frames would keep the job
        )

    def _swallows(self, error: BaseException) -> bool:
        return isinstance(error, Exception) and not self._place.reraise

    def _too_late(self, error: BaseException) -> None:
        """Log an exception that left the block after the job was settled; there is nothing to retry."""
        if self._swallows(error):
            log.error(
                "queue %s: job %s was already %s when its block raised: %s",
                *(self._queue.name, self.id, self._state, rows.evidence(error)[0]),
                exc_info=error,
            )

    def _was_lost(self) -> None:
        log.warning(
            "queue %s: job %s was done too late: its lease had been lost to another worker",
            *(self._queue.name, self.id),
        )


def _check_room(ctx: Context, puts: Sequence[Put], own: QueueBase) -> None:
    """Raise QueueFull if a bounded queue has no room for `puts`. The job itself makes room in its own queue."""
    wanted: dict[bytes, list[Put]] = {}
    told: set[tuple[bytes, bytes]] = set()
    for put in puts:
        key, dedup_id = put.queue._key, put.dedup_id
        if (
            put.due is not None
            or put.known(ctx) is not None
            or (dedup_id is not None and (key, dedup_id) in told)
        ):
            continue
        if dedup_id is not None:
            told.add((key, dedup_id))
        wanted.setdefault(key, []).append(put)
    for key, many in wanted.items():
        queue = min((put.queue for put in many), key=_bound)
        most = queue._options.max_depth
        if most is None:
            continue
        there = depth_of(ctx.state, queue._db, queue._options, queue._used(ctx))
        if key == own._key and queue.group == own.group:
            there -= 1
        if there + len(many) > most:
            raise QueueFull(
                f"queue {queue.name!r} has no room for {len(many)} more jobs (max_depth {most}); you still hold the "
                "job"
            )


def _bound(queue: QueueBase) -> float:
    most = queue._options.max_depth
    return float("inf") if most is None else most


class Job(JobBase[T]):
    """A job for threads.

        with job:                 # acknowledged at the end; an exception is recorded, and the job retried
            send(job.value)

    Each method that settles the job returns False, and does nothing, if its lease was lost or it is settled already;
    only `ack` of an acknowledged job returns True. Besides the errors that it names, it may raise StoreClosed,
    StorePoisoned, StoreDamaged, OutOfSpace, UnitTooLarge and OutcomeUnknown.
    """

    __slots__ = ()

    def ack(self, result: Any = NO_RESULT, *, ttl: Duration = RESULT_SECONDS) -> bool:
        """Mark the job as done.

            job.ack(result={"pages": 12})     # the caller who put the job gets it from `Handle.result`

        Args:
            result: Anything that the codec encodes, None too, stored in the same unit. Without it, the job has none.
            ttl: Seconds or a timedelta after which the result is deleted.

        Returns:
            True once the acknowledgement has reached the queue's durability level. False if the lease was lost; then
            no result is stored.

        Raises:
            EncodeError: The codec cannot encode the result; the job stays open.
            DataError: `ttl` is invalid.
        """
        return self._told(self._ack() if result is NO_RESULT else self._ack_with(result, ttl))

    def nack(self, reason: str | BaseException = "", delay: Duration | None = None) -> bool:
        """Record that this delivery failed. The job is retried, or becomes a dead job after the last delivery.

        Args:
            reason: Text or exception to record as evidence.
            delay: Seconds or a timedelta before the retry; None = a pause that grows with each delivery.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `delay` is invalid.
        """
        return self._told(self._nack(reason, delay))

    def fail(self, reason: str | BaseException = "") -> bool:
        """Give the job up at once: it becomes a dead job.

        Args:
            reason: Text or exception to record as evidence.

        Returns:
            False if the lease was lost.
        """
        return self._told(self._fail(reason))

    def release(self) -> bool:
        """Give the job back as if it had not been delivered. It is due at once.

        Returns:
            False if the lease was lost.
        """
        return self._told(self._release())

    def extend(self, seconds: Duration) -> bool:
        """Keep the job from other workers for a while, even if this process ends. Also extends a time limit.

        Args:
            seconds: Seconds or a timedelta from now. An earlier extension that lasts longer stays.

        Returns:
            False if the lease was lost.

        Raises:
            DataError: `seconds` is invalid.
        """
        return self._told(self._extend(seconds))

    def done_and(self, *puts: Put) -> bool:
        """Mark the job as done and put other jobs, in one unit: both happen or neither.

            job.done_and(invoices.new({"order": 7}), mails.new({"to": "ann"}))

        Args:
            *puts: Jobs that `queue.new` made, for queues of the same store and database.

        Returns:
            False if the lease was lost; then nothing was put.

        Raises:
            DataError: An argument is no such job.
            QueueFull: A bounded queue has no room; the job stays open.
        """
        return self._told(self._done_and(puts))

    def _told(self, settled: Settled) -> bool:
        done, promise = settled
        if promise is not None:
            self._queue._face._hold(promise)
        return done

    def __enter__(self) -> Self:
        me = get_ident()
        if self._delivery.holder != me:  # another thread may have taken it
            self._delivery.taken(self._entry[0], me)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            if self._state is OPEN:
                delivery = self._delivery
                if delivery.gathers:  # written with the rest of the batch
                    delivery.finished.append(self._entry[0])
                    self._state = ACKED
                    leases = self._place.queue._leases
                    if not leases.armed:
                        leases.arm()
                else:
                    done, promise = self._ack()  # as `ack`, two calls less
                    if promise is not None:
                        self._place.queue._face._hold(promise)
                    if not done:
                        self._was_lost()
            return False
        if self._state is OPEN:
            try:
                self._told(self._leave(error))
            except TidelogError as failure:
                if isinstance(error, Exception):
                    raise
                self._kept(failure)  # the interrupt propagates
        else:
            self._too_late(error)
        return self._swallows(error)


class AsyncJob(JobBase[T]):
    """A job for asyncio: `async with job:`. It has the methods of `Job`, awaited.

    The change itself is made at once and only the disk is awaited, so a cancelled call has settled the job.
    """

    __slots__ = ()

    async def ack(self, result: Any = NO_RESULT, *, ttl: Duration = RESULT_SECONDS) -> bool:
        """Mark the job as done. As `Job.ack`."""
        return await self._told(self._ack() if result is NO_RESULT else self._ack_with(result, ttl))

    async def nack(self, reason: str | BaseException = "", delay: Duration | None = None) -> bool:
        """Record that this delivery failed. As `Job.nack`."""
        return await self._told(self._nack(reason, delay))

    async def fail(self, reason: str | BaseException = "") -> bool:
        """Give the job up at once: it becomes a dead job. As `Job.fail`."""
        return await self._told(self._fail(reason))

    async def release(self) -> bool:
        """Give the job back as if it had not been delivered. As `Job.release`."""
        return await self._told(self._release())

    async def extend(self, seconds: Duration) -> bool:
        """Keep the job from other workers for a while. As `Job.extend`."""
        return await self._told(self._extend(seconds))

    async def done_and(self, *puts: Put) -> bool:
        """Mark the job as done and put other jobs, in one unit. As `Job.done_and`."""
        return await self._told(self._done_and(puts))

    async def _told(self, settled: Settled) -> bool:
        done, promise = settled
        if promise is not None:
            await self._queue._face._hold(promise)
        return done

    async def __aenter__(self) -> Self:
        me = self._place.queue._here()
        if self._delivery.holder != me:  # another task may have taken it
            self._delivery.taken(self._entry[0], me)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if error is None:
            if self._state is OPEN:
                delivery = self._delivery
                if delivery.gathers:  # written with the rest of the batch
                    delivery.finished.append(self._entry[0])
                    self._state = ACKED
                    leases = self._place.queue._leases
                    if not leases.armed:
                        leases.arm()
                else:
                    done, promise = self._ack()
                    if promise is not None:
                        await self._place.queue._face._hold(promise)
                    if not done:
                        self._was_lost()
            return False
        if self._state is OPEN:
            try:
                await self._told(self._leave(error))
            except TidelogError as failure:
                if isinstance(error, Exception):
                    raise
                self._kept(failure)  # the interrupt propagates
        else:
            self._too_late(error)
        return self._swallows(error)
