"""A run of workers that are threads.

Each worker takes jobs of its own consumer, one after the other. The caller sleeps until the workers have ended, or
until a signal comes. Then it closes the consumers, which ends the waits for jobs, and waits for the handlers that run.
The jobs that are left are released: the delivery does not count. Their threads cannot be stopped. They are daemons, so
they do not hold up the end of the process, and all that they still do with their jobs does nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

from tidelog.aof.errors import NoThread
from tidelog.aof.threads import start
from tidelog.api.queue.hooks import call_hook
from tidelog.api.queue.running.hanging import Hanging
from tidelog.api.queue.running.plan import AGAIN_SECONDS, Plan, Spending, Words
from tidelog.api.queue.running.signals import News, Signals
from tidelog.api.queue.running.telling import LOOK_S, Teller
from tidelog.api.queue.running.watch import Watch, Working
from tidelog.jobs.time_limits import HALF, WorkersHang
from tidelog.store.errors import EncodeError, NotStored, StoreClosed, TidelogError


def run_threads(plan: Plan) -> int:
    """Take jobs until a signal comes, the store is closed, or every consumer has ended. Returns how many jobs were
    given back. Raises the error that ended a worker.
    """
    return _Run(plan).run()


class _Run:
    """One run.

    news     the name of a signal, or None for a worker that has ended
    held     the job that each worker works on
    done     number of jobs that each worker has done
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._consumers = plan.consumers()
        self._words = Words(plan, self._consumers[0].worker)
        self._news: News[str | None] = News()
        self._stopped = threading.Event()
        self._held: list[Any] = [None] * plan.workers
        self._done = [0] * plan.workers
        self._failure: BaseException | None = None
        self._until: float | None = None  # end of the drain, monotonic seconds
        self._teller = None if plan.on_dead is None else Teller(plan, self._words)
        self._telling: threading.Thread | None = None
        self._worked = threading.Event()  # the workers have ended
        self._hanging = Hanging(plan, self._consumers[0].worker)
        self._watch = Watch(self._words, self._hanging, self._replace)
        self._spending = Spending(plan)
        self._pool = None
        if plan.isolate:
            # here: few programs start processes
            from tidelog.api.queue.running.pool import Pool

            self._pool = Pool(plan, self._words, self._hanging)

    def run(self) -> int:
        with Signals(self._news.put):
            left = 0
            try:
                self._start()
                self._wait()
                self._tell_rest()
            finally:
                if self._teller is not None:
                    self._teller.late = True
                self._worked.set()
                self._watch.close()
                self._stop()
                if self._pool is not None:
                    self._pool.kill()
                left = self._give_back()
                if self._pool is not None:
                    self._pool.close()
                self._hanging.close()
                self._words.ended(sum(self._done), left)
        if self._failure is not None:
            raise self._failure
        return self._spending.result(left)

    def _start(self) -> None:
        if self._pool is not None:
            self._pool.begin()
        if self._teller is not None:
            self._teller.begin()
            self._telling = self._thread("tidelog-on-dead", self._teller.run, self._look_again)
        for number in range(self._plan.workers):
            self._begin(number)
        self._words.started("thread")

    def _begin(self, number: int) -> None:
        self._thread(f"tidelog-worker-{number}", self._work, number)

    def _replace(self, number: int) -> None:
        """A worker hangs: another thread goes on with its consumer, unless half of them hang."""
        self._held[number] = None
        if 2 * len(self._watch.hanging) < self._plan.workers:
            try:
                self._begin(number)
                return
            except NotStored as error:
                self._failure = self._failure or error
        else:
            self._failure = self._failure or WorkersHang(HALF % self._plan.queue.name)
        self._news.put(None)

    def _thread(self, name: str, target: Callable[..., None], *args: Any) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        try:
            start(thread, "run a worker")
        except NoThread as error:
            raise NotStored(str(error)) from error
        return thread

    def _wait(self) -> None:
        """Until all workers have ended, or the drain is over."""
        alive = self._plan.workers
        while alive:
            try:
                told = self._news.get(self._until)
            except Empty:
                return
            if told is None:
                alive -= 1
            if not self._stopped.is_set() and (told is not None or self._failure is not None):
                if self._plan.drain is not None:
                    self._until = time.monotonic() + self._plan.drain
                self._stop()
                self._words.stopping("a worker failed" if told is None else told)

    def _tell_rest(self) -> None:
        """The workers have ended: wait for the calls of `on_dead`, until the drain is over."""
        self._worked.set()
        if self._telling is None:
            return
        limit = self._plan.drain
        if self._until is not None:
            limit = max(0.0, self._until - time.monotonic())
        self._telling.join(limit)

    def _look_again(self) -> bool:
        return self._worked.wait(LOOK_S)

    def _stop(self) -> None:
        """Take no more jobs."""
        self._stopped.set()
        for consumer in self._consumers:
            try:
                consumer.close()
            except TidelogError as error:
                # the jobs that it could not give back are delivered again when their leases end
                self._words.passing(error)

    def _give_back(self) -> int:
        """Release the jobs whose handlers run on. Returns how many."""
        left = 0
        for job in self._held:
            try:
                left += job is not None and job.release()
            except TidelogError as error:
                self._words.kept(job, error)
        return left

    # --- in the workers

    def _work(self, number: int) -> None:
        try:
            while not self._stopped.is_set():
                try:
                    for job in self._consumers[number]:
                        if self._one(number, job):
                            return  # too late: another thread has this place
                        if why := self._spending.one_more():
                            self._news.put(why)
                        if self._spending.over:
                            break
                    break
                except self._plan.backend.passing as error:
                    self._words.passing(error)
                    self._stopped.wait(AGAIN_SECONDS)
        except StoreClosed:
            pass  # closed by another thread, which ends the run
        except BaseException as error:
            self._failure = self._failure or error
        self._news.put(None)

    def _one(self, number: int, job: Any) -> bool:
        """Returns whether the handler worked for so long that another thread has the place of this one."""
        working: Working | None = None
        self._held[number] = job
        result = None
        try:
            with job:
                limit = self._plan.limit_of(job)
                if limit is not None and self._pool is None:
                    working = self._watch.begin(number, job, limit)
                try:
                    if self._pool is None:
                        result = self._plan.handler(job)
                    else:
                        result = self._pool.work(number, job, limit)
                except GeneratorExit as error:
                    job.nack(error)  # the block would take it for its own end
                    raise
                finally:
                    if os.getpid() != self._pid:
                        self._words.end_fork(job)
                    if working is not None:
                        self._watch.end(working)
                if self._plan.results and self._pool is None and job.state == "open":
                    try:
                        job.ack(result)
                    except EncodeError as error:
                        # The handler has done its work, and would only do it again.
                        job.fail(error)
                        self._words.no_result(job, error)
            if job.state == "acked":
                self._done[number] += 1
                plan = self._plan
                if plan.on_done is not None:
                    call_hook(plan.queue.name, "on_done", plan.on_done, job, result)
        except (Exception, KeyboardInterrupt):
            if working is None or not working.given_up:
                raise  # what keeps the worker from going on
        except BaseException as error:
            self._words.failed(job, error)
        finally:
            if self._held[number] is job:
                self._held[number] = None
        return working is not None and working.given_up
