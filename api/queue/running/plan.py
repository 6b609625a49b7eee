"""The parts of a run that threads and tasks share: its arguments, its log lines, and the faults it survives."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from tidelog.api.queue.running.middleware import Timed, TimedTask, chained, innermost
from tidelog.disk.process import resident_bytes
from tidelog.jobs.options import positive
from tidelog.jobs.rows import evidence, printable
from tidelog.store.durations import Duration, patience, seconds
from tidelog.store.errors import DataError, EncodeError, NotStored, OutcomeUnknown, Unreachable

WORKERS_MAX: Final = 1_000  # in one process
PROCESSES_MAX: Final = 256
# a worker whose call found no room on the disk, or no server, asks again after this time
AGAIN_SECONDS: Final = 1.0
PASSING: Final = (NotStored,)
# A shared store outlives its server: the next call finds another one.
SHARED_PASSING: Final = (NotStored, Unreachable, OutcomeUnknown)

RETRIED: Final = "a job, an error and a delay"

log = logging.getLogger("tidelog.worker")


class Recycled(int):
    """The number of jobs that a run gave back. It ended after `max_jobs` or with `max_memory`, and another process
    is to start it again.
    """


class Spending:
    """Counts the jobs of a run without isolation, and says whether it is to end."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        endless = plan.max_jobs is None and plan.max_memory is None
        self._counts = None if endless or plan.isolate else count(1)
        self.over = False

    def one_more(self) -> str:
        """A job has ended. Returns why the run is to end, once; else ""."""
        if self._counts is None or self.over:
            return ""
        why = self._plan.spent(next(self._counts), os.getpid())
        self.over = bool(why)
        return why

    def result(self, left: int) -> int:
        """The result of the run."""
        return Recycled(left) if self.over else left


@dataclass(frozen=True, slots=True)
class Plan:
    """The arguments of a run, checked.

    queue      of any face; its public methods are enough
    backend    of the queue
    handler    called with each job
    workers    threads or tasks
    drain      seconds that running jobs have after a signal; None = for ever
    consume    the arguments of `consume`
    results    what the handler returns is the result of the job
    on_dead    called with each dead job; None = nobody asks
    on_done    called with each job that was done, and what its handler returned; None = nobody asks
    limit      seconds for which the handler may work on a job that has no limit of its own; None = without limit
    isolate    the handler runs in processes of its own
    max_jobs, max_memory    after this number of jobs, or with more bytes, such a process is replaced, and without
                            isolation the run ends, to be started again in another process; None = never
    """

    queue: Any
    backend: Any
    handler: Callable[[Any], Any]
    workers: int
    drain: float | None
    consume: dict[str, Any]
    results: bool
    on_dead: Callable[[Any], Any] | None
    on_done: Callable[[Any, Any], Any] | None
    limit: float | None = None
    isolate: bool = False
    max_jobs: int | None = None
    max_memory: int | None = None

    @property
    def backends(self) -> list[Any]:
        """Those of its queues: tasks run several at once."""
        found: list[Any] = getattr(self.backend, "backends", [self.backend])
        return found

    def spent(self, jobs: int, pid: int) -> str:
        """Why a process that has done this number of jobs does no more; "" if it may."""
        if self.max_jobs is not None and jobs >= self.max_jobs:
            return f"has done {jobs:,} jobs"
        if self.max_memory is not None and (used := resident_bytes(pid)) > self.max_memory:
            return f"has {used:,} bytes of memory"
        return ""

    def limit_of(self, job: Any) -> float | None:
        """Seconds for which the handler may work on this job; None = without limit."""
        found: float | None = job.time_limit
        if found is None:
            found = self.limit
        return job.queue_options.time_limit if found is None else found

    def backend_of(self, job: Any) -> Any:
        """The backend of the queue of a job, which may be one of several."""
        name = job.queue_options.name
        return next(backend for backend in self.backends if backend.options.name == name)

    def consumers(self) -> list[Any]:
        """The consumers of all workers, which share one name. Raises DataError."""
        return [self.queue.consume(**self.consume) for _ in range(self.workers)]


