"""SharedJob: one job that this process holds of a shared store."""

from __future__ import annotations

import time
from collections.abc import Hashable
from functools import partial
from typing import Any, Generic, NamedTuple

from tidelog.api.queue.faces import JobFace
from tidelog.client.keeper import InHand, Worked
from tidelog.client.remote import Remote
from tidelog.jobs.cancels import Cancels, EndBlock
from tidelog.jobs.delivered import Delivered, log
from tidelog.jobs.options import Options
from tidelog.jobs.putting import NewJob
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.done import ACK, Done
from tidelog.jobs.verbs.done_and import AckAnd
from tidelog.jobs.verbs.ending import ACKED, GIVEN, LOST, OPEN, Ending
from tidelog.jobs.verbs.progress import Report
from tidelog.jobs.work.known import JobEntry
from tidelog.store.commit.callers import Holder
from tidelog.store.errors import OutcomeUnknown


class Terms(NamedTuple):
    """The terms that all leases of a consumer have in common.

    worker     its name
    worked     the queue and the worker, for the keeper
    gathers    the jobs are of batches
    reraise    whether an exception in a job's block propagates
    on_retry   told of each of its jobs that is to be tried again, or None
    """

    remote: Remote
    worker: str
    worked: Worked
    gathers: bool
    reraise: bool
    on_retry: Any


class Lease:
    """A worker's right to a job of a shared store.

    state    that of the job; GIVEN until it is shown
    value    that of the job, decoded
    """

    __slots__ = ("terms", "entry", "in_hand", "state", "value")

    def __init__(self, terms: Terms, entry: JobEntry, in_hand: InHand) -> None:
        self.terms, self.entry, self.in_hand = terms, entry, in_hand
        self.state = GIVEN
        self.value: Any = None

    def show(self, shown: bool = True) -> None:
        """Whether somebody gets the job. If it is dropped otherwise, its consumer still has it."""
        self.state = OPEN if shown else GIVEN

    def __del__(self) -> None:
        try:
            if self.state is OPEN:
                self.terms.remote.keeper.drop(self.terms.worked, self.in_hand)
        except AttributeError:
            pass  # an interrupt struck during __init__

    def end(self, verb: Ending) -> bool:
        """End the delivery or keep it, as a verb says: whether the worker still held the job."""
        if self.state is not OPEN:
            return self.state is ACKED and verb.name == Done.name
        remote, worked, one = self.terms.remote, self.terms.worked, self.in_hand
        keeper, (job, deliveries) = remote.keeper, one.fence
        if one.lost and keeper.has_again(worked, one):
            self.state = LOST
            return False
        reports = keeper.reports
        if reports.newest and verb.end is GIVEN:
            reports.write((worked, job, deliveries))  # it stays with the job
        # Before the server hears of it: this process may get the job again, as the same delivery, before it reads the
        # reply.
        given = not verb.counted and keeper.let_go(worked, one)
        try:
            if verb.counted:
                sent = remote.end_words(verb, worked[1], job, deliveries)
                held = bool(remote.link.call(sent, verb.safe, remote.db, needs=verb.needs))
            else:
                (held,) = remote.release(worked[1], [one.fence], verb.safe)
        except BaseException:
            if given:
                keeper.hold_still(worked, one)
            raise
        if not verb.counted:
            self.state = verb.end if held else LOST
        elif verb.end is not OPEN or not held:
            self.over(verb.end if held else LOST)
        if not held:
            keeper.find_cancelled(worked, {job: deliveries})
        return held

    def over(self, state: str) -> None:
        """The lease has ended."""
        self.state = state
        self.terms.remote.keeper.let_go(self.terms.worked, self.in_hand)


class Leased(Delivered, Generic[T]):
    """A job of a shared store without waiting: the common part of both faces."""

    entry: JobEntry
    _blocks: dict[int, Any]

    def __init__(self, lease: Lease) -> None:
        self._lease, self.entry = lease, lease.entry
        self.value: T = lease.value
        """The value that was put, decoded by the queue's codec."""

    @property
    def store(self) -> Any:
        """The store of the job, with which its handler can put other jobs."""
        return self._lease.terms.remote.store

    @property
    def worker(self) -> str:
        """Name of the worker that it was delivered to."""
        return self._lease.terms.worker

    @property
    def _state(self) -> str:
        return self._lease.state

    @property
    def _reraises(self) -> bool:
        return self._lease.terms.reraise

    @property
    def _cancels(self) -> Cancels:
        return self._lease.terms.remote.keeper.cancels

    @property
    def _delivery_key(self) -> Hashable:
        lease = self._lease
        return lease.terms.worked, *lease.in_hand.fence

    @property
    def _on_retry(self) -> Any:
        return self._lease.terms.on_retry

    @property
    def _options(self) -> Options:
        return self._lease.terms.remote.options

    def _reports(self, verb: Report) -> bool:
        """Whether the progress may be recorded now. Otherwise a beat does it."""
        lease = self._lease
        reports = lease.terms.remote.keeper.reports
        return reports.is_due(self._delivery_key, time.monotonic(), partial(lease.end, verb))

    def _joined(self, puts: tuple[NewJob, ...]) -> AckAnd:
        return self._lease.terms.remote.joined(puts)

    def _enter(self, holder: Holder) -> None:
        lease = self._lease
        lease.in_hand.holder = holder
        if (ends := self._block_ender()) is not None:
            self._blocks = {self._number: holder}
            call = partial(ends, self._blocks, self._number, holder)
            self._cancels.listen(self._delivery_key, Leased, call)

    def _block_ender(self) -> EndBlock | None:
        """Ends the block of a cancelled job; None: no task is in it."""
        return None

    def _left_block(self) -> Any:
        self._cancels.leave(self._delivery_key, Leased)
        # A program that ends a block by hand may not have begun it.
        blocks: dict[int, Any] = getattr(self, "_blocks", {})
        return blocks.pop(self._number, None)

    def _lose(self) -> None:
        self._lease.over(LOST)

    def _gathers(self) -> bool:
        lease = self._lease
        if lease.terms.gathers:
            lease.state = ACKED
            lease.terms.remote.keeper.finish(lease.terms.worked, lease.in_hand)
        return lease.terms.gathers

    def _unknown(self, error: OutcomeUnknown) -> None:
        self._lease.over(LOST)
        log.warning(
            "queue %s: job %s was done, but perhaps its acknowledgement was not stored; then it is delivered again: %s",
            *(self._options.name, self.id, str(error)),
        )


class SharedJob(Leased[T], JobFace[T]):
    """A job of a shared store. It has the properties and methods of `Job`.

        with job:                 # acknowledged at the end; an exception is recorded, and the job retried
            send(job.value)

    If the connection breaks while a method settles the job, the call is repeated. If it then turns out that this
    process does not hold the job any more, the method raises OutcomeUnknown: the first call may have settled it.
    """

    def _ack(self) -> bool:
        # Without a number: its delivery fences it already, and a worker does this for each job.
        return self._lease.end(ACK)

    def _end(self, verb: Ending) -> bool:
        return self._lease.end(verb)
