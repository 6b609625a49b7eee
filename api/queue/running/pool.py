"""Pool: the processes of a run with `isolate="process"`, one for each of its workers.

A worker sends each of its jobs to its process, and does for it what needs the store. At the limit of time of the job it
kills the process, with all that this one has started, and starts another one for its next job. A cancel it tells to the
process, and kills it only if the handler has not ended GRACE_SECONDS later.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from tidelog.api.queue.running import pipe as message
from tidelog.api.queue.running import preparing
from tidelog.api.queue.running.hanging import Hanging
from tidelog.api.queue.running.middleware import parts_of
from tidelog.api.queue.running.pipe import Joined, Pipe, Start, Task
from tidelog.api.queue.running.plan import AGAIN_SECONDS, Plan, Words
from tidelog.api.queue.running.preparing import check_importable, preparation
from tidelog.disk.process import environment
from tidelog.jobs.options import arguments_of
from tidelog.jobs.time_limits import ProcessDied, TimeLimitExceeded, exceeded
from tidelog.jobs.verbs.done import Ack, DoneWith
from tidelog.jobs.verbs.ending import Ending
from tidelog.jobs.verbs.extend import Extend
from tidelog.jobs.verbs.progress import Report
from tidelog.jobs.work.results import RESULT_SECONDS
from tidelog.store import errors
from tidelog.store.errors import DataError, EncodeError, NotStored, TidelogError

READY_SECONDS: Final = 60.0  # for the imports of the program
LOOK_SECONDS: Final = (
    1.0  # what a process has forked may hold its pipe open: so look whether it is there
)
GRACE_SECONDS: Final = (
    2.0  # for a process that is to end in order, and for the handler of a cancelled job
)
MODULE: Final = "tidelog.api.queue.running.isolated"


class Pool:
    """The processes of one run."""

    def __init__(self, plan: Plan, words: Words, told: Hanging) -> None:
        """Raises DataError."""
        if preparing.isolated:
            raise DataError(
                'run(isolate="process") was called while one of its processes imported the program; call it under '
                'if __name__ == "__main__":'
            )
        known = [backend.options for backend in plan.backends]
        codecs = [options.codec.given or options.codec.name for options in known]
        check_importable(*parts_of(plan.handler), *(("codec", codec) for codec in codecs))
        queues = [arguments_of(one) | {"codec": codec} for one, codec in zip(known, codecs)]
        self._plan, self._words, self._told = plan, words, told
        self._places = {options.name: place for place, options in enumerate(known)}
        self._start = pickle.dumps(Start(plan.handler, queues, plan.results))
        self._children: list[Child | None] = [None] * plan.workers
        self._queues: dict[bytes, Any] = {}  # those that handlers have used, by their arguments
        self._lock = threading.Lock()
        self._ending = False
        self._struck: list[Child] = []
        self._over = threading.Event()

    def begin(self) -> None:
        """Start the first process, and see whether it can work. Raises NotStored, and what it says."""
        self._children[0] = self._child()

    def work(self, number: int, job: Any, limit: float | None) -> Any:
        """A worker lets its process work on a job, which is settled afterwards unless it is done without a result.

        Returns the result, if a result is kept and `on_done` wants it. If the job is cancelled, its handler has
        GRACE_SECONDS to end.
        Raises TimeLimitExceeded and ProcessDied; and if the job could not be settled, the error of that.
        """
        task = Task(job.entry, job.worker, self._places[job.queue_options.name])
        while True:
            child = self._children[number]
            if child is None:
                try:
                    child = self._children[number] = self._child()
                except TidelogError as error:  # the job did not begin
                    job.release()
                    self._words.passing(error)
                    self._over.wait(AGAIN_SECONDS)
                    return None
            with self._lock:
                if not self._ending:
                    child.busy, child.answered, child.job = True, False, job
                    child.kill_at = None
            if not child.busy:
                self._drop(number)
                return self._left(job)
            try:
                job.on_cancel(partial(self._cancel, child, job))
                if job.cancelled:  # before it began
                    self._free(child)
                    child.busy = False
                    return None
                child.pipe.send(task)
                result = self._converse(child, job, limit)
                self._free(child)
                break
            except BaseException as error:
                self._free(child)  # first: nobody kills a process that is gone
                self._drop(number)
                if self._ending:
                    return self._left(job)
                late = isinstance(error, TimeLimitExceeded)
                if late or child.is_late():
                    self._told.note(job, killed=1)
                if not (late or isinstance(error, EOFError | ConnectionError)):
                    raise
                if job.cancelled:
                    return None
                if late:
                    raise
                if isinstance(error, EOFError) or child.answered:
                    raise ProcessDied(f"the process of the job {child.how_it_ended()}") from None
                # It died before it had read the job, so this did not begin.
        child.busy = False
        child.jobs += 1
        if self._plan.spent(child.jobs, child.pid):
            self._children[number] = None
            child.end()
        return result

    def _free(self, child: Child) -> None:
        with self._lock:
            child.job = None

    def _cancel(self, child: Child, job: Any) -> None:
        """The job was cancelled: tell its process, unless it has another one by now."""
        with self._lock:
            if child.job is job:
                child.tell_cancel(job)

    def _left(self, job: Any) -> None:
        """The run has ended, and gives the job back."""
        self._over.wait()
        if job.state == "open":  # it could not
            raise ProcessDied("the run has ended before the job")

    def _converse(self, child: Child, job: Any, limit: float | None) -> Any:
        """Do what the process asks, until it has done the job. Returns as `work`."""
        until = None if limit is None else time.monotonic() + limit
        unsettled: TidelogError | None = None
        kept: bytes | None = None
        while True:
            look_at = time.monotonic() + LOOK_SECONDS
            ends = [each for each in (until, child.kill_at) if each is not None]
            try:
                kind, *args = child.pipe.receive(min([look_at, *ends]))
            except TimeoutError:
                if child.is_late():
                    raise EOFError from None
                if until is not None and limit is not None and time.monotonic() >= until:
                    if (job.extended_until or until) <= until:
                        raise exceeded(limit) from None
                    until = job.extended_until
                if child.has_ended():
                    raise EOFError from None
                continue
            if kind == message.LOG:
                record = logging.makeLogRecord(args[0])
                logger = logging.getLogger(record.name)
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)
            elif kind == message.END:
                found = self._answered(self._end, job, *args)
                unsettled = None if found[0] else found[1]
                if isinstance(args[1], DoneWith) and found == (True, True):
                    kept = args[1].data
                child.answer(found)
            elif kind == message.ASK:
                child.answer(self._answered(self._asked, *args))
            else:
                break
        if kind == message.DONE:
            if args[0] is not None:
                job.settle(DoneWith(args[0], RESULT_SECONDS))
                kept = args[0]
            if self._plan.on_done is not None and kept is not None:
                return job.queue_options.codec.decode(kept)
        elif kind == message.NO_RESULT:
            error = EncodeError(args[0])
            job.fail(error)
            self._words.no_result(job, error)
        elif kind == message.OVER and job.state == "open":
            raise unsettled or ProcessDied("the failure of the job could not be stored")
        return None

    # --- for the process

    def _answered(self, call: Callable[..., Any], *args: Any) -> tuple[bool, Any]:
        try:
            found = call(*args)
            pickle.dumps(found)
            return True, found
        except TidelogError as error:
            return False, _portable(error)
        except Exception as error:
            return False, DataError(f"a process of a run cannot do this: {error}")

    def _end(self, job: Any, number: int, verb: Ending) -> bool:
        if number != job.entry[0]:
            return False  # a thread of an earlier handler
        if isinstance(verb, Ack):
            return bool(job.ack())
        if isinstance(verb, Report):
            return bool(job.progress(verb.fraction, verb.text))
        if isinstance(verb, Extend):
            return bool(job.extend(verb.length))
        if isinstance(verb, Joined):
            puts = [self._backend(queue).new(request) for queue, request in verb.puts]
            return bool(job.done_and(*puts))
        return bool(job.settle(verb))

    def _asked(self, queue: dict[str, Any], method: str, args: tuple[Any, ...]) -> Any:
        return getattr(self._backend(queue), method)(*args)

    def _backend(self, queue: dict[str, Any]) -> Any:
        key = pickle.dumps(queue)
        with self._lock:
            found = self._queues.get(key)
            if found is None:
                found = self._queues[key] = self._plan.queue.store.queue(**queue)
        return found.backend

    # --- the processes

    def _child(self) -> Child:
        """A process that can work. Raises NotStored, and the error that it says."""
        # that of a store which this process has open
        core = getattr(self._plan.backends[0], "core", None)
        levels = {"": logging.root.level}
        for name, logger in list(logging.root.manager.loggerDict.items()):
            if isinstance(logger, logging.Logger) and logger.level:
                levels[name] = logger.level
        try:
            child = Child()
        except OSError as error:
            raise NotStored(f"a process cannot be started: {error}") from error
        try:
            child.pipe.send(preparation() | {"store": core and core.root, "levels": levels})
            child.pipe.send(self._start)
            until = time.monotonic() + READY_SECONDS
            while (found := child.pipe.receive(until))[0] == message.LOG:
                logging.getLogger(found[1]["name"]).handle(logging.makeLogRecord(found[1]))
        except (OSError, EOFError) as error:
            child.kill()
            how = "is not ready" if isinstance(error, TimeoutError) else child.how_it_ended()
            raise NotStored(f"a process that was to work {how}; its own output says why") from None
        except BaseException:
            child.kill()
            raise
        if found[0] == message.FAILED:
            child.kill()
            kind = getattr(errors, found[1], None)
            text = f"a process of the run cannot work: {found[1]}: {found[2]}"
            if kind is errors.OfParent:
                raise errors.OfParent(found[2], os.getpid())
            raise DataError(text)
        return child

    def _drop(self, number: int) -> None:
        child, self._children[number] = self._children[number], None
        if child is not None:
            child.kill()

    def kill(self) -> None:
        """The run ends: kill the processes that work on. Their workers leave their jobs to the run, until `close`."""
        with self._lock:
            self._ending = True
            self._struck = [child for child in self._children if child is not None and child.busy]
        for child in self._struck:
            child.strike()

    def close(self) -> None:
        """The run has given back the jobs that were left. The processes that are idle end in order."""
        self._over.set()
        idle = [child for child in self._children if child is not None and not child.busy]
        for child in idle:
            child.pipe.close()
        for child in idle:
            child.end()
        for child in self._struck:
            child.gone.wait(GRACE_SECONDS)


class Child:
    """One process.

    jobs        how many it has done
    busy        it has one
    job         that one, until it is done
    answered    and has asked the run for something
    gone        it has ended
    kill_at     monotonic seconds at which it is killed, since its job was cancelled
    """

    def __init__(self) -> None:
        """Raises OSError."""
        self.jobs, self.busy, self.answered = 0, False, False
        self.job: Any = None
        self.kill_at: float | None = None
        self.gone = threading.Event()
        ours, theirs = socket.socketpair()
        line, its_line = socket.socketpair()  # open as long as this process
        self._line = Pipe(line)
        with theirs, its_line:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", MODULE, str(theirs.fileno())],
                    stdin=its_line.fileno(),
                    env=environment(),
                    start_new_session=True,
                    pass_fds=(theirs.fileno(),),
                )
            except BaseException:
                ours.close()
                self._line.close()
                raise
        self.pid = self._process.pid
        self.pipe = Pipe(ours)

    def answer(self, found: object) -> None:
        """Answer what it asked."""
        self.answered = True
        self.pipe.send(found)

    def tell_cancel(self, job: Any) -> None:
        """Its job was cancelled: it has a while to end."""
        self.kill_at = time.monotonic() + GRACE_SECONDS
        with suppress(OSError):  # it has ended
            self._line.send((job.entry[0], job.deliveries))

    def is_late(self) -> bool:
        """Whether the while is over."""
        return self.kill_at is not None and time.monotonic() >= self.kill_at

    def strike(self) -> None:
        """Kill it, and what it has started. A thread that waits for it sees its end."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill it, and what it has started, and forget it."""
        self.strike()
        self._reap()

    def end(self) -> None:
        """Let it end in order."""
        self.pipe.close()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self.strike()
        self._reap()

    def has_ended(self) -> bool:
        """Whether it is gone, whatever it has started."""
        return self._process.poll() is not None

    def how_it_ended(self) -> str:
        """Say in which way it ended, once it has closed its pipe."""
        try:
            code = self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            return f"ended by signal {-code} ({signal.Signals(-code).name})"
        except ValueError:
            return f"ended by signal {-code}"

    def _reap(self) -> None:
        self._process.wait()
        self._line.close()
        self.pipe.close()
        self.gone.set()


def _portable(error: TidelogError) -> TidelogError:
    """The error, or one like it that can be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
        return error
    except Exception:
        return TidelogError(f"{type(error).__name__}: {error}")
