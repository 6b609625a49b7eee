"""Keeper: tells the server that the jobs of this process are being worked on.

One thread for each shared store, which sleeps while no job is held. On each beat it sends

    QUEUE RENEW      for the jobs that are held; a server that was started meanwhile lends them again
    QUEUE CANCELLED  for those that it held, and does not hold any more
    QUEUE DROP       for the jobs that were dropped unsettled
    QUEUE RELEASE    for the jobs that no handler got, of consumers that were dropped
    QUEUE DONE       for the finished jobs of batches

A connection that breaks starts a beat, so a new server soon knows which jobs are in living hands.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

from tidelog.client.link import Link
from tidelog.jobs.cancels import Cancels
from tidelog.jobs.options import Options
from tidelog.jobs.progress import Reports
from tidelog.jobs.rows import text
from tidelog.jobs.verbs.cancelled import AskCancelled
from tidelog.jobs.verbs.done import Done
from tidelog.jobs.verbs.drop import Drop
from tidelog.jobs.verbs.named import Fences
from tidelog.jobs.verbs.renew import Renew
from tidelog.jobs.verbs.verb import Verb
from tidelog.jobs.work.drops import tell_drop
from tidelog.store.commit.callers import Bell, Holder, is_other
from tidelog.store.errors import StoreClosed, TidelogError, Unreachable

BEAT_S: Final = 1.0  # longest pause between two beats while a job is held
# longest time between two renewals of a lease, by which a worker learns that a job was cancelled
RENEW_S: Final = 1.0
RETRY_S: Final = 1.0  # pause after a beat that failed
AWAY_S: Final = 0.05  # for which the end of a store tries a server again that did not answer in the time of a call
LOOK_S: Final = 0.02  # between two looks of a drain: nothing wakes it when a job is settled
JOBS_MAX: Final = 500  # in one command

log = logging.getLogger("tidelog.queue")


class Queued(Protocol):
    """A queue, as the keeper uses it. See `Remote`."""

    db: int
    options: Options
    beat_s: float
    renew_s: float
    lease_s: float

    def release(self, worker: bytes, fences: Fences) -> list[bool]:
        """Give jobs of a worker back. Raises TidelogError."""

    def ask(self, verb: Verb) -> Any:
        """The result of a request. Raises TidelogError."""


class Closable(Protocol):
    """A consumer, as the keeper uses it."""

    def close(self) -> None:
        """End its iteration, also of a thread that waits for a job."""


Worked = tuple[Queued, bytes]  # a queue and a worker


class InHand:
    """A delivery of a job that this process holds. Its number does not tell it from the next one, if it did not count.

    fence    the job, and the number of the delivery
    holder   the thread or task that took it, or that entered its `with` block last
    lost     the server has said so, or this process has got the job again
    """

    __slots__ = ("fence", "holder", "lost")

    def __init__(self, job: int, deliveries: int, holder: Holder) -> None:
        self.fence, self.holder, self.lost = (job, deliveries), holder, False


class Keeper:
    """The jobs that this process holds of one shared store.

    cancels    those of them that were cancelled, as far as it knows
    reports    the progress of jobs that is still to be recorded
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._bell = Bell()
        self._lock = threading.Lock()
        self._begin()
        link.broke = partial(_broke, weakref.ref(self))

    def _begin(self) -> None:
        self._pid = os.getpid()
        self.cancels, self.reports = Cancels(), Reports()
        self._held: dict[Worked, dict[int, InHand]] = {}
        self._finished: dict[Worked, dict[int, InHand]] = {}
        self._dropped: deque[tuple[Worked, InHand]] = deque()
        self._unseen: deque[tuple[Worked, InHand]] = deque()
        self._thread: threading.Thread | None = None
        self._consumers: weakref.WeakSet[Closable] = weakref.WeakSet()
        self._draining = self._hurried = False
        self._beating = threading.Lock()  # held during a beat
        # monotonic seconds of the last RENEW, or of the first TAKE
        self._renewed: dict[Worked, float] = {}
        self._troubled = self.closed = False
        self._away: Unreachable | None = None  # the last beat found no server
        self._armed = False  # the thread looks again before a lease needs it
        self._at_once = False  # renew all leases in the next beat

    def broke(self) -> None:
        """A connection broke: renew all leases soon."""
        if self._held:
            self._at_once = True
            self._bell.ring()

    def add(self, consumer: Closable) -> None:
        """A consumer was made; a drain closes it. Raises StoreClosed during a drain."""
        with self._mine():
            if self._draining:
                raise StoreClosed("the shared store is being closed and delivers no more jobs")
            self._consumers.add(consumer)

    def drain(self, limit: float | None, me: Holder) -> int:
        """Close all consumers, and wait up to `limit` seconds until no other living thread or task holds a job.

        Returns how many they still hold. `me` cannot settle its own jobs meanwhile, so it does not wait for them.
        """
        with self._mine():
            self._draining = True
            consumers = list(self._consumers)
        until = None if limit is None else time.monotonic() + limit
        for consumer in consumers:
            try:
                consumer.close()
            except TidelogError as error:
                self._gave_up(error)
                log.warning(
                    "jobs of a shared store could not be given back; they are delivered again when their leases end: "
                    "%s",
                    error,
                )
        while (left := self._others(me)) and not self._hurried:
            if all(map(self.is_late, list(self._held))):
                break  # the server is away, and their leases have ended
            if until is not None and time.monotonic() >= until:
                break
            time.sleep(LOOK_S)
        return left

    def _gave_up(self, error: TidelogError) -> None:
        """A call of the closing failed. If the server is away, those that follow do not wait for it again."""
        if isinstance(error, Unreachable):
            self._link.timeout = min(self._link.timeout, AWAY_S)

    def hurry(self) -> None:
        """End the wait of a drain, from another thread."""
        self._hurried = True

    def _others(self, me: Holder) -> int:
        """How many jobs other living threads and tasks hold."""
        with self._lock:
            holders = [held.holder for jobs in self._held.values() for held in jobs.values()]
        return sum(is_other(holder, me) for holder in holders)

    def _mine(self) -> threading.Lock:
        """The lock. In a child of a fork it may be taken for ever, and the jobs are the parent's."""
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._bell = Bell()
            self._begin()
        return self._lock

    # --- for queues and jobs

    def hold(self, worked: Worked, jobs: Iterable[InHand]) -> None:
        """These jobs were taken."""
        with self._mine():
            held = self._held.get(worked)
            if held is None:
                # In this order, because an interrupt may strike between the two, and a beat looks for both.
                self._renewed[worked] = time.monotonic()
                self._held[worked] = {one.fence[0]: one for one in jobs}
            else:
                for one in jobs:
                    before = held.get(one.fence[0])
                    if before is not None:
                        before.lost = True
                    held[one.fence[0]] = one
            if self._armed or self._thread is None and not self._start():
                return
            # In this order, because an interrupt may strike between the two.
            self._bell.ring()
            self._armed = True

    def hold_still(self, worked: Worked, given: InHand) -> None:
        """The job may not have been given back, so it is held as before, unless this process got it again since."""
        if not self.has_again(worked, given):
            self.hold(worked, [given])

    def let_go(self, worked: Worked, one: InHand) -> bool:
        """A delivery was settled, or lost: whether it was held. The worker may have got its job once more since."""
        with self._mine():
            held = self._held.get(worked)
            if held is None or held.get(one.fence[0]) is not one:
                return False
            del held[one.fence[0]]
            if not held:
                del self._held[worked]
                del self._renewed[worked]
            return True

    def finish(self, worked: Worked, one: InHand) -> None:
        """A job of a batch is done; a beat writes it if nothing else does."""
        with self._mine():
            self._finished.setdefault(worked, {})[one.fence[0]] = one

    def drop(self, worked: Worked, one: InHand) -> None:
        """A job was dropped unsettled. From any place, since `__del__` calls it."""
        if self._pid == os.getpid():
            self._dropped.append((worked, one))

    def put_back(self, worked: Worked, one: InHand) -> None:
        """A consumer was dropped before it handed out a job. From any place, since `__del__` calls it."""
        if self._pid == os.getpid():
            self._unseen.append((worked, one))
            self._bell.ring()

    def write_finished(self, worked: Worked) -> None:
        """Mark the finished jobs of a worker as done. Raises TidelogError.

        After any error, those that are not written are finished still.
        """
        queue, worker = worked
        jobs: dict[int, InHand] = {}
        try:
            with self._mine():
                # In this order, so that an interrupt loses none.
                jobs.update(self._finished.get(worked, jobs))
                self._finished.pop(worked, None)
            own = [one.fence for one in jobs.values() if not self.has_again(worked, one)]
            for part in _parts(own):
                held = queue.ask(Done(worker, part))
                if held < len(part):
                    log.warning(
                        "queue: %d of %d jobs of worker %s were done too late, after another worker got or settled "
                        "them",
                        *(len(part) - held, len(part), worker.decode()),
                    )
                    self.find_cancelled(worked, dict(part))
                for job, _ in part:
                    self.let_go(worked, jobs.pop(job))
        except BaseException:
            if jobs:
                with self._lock:
                    self._finished.setdefault(worked, {}).update(jobs)
            raise

    def close(self) -> None:
        """Write what is finished and end the thread."""
        if self._pid != os.getpid() or self.closed:
            return
        # A beat that is under way has taken finished jobs; its calls end in the time of the link.
        waited = self._beating.acquire(timeout=2 * self._link.timeout)
        if self._away is not None:
            self._gave_up(self._away)
        try:
            self.flush()
        finally:
            if waited:
                self._beating.release()
        self.closed = True
        self._bell.ring()
        with self._lock:
            self._held.clear()
            self._renewed.clear()

    def flush(self) -> None:
        """Write the finished jobs, and return those that no handler got, if that can be done."""
        if self.closed or self._pid != os.getpid():
            return
        try:
            self._release_unseen()
        except TidelogError as error:
            self._gave_up(error)
            log.warning("queue: jobs could not be given back: %s", error)
        for worked in list(self._finished):
            try:
                self.write_finished(worked)
            except TidelogError as error:
                self._gave_up(error)
                log.warning("queue: finished jobs could not be written: %s", error)

    def _release_unseen(self) -> None:
        while self._unseen:
            worked, one = self._unseen.popleft()
            self.let_go(worked, one)
            if not one.lost:
                queue, worker = worked
                queue.release(worker, [one.fence])

    # --- the thread

    def _start(self) -> bool:
        """[lock] Start the thread. False if the system gives none: the next job that is taken tries again."""
        if not _keepers:
            atexit.unregister(_flush_all)
            atexit.register(_flush_all)
        _keepers.add(self)
        mine = weakref.ref(self, lambda _: bell.ring())
        bell = self._bell
        thread = threading.Thread(
            target=_run, args=(mine, bell), name="tidelog-shared", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            if not self._troubled:
                log.warning(
                    "the thread that renews leases of a shared store could not be started: %s. Until the next job is "
                    "taken, which tries again, other workers may get the jobs of this process when their leases end",
                    error,
                )
            self._troubled = True
            return False
        self._thread = thread
        return True

    def beat(self, at_once: bool = False) -> float | None:
        """One round. Returns the seconds until the next one, None if nothing is held.

        at_once    renew all leases, whenever that was done last
        """
        if self.closed:
            return None
        with self._beating:
            if self.closed:
                return None
            try:
                failed = self._beat(at_once)
            except StoreClosed:
                return None
            except Unreachable as error:
                failed = self._away = error
            else:
                self._away = None
        if failed is not None:
            if not self._troubled:
                log.warning("leases of a shared store could not be renewed: %s", failed)
            self._troubled = True
            self._at_once = True
            return RETRY_S
        self._troubled = False
        with self._lock:
            if not (self._held or self._finished or self._dropped or self._unseen):
                self._armed = False
                return None
            return min((queue.beat_s for queue, _ in self._held), default=BEAT_S)

    def _beat(self, at_once: bool) -> TidelogError | None:
        """One round. Returns an error, if there was one: a refusal for one queue stops no other one.

        Raises StoreClosed and Unreachable.
        """
        now = time.monotonic()
        at_once |= self._at_once
        self._at_once = False
        failed: TidelogError | None = None

        def tried(call: Callable[..., object], *args: Any) -> None:
            nonlocal failed
            try:
                call(*args)
            except (StoreClosed, Unreachable):
                raise
            except TidelogError as error:
                failed = failed or error

        with self._lock:
            due = [
                worked
                for worked in self._held
                if at_once or now - self._renewed[worked] >= worked[0].renew_s
            ]
        for worked in due:  # first: a write may wait for the disk
            late = self.unrenewed_s(worked)  # now: a beat takes long if the server is away
            if late >= worked[0].lease_s and not self._troubled:
                log.warning(
                    "queue %s: worker %s renewed its leases only after %.1f s, so other workers may have got its jobs. "
                    "This process was stopped, or a call kept the interpreter",
                    *(worked[0].options.name, worked[1].decode(), late),
                )
            tried(self.renew, worked)
        while self._dropped:
            worked, one = self._dropped.popleft()
            self.let_go(worked, one)
            tell_drop(worked[0].options.name, text(one.fence[0]))
            # Not repeated: the server takes the job back anyway when nobody renews it.
            if not one.lost:
                tried(worked[0].ask, Drop(worked[1], [one.fence]))
        tried(self._release_unseen)
        self.reports.flush(time.monotonic())
        for worked in list(self._finished):
            tried(self.write_finished, worked)
        return failed

    def is_late(self, worked: Worked) -> bool:
        """Whether the leases of a worker's jobs may have ended: this process was stopped, or the server is away."""
        return self.unrenewed_s(worked) >= worked[0].lease_s

    def unrenewed_s(self, worked: Worked) -> float:
        """For how many seconds the leases of a worker's jobs were not renewed; 0 if it holds none."""
        renewed = self._renewed.get(worked)
        return 0.0 if renewed is None else time.monotonic() - renewed

    def renew(self, worked: Worked) -> None:
        """Renew the leases of a worker's jobs, and let go of those that were lost. Raises TidelogError."""
        queue, worker = worked
        now = time.monotonic()
        with self._lock:
            seen = list(self._held.get(worked, {}).values())
        kept: set[int] = set()
        for part in _parts(one.fence for one in seen):
            kept.update(queue.ask(Renew(worker, part, queue.lease_s)))
        lost = [one for one in seen if one.fence[0] not in kept]
        for one in lost:
            one.lost = True
            self.let_go(worked, one)
        self.find_cancelled(worked, dict(one.fence for one in lost))
        with self._lock:
            if worked in self._renewed:
                self._renewed[worked] = now

    def find_cancelled(self, worked: Worked, lost: dict[int, int]) -> None:
        """Announce those of these jobs that were cancelled. A server of version 0.1, or none, does not tell."""
        queue, worker = worked
        for part in _parts(lost.items()):
            try:
                found = queue.ask(AskCancelled(worker, part))
            except TidelogError:
                return
            for job in found:
                self.cancels.announce((worked, job, lost[job]))

    def holds(self, worked: Worked, one: InHand) -> bool:
        """Whether a worker holds this delivery, as far as this process knows."""
        return self._held.get(worked, {}).get(one.fence[0]) is one

    def has_again(self, worked: Worked, one: InHand) -> bool:
        """Whether the worker holds a later delivery of the same job."""
        return self._held.get(worked, {}).get(one.fence[0], one) is not one


def _parts(jobs: Iterable[tuple[int, int]]) -> Iterator[Fences]:
    """Jobs and their deliveries, in parts."""
    pairs = iter(jobs)
    while part := list(islice(pairs, JOBS_MAX)):
        yield part


def _broke(mine: weakref.ref[Keeper]) -> None:
    keeper = mine()
    if keeper is not None:
        keeper.broke()


def _run(mine: weakref.ref[Keeper], bell: Bell) -> None:
    pause: float | None = 0.0
    while True:
        keeper = mine()
        if keeper is None or keeper.closed:
            return
        pause = keeper.beat()
        del keeper
        bell.wait(pause)


_keepers: weakref.WeakSet[Keeper] = weakref.WeakSet()


def _flush_all() -> None:
    for keeper in list(_keepers):
        keeper.flush()
