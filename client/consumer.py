"""SharedConsumer: a worker of a shared queue, which takes jobs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from threading import get_ident
from typing import Any, Final, Generic, Protocol

from tidelog.api.closing import Closing
from tidelog.client.base import Base, slice_s
from tidelog.client.errors import ended_elsewhere, error_of
from tidelog.client.job import SharedJob
from tidelog.client.keeper import Held, Queued
from tidelog.client.lane import Lane
from tidelog.client.wire import Wire
from tidelog.engine.api import EntryRow
from tidelog.engine.errors import CommandError
from tidelog.jobs import rows
from tidelog.jobs.options import positive
from tidelog.jobs.own import ms_word
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.confirm import Confirm
from tidelog.jobs.verbs.release import Release
from tidelog.jobs.verbs.take import BATCH_MAX, Take
from tidelog.jobs.verbs.unblock import Unblock
from tidelog.jobs.verbs.verb import Safe
from tidelog.store.commit.callers import Holder
from tidelog.store.durations import patience, seconds
from tidelog.store.errors import DataError, DecodeError, StoreClosed, TidelogError

CONFIRM: Final = b"confirm"  # a capability of servers from version 0.2 on
Entry = tuple[int, int, EntryRow]  # ID, deliveries, row


class Consumed(Queued, Protocol):
    """A queue, as its consumers use it."""

    _store: Base
    _begun: set[bytes]  # workers for which HISTORY was sent

    def _worker(self, worker: Any) -> str:
        """The name of a worker; None = that of the queue itself. Raises DataError."""


class Call:
    """One call of a consumer that waits for jobs.

    lane     its connection, while it asks
    ended    it is to end, whether it asks already or not
    """

    __slots__ = ("lane", "ended")

    def __init__(self) -> None:
        self.lane: Lane | None = None
        self.ended = False


class SharedConsumer(Closing, Generic[T]):
    """An iterator of jobs; `SharedQueue.consume` makes it. As `Consumer`.

    It is closed when it ends, by `close`, or as a context manager. Then jobs that were fetched but not handed out go
    back to the queue at once.
    """

    def __init__(
        self,
        queue: Consumed,
        worker: Any,
        batch: Any,
        block: Any,
        time_limit: Any,
        reraise: bool,
    ) -> None:
        positive("batch", batch)
        if batch > BATCH_MAX:
            raise DataError(f"batch must be at most {BATCH_MAX}, not {batch}")
        self._wait = patience("block", block)
        self.worker = queue._worker(worker)
        self._queue = queue
        self._worked = queue, self.worker.encode()
        limit = None if time_limit is None else seconds("time_limit", time_limit)
        self._request = Take(self._worked[1], batch, queue.lease_s, limit)
        self._words = queue.words(self._request)
        self._gathers = batch > 1
        self._reraise = reraise
        # Once, for the process: the server remembers how far it has come with the jobs of an earlier one.
        self._begins = worker is not None and self._worked[1] not in queue._begun
        self._unseen: deque[Entry] = deque()
        self._popping = iter(self._unseen.popleft, None)  # takes the first one
        # Reentrant, because a signal handler may close a consumer while its thread has the lock.
        self._lock = threading.RLock()
        self._calls: set[Call] = set()  # [lock] those that ask for jobs
        self._closed = False
        queue._keeper.add(self)

    def __repr__(self) -> str:
        return f"<consumer {self.worker!r} of {self._queue.name!r}>"

    def __iter__(self) -> Iterator[SharedJob[T]]:
        return self

    def __next__(self) -> SharedJob[T]:
        handed: list[tuple[SharedJob[T], Entry]] = []
        try:
            job = self.following(handed=handed)
            if job is not None:
                return job
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt: the job was not seen
                self._take_back(handed)
            raise
        raise StopIteration

    def following(
        self,
        holder: Holder | None = None,
        handed: list[tuple[SharedJob[T], Entry]] | None = None,
        call: Call | None = None,
    ) -> SharedJob[T] | None:
        """The next job; None at the end of the iteration.

        Args:
            holder: The task that gets it; None = this thread.
            handed: Gets the job, too, before this call returns.
            call: By this, `interrupt` ends this call alone.

        Raises:
            Unreachable: `interrupt` ended the call.
        """
        me = get_ident() if holder is None else holder
        call = call or Call()
        keeper = self._queue._keeper
        while True:
            if not self._unseen:
                if self._closed or not self._fetch(me, call):
                    self.close()
                    return None
                continue
            if keeper.is_late(self._worked):  # another worker may have got some of them since
                keeper.renew(self._worked)
            entry: Entry | None = None
            try:
                # In one step: an interrupt strikes after a call, before its result is kept.
                for entry in self._popping:
                    if not keeper.holds(self._worked, entry[0], entry[1]):
                        break  # it was lost
                    job = self._job(entry)
                    if job is None:
                        break
                    if handed is not None:
                        handed.append((job, entry))
                    job._show()
                    return job
            except BaseException as error:
                if entry is None and isinstance(error, IndexError):
                    continue  # another thread took it
                if entry is not None and not handed:
                    self._unseen.appendleft(entry)  # it was not seen
                raise

    def _take_back(self, handed: list[tuple[SharedJob[T], Entry]]) -> None:
        """An interrupt struck while a job was handed out: it is unseen again."""
        for job, entry in handed:
            job._show(False)
            self._unseen.appendleft(entry)

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
        made._show()
        made.fail(broken)
        return None

    def _fetch(self, me: Holder, call: Call) -> bool:
        """Get the next jobs. Returns False if none came in time, or the consumer was closed.

        Raises Unreachable if `interrupt` ended it.
        """
        queue = self._queue
        link = queue._link
        if self._gathers:
            queue._keeper.write_finished(self._worked)
        until = None if self._wait is None else time.monotonic() + self._wait
        while not self._closed:
            left = slice_s(until)
            words = self._words
            if self._wait != 0 and left > 0:
                words = [*words, b"BLOCK", ms_word(left)]
            if self._begins:
                words = [*words, b"HISTORY"]
            lane = link.take()
            with self._lock:
                call.lane = lane
                self._calls.add(call)
            try:
                if self._closed:  # before the call was in the list
                    return False
                if call.ended:
                    raise ended_elsewhere()
                came = self._take(lane, words, left, me)
            except TidelogError:
                if self._closed:
                    return False
                raise
            finally:
                with self._lock:
                    call.lane = None
                    self._calls.discard(call)
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

        found = link.call(said, Safe.READ, queue._db, block=block, lane=lane, needs=queue._needs)
        self._begins = False
        queue._begun.add(worker)
        if found is None:
            if lane.ended:
                raise ended_elsewhere()
            return False
        held: list[tuple[int, Held]] = []
        try:
            entries = self._request.result(found)
            held += [(job, Held(number, me)) for job, number, _ in entries]
            queue._keeper.hold(self._worked, held)
            self._unseen.extend(entries)
        except BaseException:
            lane.drop()  # the server takes the jobs back
            for job, one in held:
                queue._keeper.let_go(self._worked, job, one.deliveries)
            raise
        if lane.ended:
            self._give_back()
            raise ended_elsewhere()
        if lane.can(CONFIRM):
            # Before a handler begins. Nobody waits for the reply.
            first, taken = held[0]
            link.post(lane, queue.words(Confirm(worker, [(first, taken.deliveries)])))
        return True

    def _give_back(self) -> None:
        """Return the jobs that were not handed out."""
        queue = self._queue
        taken: list[Entry] = []
        try:
            with suppress(IndexError):  # at the end
                taken.extend(self._popping)
            words: list[list[bytes]] = []
            for job, number, _ in taken:
                words.append(queue.end_words(Release(), self._worked[1], job, number))
                queue._keeper.let_go(self._worked, job, number)
            if words:
                for reply in queue._link.calls(words, Safe.READ, queue._db):
                    if isinstance(reply, CommandError):
                        raise error_of(reply)
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt
                self._unseen.extend(taken)
            raise

    def interrupt(self, call: Call | None = None) -> None:
        """End a call that waits for jobs; None = those of all threads.

        It raises Unreachable, and the next call asks again. A server that can (CONFIRM) answers it, perhaps with jobs
        that came just before, which go back. The connection of a call that it does not answer is broken.
        """
        with self._lock:
            calls = list(self._calls) if call is None else [call]
            lanes: list[tuple[Call, Lane]] = []
            for each in calls:
                each.ended = True
                if each.lane is not None:
                    each.lane.ended = True
                    lanes.append((each, each.lane))
        queue, link = self._queue, self._queue._link
        for each, lane in lanes:
            if time.monotonic() - link.silent_at > link.timeout and lane.can(CONFIRM):
                try:
                    queue._ask(Unblock(lane.name))
                    continue
                except TidelogError:
                    link.silent_at = time.monotonic()
            with self._lock:
                if each.lane is lane:
                    lane.hang_up()

    def __del__(self) -> None:
        try:
            unseen, keeper, worked = self._unseen, self._queue._keeper, self._worked
        except AttributeError:
            return  # an argument was invalid
        for job, number, _ in unseen:
            keeper.put_back(worked, job, number)

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
