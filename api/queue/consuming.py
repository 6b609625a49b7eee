"""Consuming without waiting: the common part of the consumers for threads and for asyncio."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any, ClassVar, Generic

from tidelog.engine.api import Context, EntryRow, Waiter
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.cancels import EndBlock
from tidelog.jobs.settling import Workplace
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.take import checked_batch
from tidelog.jobs.work.ends import log_all_leftovers
from tidelog.jobs.work.fetch import DELIVERED, NO_GROUP, Fetch, Outcome
from tidelog.jobs.work.known import Delivery, Leftover
from tidelog.jobs.work.retention import SWEEP_JOBS
from tidelog.jobs.work.selection import History
from tidelog.store.commit.callers import Caller
from tidelog.store.durations import patience, seconds

log = logging.getLogger("tidelog.queue")


class ConsumerBase(Generic[T]):
    """The common part of both kinds of consumer: a worker's workplace at a queue.

    worker    its name
    """

    _caller_class: ClassVar[type[Caller]]

    def __init__(
        self,
        backend: Any,
        worker: str,
        named: bool,
        batch: Any,
        block: Any,
        time_limit: Any,
        reraise: bool,
        on_retry: Any,
    ) -> None:
        self._batch = 1 if batch.__class__ is int and batch == 1 else checked_batch(batch)
        wait = None if block is None else patience("block", block)
        self.worker = worker
        self._backend = backend  # embedded, for threads or for asyncio
        self._engine = engine = backend.engine
        self._decode = backend.decode
        self._name = worker.encode()
        # To the engine, a timeout of 0 means to wait for ever. To a caller, 0 means not to wait at all; here, None
        # stands for that.
        self._timeout_ms = 0 if wait is None else max(1, round(wait * 1000)) if wait else None
        self._caller = None if self._timeout_ms is None else self._caller_class
        self._time_limit = None if time_limit is None else seconds("time_limit", time_limit)
        self._workplace = Workplace(engine, worker, reraise, on_retry, backend)
        # Only a named worker can have jobs from an earlier process. If it consumed in this process before, it got those
        # jobs then.
        new = named and self._name not in engine.known.returned
        begun = engine.known.begun
        self._history: History | None = begun.setdefault(self._name, {}) if new else None
        self._delivery: Delivery | None = None
        self._fetched: Fetch | None = None  # the last request, for reuse
        self._closed = False
        self._parked: set[Waiter] = set()  # its blocked calls, of any thread
        engine.known.workers[id(self)] = self

    def __repr__(self) -> str:
        return f"<consumer {self.worker!r} of {self._engine.options.name!r}>"

    def _block_ender(self) -> EndBlock | None:
        """Ends the block of a cancelled job; None: no task is in it."""
        return None

    def _value(self, row: EntryRow) -> Any:
        """The value of a job's row, in any form that is valid. Raises DecodeError, which says what is wrong."""
        return rows.decode_row(self._engine.options.codec, row)

    def _park(self, waiter: Waiter) -> None:
        """Note a call of this consumer that is about to wait. Closing the consumer ends the wait, in either order."""
        self._parked.add(waiter)
        if self._closed:
            self._engine.core.dismiss(waiter)

    def _request(self) -> Fetch:
        workplace = self._workplace
        delivery, workplace.spare = workplace.spare, None
        request, self._fetched = self._fetched, None
        if delivery is None:
            engine = self._engine
            delivery = Delivery(engine.known, engine.options, self._name, self._batch > 1)
            if (ends := self._block_ender()) is not None:
                delivery.blocks, delivery.end_block = {}, ends
        if request is None:
            engine = self._engine
            request = Fetch(
                *(engine.known, engine.options, self._name, self._batch, self._timeout_ms),
                *(self._history, self._time_limit),
            )
        request.delivery, request.before = delivery, self._delivery
        return request

    def _broke(self, request: Fetch) -> None:
        """Handle a fetch that raised. Jobs it was given anyway go back at once, with their delivery count: the caller
        may have gone for good, and its exception may keep this consumer alive as long as the process.
        """
        request.failed()
        request.tell_deaths()
        engine, delivery = self._engine, request.delivery
        engine.known.stale()
        if delivery.known.leave(delivery) is None:
            return
        engine.leases.arm()  # if writing fails now, a beat writes it
        try:
            self._write_leftovers()
        except Exception as error:
            # The caller gets the fetch's own error.
            log.debug(
                "queue %s: jobs could not be returned yet: %s", engine.options.name, repr(error)
            )

    def _write_leftovers(self) -> Any:
        """Write what ended deliveries left behind. Returns a promise. If this fails, the leftovers stay listed."""
        engine = self._engine
        options, known = engine.options, engine.known
        left: list[Leftover] = []

        def work(ctx: Context) -> None:
            left.extend(log_all_leftovers(ctx, known, options, known.monotonic()))

        _, promise = engine.ask(known.unit, partial(engine.core.decided, engine.db, work))
        known.dealt_with(left)
        known.made_room()
        return promise

    def _take(self, request: Fetch) -> Delivery:
        """The delivery of a request. From here on only its jobs and this consumer keep it alive."""
        self._fetched, self._history = request, request.history
        delivery = self._delivery = request.delivery
        del request.delivery
        request.before = None
        leases = self._engine.leases
        if not leases.armed:
            leases.arm()
        return delivery

    def _got(self, request: Fetch, reply: Reply) -> Outcome:
        """The outcome of a fetch whose reply holds."""
        outcome = request.landed(reply)
        engine = self._engine
        if engine.known.room:
            engine.known.made_room()
        if outcome is DELIVERED:
            if engine.keeps:
                engine.sweep(SWEEP_JOBS)
        else:
            self._fetched, self._history = request, request.history
            if outcome is NO_GROUP:
                engine.subscribe()
        return outcome

    def _give_back(self) -> Any:
        """Close: wake the blocked calls, return jobs not handed out, write finished ones. Returns a promise or None."""
        self._closed = True
        self._fetched = None  # it may still refer to the last delivery
        engine = self._engine
        for waiter in list(self._parked):
            engine.core.dismiss(waiter)
        delivery, self._delivery = self._delivery, None
        promise = None
        if delivery is not None:
            engine.known.leave(delivery)
            if delivery.known.leftovers:
                promise = self._write_leftovers()
        engine.sweep(1)
        return promise

    def __del__(self) -> None:
        # As in `Delivery.__del__`, do not wait here. The delivery may stay alive, because a caller may still have some
        # of its jobs. So return the jobs that were never handed out to the queue here.
        delivery: Delivery | None = getattr(self, "_delivery", None)
        if delivery is not None and delivery.jobs:
            unseen = delivery.take_unseen()
            delivery.known.leftovers.append(Leftover(delivery, {}, [], unseen))
            for job, _, _ in unseen:
                delivery.open.pop(job, None)
