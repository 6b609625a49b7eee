"""A worker ends the delivery of a job, or keeps the job, without waiting."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from functools import partial
from typing import Any, Final, Generic

from tidelog.engine.errors import CommandError
from tidelog.jobs.cancels import Cancels, delivery_key
from tidelog.jobs.delivered import Delivered
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import Options
from tidelog.jobs.putting import NewJob
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.done_and import DoneAnd
from tidelog.jobs.verbs.ending import ACKED, GIVEN, LOST, OPEN, Ending
from tidelog.jobs.verbs.progress import Report
from tidelog.jobs.work import settle
from tidelog.jobs.work.cancelling import cancelled_among
from tidelog.jobs.work.deaths import tell
from tidelog.jobs.work.known import Delivery, JobEntry
from tidelog.jobs.work.retention import sweep_dead
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.callers import Holder
from tidelog.store.commit.durability import Promise
from tidelog.store.errors import from_command

log = logging.getLogger("tidelog.queue")
Settled = tuple[bool, Promise | None]


class Workplace:
    """A worker's workplace at a queue: what its consumer and its jobs have in common.

    worker     its name
    reraise    whether an exception in a job's block propagates
    on_retry   told of each of its jobs that is to be tried again, or None
    backend    what waits until an end is stored
    spare      a delivery whose only job is done, or None. Deliveries do not refer to it, so there is no cycle
    past       an empty delivery, which replaces that of a job whose delivery became `spare`
    """

    __slots__ = ("engine", "worker", "reraise", "backend", "on_retry", "spare", "past")

    def __init__(
        self, engine: QueueEngine, worker: str, reraise: bool, on_retry: Any, backend: Any
    ) -> None:
        self.engine, self.worker, self.reraise, self.backend = engine, worker, reraise, backend
        self.on_retry = on_retry
        self.spare: Delivery | None = None
        self.past = Delivery(engine.known, engine.options, worker.encode(), False)


def settled(engine: QueueEngine, delivery: Delivery, entry: JobEntry, verb: Ending) -> Settled:
    """End or keep the delivery of a job as a verb says, in one unit: whether the worker held it, and the promise."""
    number, row, count = entry
    held = settle.Held(delivery, number, count, row)
    unit = partial(run_unit, engine.core, engine.db, partial(verb.plan, held))
    reply, promise = engine.ask(delivery.known.unit, unit)
    if reply is None:
        delivery.settled(number)
    elif verb.end is OPEN:
        verb.kept(delivery)
    else:
        delivery.settled(number)
        delivery.known.made_room()
        if held.dead is not None:
            tell(delivery.options, [held.dead])
            sweep_dead(engine.core, engine.db, engine.options)
        if verb.end is ACKED:
            engine.acknowledged(delivery.known, 1)
    return reply is not None, promise


_NO_BLOCKS: Final[dict[int, Any]] = {}


class JobBase(Delivered, Generic[T]):
    """A delivered job of an open store, as its worker ends or keeps it. The faces wait for the promises."""

    __slots__ = ("value", "_workplace", "_delivery", "entry", "_state", "_blocks")
    entry: JobEntry
    _state: str
    _blocks: dict[int, Any]  # those of the delivery while a task is in that of the job

    def __init__(self, workplace: Workplace, delivery: Delivery, entry: JobEntry, value: T) -> None:
        self.value = value
        """The value that was put, decoded by the queue's codec."""
        self._workplace = workplace
        self._delivery = delivery
        self.entry = entry
        self._state = OPEN

    def __del__(self) -> None:
        # The delivery of a batch lives on with its other jobs.
        try:
            if self._state is OPEN and self._delivery.gathers:
                self._delivery.drop(self._number)
        except AttributeError:
            pass  # an interrupt struck during __init__

    @property
    def store(self) -> Any:
        """The store of the job, with which its handler can put other jobs."""
        return self._workplace.backend.store

    @property
    def worker(self) -> str:
        """Name of the worker that it was delivered to."""
        return self._workplace.worker

    @property
    def _reraises(self) -> bool:
        return self._workplace.reraise

    @property
    def _cancels(self) -> Cancels:
        return self._workplace.engine.leases.cancels

    @property
    def _delivery_key(self) -> Hashable:
        return delivery_key(self._delivery.known, self.entry[0], self.entry[2])

    @property
    def _on_retry(self) -> Any:
        return self._workplace.on_retry

    @property
    def _options(self) -> Options:
        return self._workplace.engine.options

    # --- settling: each method returns whether the worker still had the lease, and the promise to wait for before the
    # caller is told

    def _acked(self) -> Settled:
        if self._state is not OPEN:
            return self._state is ACKED, None
        workplace, delivery = self._workplace, self._delivery
        engine = workplace.engine
        core, known = engine.core, engine.known
        number, row, count = self.entry
        try:  # as `settled`, two calls less
            decide = partial(settle.ack, delivery, number, row, count)
            done, promise = core.decided(engine.db, decide)
        except CommandError as error:
            known.stale()
            raise from_command(error) from None
        except BaseException:
            known.stale()
            raise
        if done:
            self._state = ACKED
        else:
            self._not_held()
        delivery.open.pop(number, None)
        if done and not (delivery.gathers or delivery.open):
            # The worker's next job will reuse this delivery, so this job must drop its reference. Otherwise a caller
            # that keeps a finished job would keep the next job's lease alive. From now on, settling this job does
            # nothing.
            self._delivery = workplace.past
            workplace.spare = delivery
        if known.room:
            known.made_room()
        if engine.keeps and done:
            engine.acknowledged(delivery.known, 1)
        return done, promise

    def _settled(self, verb: Ending) -> Settled:
        """End or keep the delivery as a verb says."""
        if self._state is not OPEN:
            return False, None
        reports = self._workplace.engine.leases.reports
        if reports.newest and verb.end is GIVEN:
            reports.write(self._delivery_key)  # it stays with the job
        held, promise = settled(self._workplace.engine, self._delivery, self.entry, verb)
        if not held:
            self._not_held()
        elif verb.end is not OPEN:
            self._state = verb.end
        return held, promise

    def _lose(self) -> None:
        self._state = LOST

    def _not_held(self) -> None:
        """The worker does not hold the job any more. Find out whether it was cancelled."""
        self._state = LOST
        engine, number = self._workplace.engine, self._number
        options = engine.options
        found, _ = engine.core.look(
            lambda state: cancelled_among(state, engine.db, options, (number,))
        )
        if found:
            self._cancels.announce(self._delivery_key)

    def _reports(self, verb: Report) -> bool:
        """Whether the progress may be recorded now. Otherwise a beat does it."""
        leases, engine = self._workplace.engine.leases, self._workplace.engine
        write = partial(settled, engine, self._delivery, self.entry, verb)
        return leases.reports.is_due(self._delivery_key, engine.core.monotonic(), write)

    def _joined(self, puts: tuple[NewJob, ...]) -> DoneAnd:
        return DoneAnd.of(self._workplace.engine, puts)

    # --- the with block

    def _enter(self, holder: Holder) -> None:
        delivery = self._delivery
        if delivery.holder != holder:  # another one may have taken it
            delivery.taken(self.entry[0], holder)
        if delivery.blocks is not None:
            self._blocks = blocks = delivery.blocks
            blocks[self.entry[0]] = holder

    def _left_block(self) -> Any:
        # none: a program may end a block by hand that it has not begun, or the job was settled before
        return getattr(self, "_blocks", _NO_BLOCKS).pop(self.entry[0], None)

    def _gathers(self) -> bool:
        """Note a job of a batch as done. It is written with the rest. Returns False if it is of none."""
        delivery = self._delivery
        if not delivery.gathers:
            return False
        delivery.finished.append(self.entry[0])
        self._state = ACKED
        leases = self._workplace.engine.leases
        if not leases.armed:
            leases.arm()
        return True
