"""Through: the job, the store and the queues that a handler sees in a process of its own. Their questions go
through the pipe to the run, which has the store.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Hashable
from typing import Any, Final, NoReturn

from tidelog.api.queue.faces import JobFace, QueueFace
from tidelog.api.queue.running.pipe import ASK, END, Arguments, Joined, Pipe, Task
from tidelog.api.queue.running.plan import PASSING
from tidelog.jobs import rows
from tidelog.jobs.cancels import Cancels
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.options import Options, arguments_of, make_options
from tidelog.jobs.putting import NewJob
from tidelog.jobs.verbs.done import ACK
from tidelog.jobs.verbs.done_and import some_of
from tidelog.jobs.verbs.ending import ACKED, LOST, OPEN, Ending
from tidelog.jobs.verbs.progress import Report
from tidelog.jobs.verbs.put import PutJob
from tidelog.jobs.verbs.result import AskResult
from tidelog.jobs.verbs.verb import Verb
from tidelog.jobs.work.known import JobEntry
from tidelog.store.commit.callers import Holder
from tidelog.store.errors import DataError

cancels: Final = Cancels()  # of this process


def end_at_once() -> NoReturn:
    """The run is gone, and the job with it: kill this process, and what its handlers have started."""
    os.killpg(0, signal.SIGKILL)
    raise AssertionError("killed")


class Parent:
    """The run, as its process asks it. Any thread of the process may."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._asking, self._sending = threading.Lock(), threading.Lock()

    def tell(self, *message: Any) -> None:
        """Send a message that has no answer."""
        try:
            with self._sending:
                self._pipe.send(message)
        except OSError:
            end_at_once()

    def ask(self, *message: Any) -> Any:
        """The answer to a message. Raises what the run says."""
        with self._asking:
            self.tell(*message)
            held, found = self._receive()
        if held:
            return found
        raise found

    def task(self) -> Task | None:
        """The next job; None at the end of the run."""
        with self._asking:
            try:
                found: Task = self._pipe.receive()
            except (EOFError, ConnectionError):
                return None
        return found

    def _receive(self) -> Any:
        try:
            return self._pipe.receive()
        except (EOFError, ConnectionError):
            end_at_once()


class ThroughPut(NewJob):
    """A job that `done_and` is to put."""

    __slots__ = ("queue", "request")

    def __init__(self, queue: Arguments, request: PutJob) -> None:
        self.queue, self.request = queue, request


class Through:
    """See `Backend`. The run asks the real one."""

    kind, puts_directly, opened_here = "isolated-", False, False
    passing: tuple[type[Exception], ...] = PASSING
    unpicklable = "a queue of a job's store cannot be pickled: it belongs to the process of the job"

    def __init__(self, parent: Parent, options: Options) -> None:
        self._parent, self.options, self._queue = parent, options, arguments_of(options)

    def _asked(self, method: str, *args: Any) -> Any:
        return self._parent.ask(ASK, self._queue, method, args)

    def ask(self, verb: Verb) -> Any:
        """See `Backend`."""
        return self._asked("ask", verb)

    def answer(self, request: AskResult, wait: float | None) -> Any:
        """See `Backend`."""
        return self._asked("answer", request, wait)

    def time(self) -> float:
        """See `Backend`."""
        found: float = self._asked("time")
        return found

    def call(self, shape: Any, words: list[Any]) -> Any:
        """See `Backend`."""
        return self._asked("call", shape, words)

    def put(self, request: PutJob, wait: float | None) -> str:
        """See `Backend`."""
        return str(self._asked("put", request, wait))

    def batches(self, options: JobOptions, wait: float | None) -> Any:
        """See `Backend`."""
        return self._asked("batches", options, wait)

    def put_some(self, how: Any, values: list[bytes], before: int) -> int:
        """See `Backend`."""
        return int(self._asked("put_some", how, values, before))

    def new(self, request: PutJob) -> ThroughPut:
        """See `Backend`."""
        return ThroughPut(self._queue, request)


class NoConsumer:
    """In the place of a consumer."""

    def __init__(self, *given: Any) -> None:
        raise DataError(
            "a process of a run takes no jobs itself: the run gives it one after the other"
        )


class IsolatedQueue(QueueFace["IsolatedJob", NoConsumer, Any]):
    """A queue of the store of an `IsolatedJob`. It puts jobs, and answers questions about them."""

    _consumer = NoConsumer


class IsolatedStore:
    """The store of an `IsolatedJob`, which the run has."""

    def __init__(self, parent: Parent) -> None:
        self._parent = parent

    def queue(
        self, name: str, group: str = "workers", *, codec: Any = "json", **options: Any
    ) -> IsolatedQueue:
        """A queue of this store. As `Store.queue`."""
        made = make_options(name, group, codec=codec, **options)
        return IsolatedQueue(self, Through(self._parent, made))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "the store of a job cannot be pickled: it belongs to the process of the job"
        )


class IsolatedJob(JobFace[Any]):
    """A delivered job in a process of its own. It has the properties and methods of `Job`."""

    entry: JobEntry

    def __init__(self, parent: Parent, options: Options, task: Task) -> None:
        """Raises DecodeError."""
        self._parent, self._of = parent, options
        self.entry, self.worker = task.entry, task.worker
        self._now = OPEN
        self.value = rows.decode_row(options.codec, self._row)

    @property
    def store(self) -> IsolatedStore:
        """The store of the job, with which its handler can put other jobs."""
        return IsolatedStore(self._parent)

    @property
    def _state(self) -> str:
        return self._now

    @property
    def _options(self) -> Options:
        return self._of

    @property
    def _reraises(self) -> bool:
        return False

    _cancels = cancels
    _on_retry = None  # the run calls it

    @property
    def _delivery_key(self) -> Hashable:
        return self._number, self.deliveries

    def _reports(self, verb: Report) -> bool:
        return True  # the run decides when it is recorded

    def _ack(self) -> bool:
        return self._end(ACK)

    def _end(self, verb: Ending) -> bool:
        if self._now is not OPEN:
            return self._now is ACKED and verb is ACK
        held = bool(self._parent.ask(END, self._number, verb))
        if verb.end is not OPEN or not held:
            self._now = verb.end if held else LOST
        return held

    def _joined(self, puts: tuple[NewJob, ...]) -> Joined:
        return Joined([(put.queue, put.request) for put in some_of(ThroughPut, puts)])

    def _enter(self, holder: Holder) -> None:
        pass

    def _gathers(self) -> bool:
        return False

    def failed(self, error: BaseException) -> None:
        """The handler has raised."""
        if self._now is OPEN:
            self._leave(error, False)
        else:
            self._too_late(error)
