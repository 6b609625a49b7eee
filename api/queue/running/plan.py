"""The parts of a run that threads and tasks share: its arguments, its log lines, and the faults it survives."""

from __future__ import annotations

import inspect
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidelog.jobs.rows import evidence, printable
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import DataError, EncodeError, NotStored, OutcomeUnknown, Unreachable

WORKERS_MAX: Final = 1_000  # in one process
PROCESSES_MAX: Final = 256
# a worker whose call found no room on the disk, or no server, asks again after this time
AGAIN_SECONDS: Final = 1.0
PASSING: Final = (NotStored,)
# A shared store outlives its server: the next call finds another one.
SHARED_PASSING: Final = (NotStored, Unreachable, OutcomeUnknown)

log = logging.getLogger("tidelog.worker")


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
    """

    queue: Any
    backend: Any
    handler: Callable[[Any], Any]
    workers: int
    drain: float | None
    consume: dict[str, Any]
    results: bool
    on_dead: Callable[[Any], Any] | None

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
    backend: Any = None,
    **consume: Any,
) -> Plan:
    """Check the arguments of a run. Raises DataError."""
    if not callable(handler):
        raise DataError(f"handler must be a function that takes a job, not {handler!r}")
    if not takes_a_job(handler):
        raise DataError(f"handler must take one argument, the job: {handler!r} does not")
    if is_coroutine(handler) is not asynchronous:
        kind = "run takes a plain function" if not asynchronous else "arun takes an async function"
        other = "arun" if not asynchronous else "run of the queue for threads"
        raise DataError(f"{kind}; for {handler!r} use {other}")
    if on_dead is not None and not (callable(on_dead) and takes_a_job(on_dead)):
        raise DataError(f"on_dead must be a function that takes a dead job, not {on_dead!r}")
    if is_coroutine(on_dead) and not asynchronous:
        raise DataError(f"run calls on_dead in a thread: {on_dead!r} must be a plain function")
    if isinstance(workers, bool) or not isinstance(workers, int) or not 1 <= workers <= WORKERS_MAX:
        raise DataError(f"workers must be an integer from 1 to {WORKERS_MAX:,}, not {workers!r}")
    limit = patience("drain", drain)
    return Plan(queue, backend, handler, workers, limit, consume, results, on_dead)


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


def takes_a_job(handler: Callable[..., Any]) -> bool:
    """Whether the handler can be called with one argument. True if that cannot be told before, as for some builtins."""
    try:
        inspect.signature(handler).bind(None)
    except TypeError:
        return False
    except ValueError:  # it has no signature
        pass
    return True


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

    def done(self, job: Any, began: float) -> None:
        """A job is done."""
        if log.isEnabledFor(logging.DEBUG):
            took = time.monotonic() - began
            self._say(logging.DEBUG, f"job {job.id} took {took:.3f} s", job=job.id, seconds=took)

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

    def no_result(self, job: Any, error: EncodeError) -> None:
        """The codec cannot encode the result of a handler. The job is dead: a retry would do its work once more."""
        name = getattr(self._plan.handler, "__qualname__", repr(self._plan.handler))
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
            *(self._where["queue"], evidence(error)[0], job.id, again_s),
            exc_info=printable(error),
            extra={**self._where, "job": job.original_id},
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
