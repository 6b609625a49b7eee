"""Queue: the durable queue for threads.

with tidelog.queue("mail-data", "mails") as mails:
    mails.put({"to": "ann@example.org"})
    for job in mails.consume(block=0):
        with job:
            send(job.value)

Generated from aio.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from typing import Any

from tidelog.api.closing import Closing
from tidelog.api.face import Face, inside
from tidelog.api.queue.consuming import ConsumerBase
from tidelog.api.queue.embedded import Embedded
from tidelog.api.queue.faces import QueueFace
from tidelog.api.queue.job import Job
from tidelog.engine.api import Waiter
from tidelog.engine.errors import CommandError
from tidelog.jobs.options import Options
from tidelog.jobs.rows import VALUE
from tidelog.jobs.typed import T
from tidelog.jobs.work.fetch import DELIVERED, NEXT, NOTHING
from tidelog.jobs.work.known import Delivery
from tidelog.store.commit.callers import ThreadCaller
from tidelog.store.errors import DecodeError, StoreClosed, from_command


class Consumer(ConsumerBase[T], Closing):
    """An iterator of jobs; `Queue.consume` makes it.

    It is closed when it ends, by `close`, or as a context manager. Then jobs that were fetched but not handed
    out go back to the queue at once.
    """

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
                        self._engine.known.leave(delivery)
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
                    try:
                        value = self._decode(row[1]) if row[0] == VALUE else self._value(row)
                    except Exception:
                        value = self._value(row)
                    return Job(self._workplace, delivery, entry, value)
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
            Job(self._workplace, delivery, entry, None).fail(broken)

    def _fetch(self) -> Delivery | None:
        backend = self._backend
        core = backend.core
        while True:
            request = self._request()
            try:
                reply, promise = core.decided(backend.db, request, self._caller)
                if reply.__class__ is Waiter:
                    self._park(parked := reply)
                    try:
                        reply, promise = backend.wait(parked, request.tell_deaths)
                    finally:
                        self._parked.discard(parked)
                if backend.fulfils_each or promise[1] > core.durability.through(
                    promise[0], backend.level
                ):
                    backend.fulfil(promise)
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
                self._backend.fulfil(promise)
        except StoreClosed:
            # Some acknowledgements could not be written. Their jobs will be delivered again.
            pass


class Queue(QueueFace[Job[T], Consumer[T], T]):
    """A durable queue of an open store. `Store.queue` or `tidelog.queue` makes it; many threads may use it at once.

    Besides the errors that it names, any method may raise: ResponseError if one of the queue's keys holds no stream;
    StoreClosed; StorePoisoned; StoreDamaged; and if it writes, OutOfSpace, UnitTooLarge, OutcomeUnknown and, on a
    read-only store, ReadOnlyError. An empty queue is still true.
    """

    _consumer = Consumer

    def __init__(self, store: Face, options: Options, opened_here: bool = False) -> None:
        backend = Embedded(inside(store), options, opened_here)
        super().__init__(store, backend)
        backend.store = store
        self._core, self._engine = backend.core, backend.engine
