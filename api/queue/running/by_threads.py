"""`Queue.run`, which lets threads work on a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic

from tidelog.api.queue.job import Job
from tidelog.api.queue.running.plan import count_processes, make_plan
from tidelog.api.queue.running.threads import run_threads
from tidelog.jobs.typed import T
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError
from tidelog.store.lifetime import DRAIN_SECONDS


class RunsThreads(Generic[T]):
    """A queue for threads."""

    def run(
        self,
        handler: Callable[[Job[T]], object],
        *,
        workers: int = 4,
        drain: Duration | None = DRAIN_SECONDS,
        worker: str | None = None,
        batch: int = 1,
        block: Duration | None = None,
        time_limit: Duration | None = None,
        results: bool = False,
        processes: int = 1,
    ) -> int:
        """Let threads take jobs, until SIGTERM or Ctrl-C comes. Each job is handled in its `with` block.

            mails.run(lambda job: send(job.value))

        After the signal the workers take no more jobs, and running handlers have `drain` seconds to end. The jobs that
        are left are released: this delivery does not count. A second Ctrl-C releases them at once and raises
        KeyboardInterrupt. The handlers of both signals are changed in the main thread only, and put back; called in
        another thread, the run ends when the store is closed.

        Args:
            handler: Called with each job, in several threads at once. If it raises or exits, the job is retried.
            workers: Number of threads.
            drain: Seconds or a timedelta that running handlers have to end; None = for ever, 0 = none.
            worker: The name of all these workers. As in `consume`.
            batch: As in `consume`.
            block: End after this many seconds (or a timedelta) without a job; None = never, 0 = at once.
            time_limit: As in `consume`.
            results: Keep the value that the handler returns as the result of the job, as by `Job.ack`.
            processes: 1 here: this process alone has the store open. `SharedQueue.run` takes more.

        Returns:
            How many jobs were given back because their handlers did not end in time.

        Raises:
            DataError: An argument is invalid.
            NotStored: The system gives no more threads.
        """
        if count_processes(processes) > 1:
            raise DataError(
                "several processes need a shared queue: tidelog.connect(path).queue(name), or "
                "tidelog.queue(path, name, shared=True)"
            )
        return run_threads(
            make_plan(
                *(self, handler, workers, drain),
                asynchronous=False,
                worker=worker,
                batch=batch,
                block=block,
                time_limit=time_limit,
                results=results,
            )
        )
