"""SharedConsumer: a worker of a shared queue, which takes jobs."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from threading import get_ident
from typing import Any, Final, Generic

from tidelog.api.closing import Closing
from tidelog.client.base import slice_s
from tidelog.client.errors import ended_elsewhere, error_of
from tidelog.client.job import Lease, SharedJob, Terms
from tidelog.client.keeper import InHand
from tidelog.client.pooled import Pooled
from tidelog.client.remote import Remote
from tidelog.client.wire import Wire
from tidelog.engine.errors import CommandError
from tidelog.jobs import rows
from tidelog.jobs.own import ms_word
from tidelog.jobs.typed import T
from tidelog.jobs.verbs.confirm import Confirm
from tidelog.jobs.verbs.fail import Fail
from tidelog.jobs.verbs.renew import Renew
from tidelog.jobs.verbs.take import Take, checked_batch
from tidelog.jobs.verbs.unblock import Unblock
from tidelog.jobs.verbs.verb import Safe
from tidelog.jobs.work.known import JobEntry
from tidelog.store.commit.callers import Holder
from tidelog.store.durations import patience, seconds
from tidelog.store.errors import DecodeError, StoreClosed, TidelogError

CONFIRM: Final = b"confirm"  # a capability of servers from version 0.2 on
Taken = tuple[JobEntry, InHand]


class Call:
    """One call of a consumer that waits for jobs.

    pooled   its connection, while it asks
    ended    it is to end, whether it asks already or not
    """

    __slots__ = ("pooled", "ended")

    def __init__(self) -> None:
        self.pooled: Pooled | None = None
        self.ended = False


class SharedConsumer(Closing, Generic[T]):
    """An iterator of jobs; `SharedQueue.consume` makes it. As `Consumer`.

    It is closed when it ends, by `close`, or as a context manager. Then jobs that were fetched but not handed out go
    back to the queue at once.
    """

    def __init__(
        self,
        backend: Remote,
        worker: str,
        named: bool,
        batch: Any,
        block: Any,
        time_limit: Any,
        reraise: bool,
        on_retry: Any,
    ) -> None:
        checked_batch(batch)
        self._wait = patience("block", block)
        self.worker = worker
        self._remote = backend
        self._worked = backend, worker.encode()
        self._terms = Terms(backend, worker, self._worked, batch > 1, reraise, on_retry)
        limit = None if time_limit is None else seconds("time_limit", time_limit)
        self._request = Take(self._worked[1], batch, backend.lease_s, limit)
        self._words = backend.words(self._request)
        # Once, for the process: the server remembers how far it has come with the jobs of an earlier one.
        self._begins = named and self._worked[1] not in backend.begun
        self._unseen: deque[Taken] = deque()
        self._popping = iter(self._unseen.popleft, None)  # takes the first one
        # Reentrant, because a signal handler may close a consumer while its thread has the lock.
        self._lock = threading.RLock()
        self._calls: set[Call] = set()  # [lock] those that ask for jobs
        self._closed = False
        backend.keeper.add(self)

    def __repr__(self) -> str:
        return f"<consumer {self.worker!r} of {self._remote.options.name!r}>"

    def __iter__(self) -> Iterator[SharedJob[T]]:
        return self

    def __next__(self) -> SharedJob[T]:
        handed: list[tuple[Lease, Taken]] = []
        try:
            found = self.following(handed=handed)
            if found is not None:
                job: SharedJob[T] = SharedJob(found)  # kept before it leaves the `try`
                return job
        except BaseException as error:
            if not isinstance(error, Exception):  # an interrupt: the job was not seen
                self._take_back(handed)
            raise
        raise StopIteration

    def following(
        self,
        holder: Holder | None = None,
        handed: list[tuple[Lease, Taken]] | None = None,
        call: Call | None = None,
    ) -> Lease | None:
        """The lease of the next job; None at the end of the iteration.

        Args:
            holder: The task that gets it; None = this thread.
            handed: Gets its lease, too, before this call returns.
            call: By this, `interrupt` ends this call alone.

        Raises:
            Unreachable: `interrupt` ended the call.
        """
        me = get_ident() if holder is None else holder
        call = call or Call()
        keeper = self._remote.keeper
        while True:
            if not self._unseen:
                if self._closed or not self._fetch(me, call):
                    self.close()
                    return None
                continue
            if keeper.is_late(self._worked):  # another worker may have got some of them since
                keeper.renew(self._worked)
            taken: Taken | None = None
            try:
                # In one step: an interrupt strikes after a call, before its result is kept.
                for taken in self._popping:
                    if not keeper.holds(self._worked, taken[1]):
                        break  # it was lost
                    found = self._leased(taken)
                    if found is None:
                        break
                    if handed is not None:
                        handed.append((found, taken))
                    found.show()
                    return found
            except BaseException as error:
                if taken is None and isinstance(error, IndexError):
                    continue  # another thread took it
                if taken is not None and not handed:
                    self._unseen.appendleft(taken)  # it was not seen
                raise

    def _take_back(self, handed: list[tuple[Lease, Taken]]) -> None:
        """An interrupt struck while a job was handed out: it is unseen again."""
        for lease, taken in handed:
            lease.show(False)
            self._unseen.appendleft(taken)

    def _leased(self, taken: Taken) -> Lease | None:
        lease = Lease(self._terms, *taken)
        try:
            lease.value = rows.decode_row(self._remote.options.codec, taken[0][1])
            return lease
        except DecodeError as error:
            broken = error
        lease.show()
        lease.end(Fail.of(broken))
        return None

    def _fetch(self, me: Holder, call: Call) -> bool:
        """Get the next jobs. Returns False if none came in time, or the consumer was closed.

        Raises Unreachable if `interrupt` ended it.
        """
        link, keeper = self._remote.link, self._remote.keeper
        if self._terms.gathers:
            keeper.write_finished(self._worked)
        until = None if self._wait is None else time.monotonic() + self._wait
        while not self._closed:
            left = slice_s(until)
            words = self._words
            if self._wait != 0 and left > 0:
                words = [*words, b"BLOCK", ms_word(left)]
            if self._begins:
                words = [*words, b"HISTORY"]
            pooled = link.take()
            with self._lock:
                call.pooled = pooled
                self._calls.add(call)
            try:
                if self._closed:  # before the call was in the list
                    return False
                if call.ended:
                    raise ended_elsewhere()
                came = self._take(pooled, words, left, me)
            except TidelogError:
                if self._closed:
                    return False
                raise
            finally:
                with self._lock:
                    call.pooled = None
                    self._calls.discard(call)
                link.give_back(pooled)
            if came:
                return True
            if until is not None and time.monotonic() >= until:
                return False
        return False

    def _take(self, pooled: Pooled, words: list[bytes], block: float, me: Holder) -> bool:
        """One QUEUE TAKE. Returns False if no jobs came. Raises Unreachable if `interrupt` ended it."""
        queue = self._remote
        link, worker = queue.link, self._worked[1]

        def said(wire: Wire) -> list[bytes]:
            return [*words, b"CONFIRM", pooled.name] if CONFIRM in wire.can else words

        asked = time.monotonic()
        found = link.call(said, Safe.READ, queue.db, block=block, pooled=pooled, needs=queue.needs)
        self._begins = False
        queue.begun.add(worker)
        if found is None:
            if pooled.ended:
                raise ended_elsewhere()
            return False
        confirms = pooled.can(CONFIRM)
        late = confirms and time.monotonic() - asked >= queue.lease_s
        held: list[InHand] = []
        try:
            entries = self._request.result(found)
            if late:
                entries = self._confirmed(pooled, entries)
                if not entries:
                    return False
            held += [InHand(job, number, me) for job, _, number in entries]
            queue.keeper.hold(self._worked, held)
            self._unseen.extend(zip(entries, held))
        except BaseException:
            try:
                for one in held:
                    queue.keeper.let_go(self._worked, one)
            finally:
                pooled.drop()  # the server takes the jobs back, and another thread may get them at once
            raise
        if pooled.ended:
            self._give_back()
            raise ended_elsewhere()
        if confirms and not late:
            # Before a handler begins. Nobody waits for the reply.
            link.post(pooled, queue.words(Confirm(worker, [held[0].fence])))
        return True

    def _confirmed(self, pooled: Pooled, entries: list[JobEntry]) -> list[JobEntry]:
        """Those of the jobs that are this worker's still. The server knows then that a handler begins with them.

        The server counts the lease from within the call that took them. If this process was stopped since, the lease
        may have ended, and others may have the jobs, perhaps by deliveries of the same number: no handler had begun.
        """
        queue, worker = self._remote, self._worked[1]
        fences = [(job, number) for job, _, number in entries]
        words = [queue.words(Confirm(worker, [fence])) for fence in fences]
        # Sent together, so that nobody gets a job whose lease has ended between the two.
        words.append(queue.words(Renew(worker, fences, queue.lease_s)))
        replies = queue.link.calls(words, Safe.READ, queue.db, pooled=pooled)
        for reply in replies:
            if isinstance(reply, CommandError):
                raise error_of(reply)
        return [entry for entry, held in zip(entries, replies[:-1], strict=True) if held]

    def _give_back(self) -> None:
        """Return the jobs that were not handed out."""
        queue = self._remote
        taken: list[Taken] = []
        try:
            with suppress(IndexError):  # at the end
                taken.extend(self._popping)
            for _, one in taken:
                queue.keeper.let_go(self._worked, one)
            fences = [one.fence for _, one in taken if not one.lost]
            if fences:
                queue.release(self._worked[1], fences)
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
            connections: list[tuple[Call, Pooled]] = []
            for each in calls:
                each.ended = True
                if each.pooled is not None:
                    each.pooled.ended = True
                    connections.append((each, each.pooled))
        queue, link = self._remote, self._remote.link
        for each, pooled in connections:
            if time.monotonic() - link.silent_at > link.timeout and pooled.can(CONFIRM):
                try:
                    queue.ask(Unblock(pooled.name))
                    continue
                except TidelogError:
                    link.silent_at = time.monotonic()
            with self._lock:
                if each.pooled is pooled:
                    pooled.hang_up()

    def __del__(self) -> None:
        try:
            unseen, keeper, worked = self._unseen, self._remote.keeper, self._worked
        except AttributeError:
            return  # an argument was invalid
        for _, one in unseen:
            keeper.put_back(worked, one)

    def close(self) -> None:
        """Stop the iteration, also of a thread that waits for a job. Closing twice is allowed."""
        self._closed = True
        self.interrupt()
        queue = self._remote
        if queue.link.closed:
            return
        try:
            self._give_back()
            queue.keeper.write_finished(self._worked)
        except StoreClosed:
            pass  # these jobs will be delivered again