def make_plan(
    queue: Any,
    handler: Any,
    workers: Any,
    drain: Duration | None,
    *,
    asynchronous: bool,
    results: bool = False,
    on_dead: Any = None,
    on_done: Any = None,
    middleware: Any = (),
    backend: Any = None,
    time_limit: Duration | None = None,
    isolate: Any = None,
    max_jobs: Any = None,
    max_memory: Any = None,
    **consume: Any,
) -> Plan:
    """Check the arguments of a run. Raises DataError."""
    if not callable(handler):
        raise DataError(f"handler must be a function that takes a job, not {handler!r}")
    if not takes(handler, 1):
        raise DataError(f"handler must take one argument, the job: {handler!r} does not")
    if is_coroutine(handler) is not asynchronous:
        kind = "run takes a plain function" if not asynchronous else "arun takes an async function"
        other = "arun" if not asynchronous else "run of the queue for threads"
        raise DataError(f"{kind}; for {handler!r} use {other}")
    check_functions(
        asynchronous,
        batch=consume.get("batch", 1),
        on_dead=on_dead,
        on_retry=consume.get("on_retry"),
        on_done=on_done,
        middleware=middleware,
    )
    around = tuple(middleware)
    if log.isEnabledFor(logging.DEBUG):
        around = ((TimedTask if asynchronous else Timed)(queue.name), *around)
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= WORKERS_MAX:
        raise DataError(f"workers must be an integer from 1 to {WORKERS_MAX:,}, not {workers!r}")
    limit = patience("drain", drain)
    handler = chained(handler, around, asynchronous=asynchronous)
    longest = None if time_limit is None else seconds("time_limit", time_limit)
    if isolate not in (None, "process"):
        raise DataError(f'isolate must be "process" or None, not {isolate!r}')
    if isolate is not None and asynchronous:
        raise DataError("isolate is for a plain function; an async one is cancelled at its limit")
    for name, value in (("max_jobs", max_jobs), ("max_memory", max_memory)):
        if value is not None:
            positive(name, value)
    how = isolate is not None, max_jobs, max_memory
    return Plan(
        queue, backend, handler, workers, limit, consume, results, on_dead, on_done, longest, *how
    )


def count_processes(processes: Any) -> int:
    """The argument `processes` of a run. Raises DataError."""
    whole = isinstance(processes, int) and not isinstance(processes, bool)
    if not whole or not 1 <= processes <= PROCESSES_MAX:
        raise DataError(
            f"processes must be an integer from 1 to {PROCESSES_MAX}, not {processes!r}"
        )
    found: int = processes
    return found


