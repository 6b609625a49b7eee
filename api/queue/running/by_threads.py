"""`run` of a queue for threads, open or shared, which lets threads work on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tidelog.api.queue.running.middleware import AsyncMiddleware, Middleware
from tidelog.api.queue.running.plan import count_processes, make_plan
from tidelog.api.queue.running.threads import run_threads
from tidelog.jobs.rows import DeadJob
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError
from tidelog.store.lifetime import DRAIN_SECONDS

J = TypeVar("J")


class RunsThreads(Generic[J]):
    """A queue for threads. J: the class of its jobs."""

    _backend: Any

    def run(
        self,
        handler: Callable[[J], object],
        *,
        workers: int = 4,
        drain: Duration | None = DRAIN_SECONDS,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        time_limit: Duration | None = None,
        results: bool = False,
        on_dead: Callable[[DeadJob], object] | None = None,
        on_retry: Callable[[J, BaseException, float], object] | None = None,
        on_done: Callable[[J, Any], object] | None = None,
        middleware: Sequence[Middleware | AsyncMiddleware] = (),
        processes: int = 1,
        isolate: str | None = None,
        max_jobs: int | None = None,
        max_memory: int | None = None,
    ) -> int:
        """Let threads take jobs, until SIGTERM or Ctrl-C comes. Each job is handled in its `with` block.

            mails.run(lambda job: send(job.value))

        After the signal the workers take no more jobs, and running handlers have `drain` seconds to end. The jobs that
        are left are released: this delivery does not count. A second Ctrl-C releases them at once and raises
        KeyboardInterrupt. The handlers of both signals are changed in the main thread only, and put back; called in
        another thread, the run ends when the store is closed.

        The workers of a shared queue ask again if no server answers, and may be in several processes:

            if __name__ == "__main__":
                mails.run(send, processes=4)

        Then this process takes no jobs. It starts the others, starts one again that ends unexpectedly, and lets all end
        in order at a signal. They import the handler by its name, so it must be a function of a module, or of the
        program's main file if that calls `run` under `if __name__ == "__main__":`. An async function runs in tasks
        there.

        Args:
            handler: Called with each job, in several threads at once. If it raises or exits, the job is retried.
            workers: Number of threads.
            drain: Seconds or a timedelta that running handlers have to end; None = for ever, 0 = none.
            worker: The name of all these workers. As in `consume`.
            batch: As in `consume`.
            block: End after this many seconds (or a timedelta) without a job; None = never, 0 = at once.
            time_limit: Seconds or a timedelta for which the handler may work on a job that was not put with one; None =
                that of the queue. Then the job fails by TimeLimitExceeded. A thread cannot be stopped: it goes on, and
                another one takes its place. The log says where it hangs. With `isolate` its process is killed.
            results: Keep the value that the handler returns as the result of the job, as by `Job.ack`. If the codec
                cannot encode it, the job is dead: a retry would do its work once more.
            on_dead: Called with each job of this group that dies, in a thread of its own, whichever process decided it.
                The position is stored, and all processes of the group share it: usually one call tells of a death, and
                at least one, also after a crash. It is called again after `retry_after` if it raises, or takes longer.
            on_retry: Called with a job, the exception and the seconds before the retry, by the worker, after a failure
                was recorded and if the job will be tried again. After `Job.nack` with a text the exception is a
                RetryJob. This and `on_done` are called at most once, and not if the worker is killed before. Their
                exceptions are logged.
            on_done: Called with a job and what its handler returned, by the worker, after the acknowledgement has
                reached the queue's durability level. It needs a batch of 1.
            middleware: Functions around the handler, outermost first. Each is called with a job and `next`, and returns
                the result, as a rule that of `next(job)`. See `Middleware`.
            processes: Number of processes, each with `workers` workers. 1 = this one. Only a shared queue takes more.
            isolate: "process" = each worker lets a process of its own call the handler, one job after the other, and
                kills it at the limit of time. The handler is imported by its name, and reaches the store by
                `job.store`. A process that ends is the failure of its job alone, by ProcessDied. None = threads call
                the handler.
            max_jobs: The run ends in order after this number of jobs in its process, so that the program can end and be
                started again; None = never. With `processes` above 1 or `isolate`, that process is replaced instead.
            max_memory: Likewise, after a job that leaves the process with more than this number of bytes of memory.

        Returns:
            How many jobs were given back because their handlers did not end in time, in all processes.

        Raises:
            DataError: An argument is invalid, or another process cannot import one of the functions or the codec.
            CannotOpen: The processes cannot open the store; also its subclasses.
            NotStored: The system gives no more threads or processes.
            WorkersHang: Half of the workers hang beyond their limits of time. The run has ended in order.
        """
        run: dict[str, Any] = {"worker": worker, "batch": batch, "block": block}
        run |= {"time_limit": time_limit, "results": results, "on_dead": on_dead}
        run |= {"on_retry": on_retry, "on_done": on_done, "middleware": middleware}
        run |= {"isolate": isolate, "max_jobs": max_jobs, "max_memory": max_memory}
        if count_processes(processes) > 1:
            run |= {"workers": workers, "drain": drain}
            return self._run_processes(handler, processes, run)
        plan = (self, handler, workers, drain)
        return run_threads(make_plan(*plan, asynchronous=False, backend=self._backend, **run))

    def _run_processes(
        self, handler: Callable[[J], object], count: int, run: dict[str, Any]
    ) -> int:
        raise DataError(
            "several processes need a shared queue: tidelog.connect(path).queue(name), or "
            "tidelog.queue(path, name, shared=True)"
        )