def is_coroutine(handler: Any) -> bool:
    """Whether calling the handler makes a coroutine. It may be an object with such a `__call__`."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)
    )


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with that many arguments. True if that cannot be told before, as for some builtins."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True


def check_functions(
    asynchronous: bool,
    *,
    batch: Any = 1,
    on_dead: Any = None,
    on_retry: Any = None,
    on_done: Any = None,
    middleware: Any = (),
) -> None:
    """Check what a run calls besides its handler. `asynchronous`: the handler is. Raises DataError."""
    check_hook("on_dead", on_dead, 1, "a dead job", asynchronous=asynchronous)
    check_hook("on_retry", on_retry, 3, RETRIED, asynchronous=asynchronous)
    check_hook("on_done", on_done, 2, "a job and its result", asynchronous=asynchronous)
    if on_done is not None and batch != 1:
        raise DataError(
            "on_done needs batch=1: the jobs of a batch are acknowledged together, after they are done"
        )
    if not isinstance(middleware, list | tuple):
        raise DataError(f"middleware must be a list of functions, not {middleware!r}")
    for each in middleware:
        if not (callable(each) and takes(each, 2)):
            raise DataError(
                f"a middleware must be a function that takes a job and `next`, not {each!r}"
            )
        if is_coroutine(each) is not asynchronous:
            kind = "an async function" if asynchronous else "a plain function"
            raise DataError(f"a middleware must be {kind}, as the handler is: {each!r} is not")


def check_hook(name: str, hook: Any, count: int, given: str, *, asynchronous: bool) -> None:
    """Check a function that is called with `count` arguments, which are `given`; None is none. Raises DataError."""
    if hook is not None and not (callable(hook) and takes(hook, count)):
        raise DataError(f"{name} must be a function that takes {given}, not {hook!r}")
    if is_coroutine(hook) and not asynchronous:
        raise DataError(f"{name} is called in a thread: {hook!r} must be a plain function")


class Words:
    """The log lines of a run. Each has the fields `queue` and `worker`, and those about a job `job` too, for
    structured logs.
    """

    def __init__(self, plan: Plan, worker: str) -> None:
        self._plan = plan
        self._where = {"queue": plan.queue.name, "worker": worker}

    def started(self, kind: str) -> None:
        """The workers take jobs."""
        plan = self._plan
        self._say(logging.INFO, f"takes jobs with {plan.workers} {kind}{'s' * (plan.workers != 1)}")

    def stopping(self, reason: str) -> None:
        """No more jobs are taken."""
        drain = self._plan.drain
        limit = "" if drain is None else f" for at most {drain:g} s"
        self._say(logging.INFO, f"{reason}: takes no more jobs and waits for running ones{limit}")

    def ended(self, done: int, left: int) -> None:
        """The run is over: `done` jobs were done, and `left` given back."""
        back = f"; {left:,} were given back" if left else ""
        level = logging.WARNING if left else logging.INFO
        self._say(level, f"ended after {done:,} jobs{back}", done=done, given_back=left)

    def failed(self, job: Any, error: BaseException) -> None:
        """A handler raised what is no Exception. `Job` records it, and the worker goes on."""
        what = f"raised {evidence(error)[0]}"
        if isinstance(error, SystemExit):
            what = f"called sys.exit({error.code!r})"
        self._say(
            logging.ERROR,
            f"the handler of job {job.id} {what}; this counts as a failed delivery",
            job=job.id,
        )

    def hangs(self, job: Any, limit: float, hanging: int) -> None:
        """A handler works for longer than its limit, and cannot be stopped. Its job has failed."""
        self._say(
            logging.ERROR,
            f"the handler of job {job.id} works for more than {limit:g} s, and cannot be stopped; another worker takes "
            f"its place. {hanging} of {self._plan.workers} hang",
            **{"job": job.id, "hanging": hanging},
        )

    def ended_late(self, job: Any, late: float, hanging: int) -> None:
        """A handler that hung has ended after all. Its job had failed before."""
        self._say(
            logging.WARNING,
            f"the handler of job {job.id} has ended, {late:.3f} s after its limit of time; {hanging} hang",
            **{"job": job.id, "hanging": hanging},
        )

    def no_result(self, job: Any, error: EncodeError) -> None:
        """The codec cannot encode the result of a handler. The job is dead: a retry would do its work once more."""
        handler = innermost(self._plan.handler)
        name = getattr(handler, "__qualname__", repr(handler))
        self._say(
            logging.ERROR,
            f"what {name} returned for job {job.id} cannot be kept as its result, so the job is dead; let it return "
            f"what the codec encodes, or leave out `results`: {error}",
            job=job.id,
        )

    def passing(self, error: Exception) -> None:
        """A call failed for a reason that may pass."""
        self._say(logging.WARNING, f"tries again in {AGAIN_SECONDS:g} s: {error}")

    def kept(self, job: Any, error: Exception) -> None:
        """A job could not be given back."""
        self._say(
            logging.WARNING,
            f"job {job.id} could not be given back; it is delivered again when its lease ends: {error}",
            job=job.id,
        )

    def untold(self, job: Any, error: BaseException, again_s: float) -> None:
        """`on_dead` raised."""
        log.error(
            "queue %s: on_dead raised %s for dead job %s; it is called again after %g s",
            *(job.queue, evidence(error)[0], job.id, again_s),
            exc_info=printable(error),
            extra={**self._where, "queue": job.queue, "job": job.original_id},
        )

    def silent(self, error: Exception) -> None:
        """`on_dead` cannot be called, because the deaths cannot be read."""
        self._say(logging.WARNING, f"cannot tell on_dead of dead jobs, and tries again: {error}")

    def end_fork(self, job: Any) -> None:
        """The handler forked, and this is the child, which came back from it. End the child: the store and the job
        belong to the parent.
        """
        self._say(
            logging.ERROR,
            f"the handler of job {job.id} forked and its child returned; the child ends. A child must end by itself, "
            "with os._exit",
            job=job.id,
        )
        os._exit(1)

    def _say(self, level: int, text: str, **fields: Any) -> None:
        queue, worker = self._where.values()
        log.log(level, "queue %s: %s %s", queue, worker, text, extra={**self._where, **fields})
