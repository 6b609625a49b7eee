"""A run of workers that are tasks of an event loop. As a run of threads, with one difference: tasks can be cancelled.

When the drain is over, the tasks are cancelled, and a job whose handler is cancelled is released. A handler that does
not end for a second after that keeps running, but its job is released.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

from tidelog.api.queue.ahooks import call_hook
from tidelog.api.queue.leaving import ends_the_worker
from tidelog.api.queue.running.ahanging import AsyncHanging
from tidelog.api.queue.running.atelling import LOOK_S, AsyncTeller
from tidelog.api.queue.running.plan import AGAIN_SECONDS, Plan, Spending, Words
from tidelog.api.queue.running.signals import Signals
from tidelog.api.queue.running.within import GRACE_SECONDS, within
from tidelog.jobs.time_limits import HALF, TimeLimitExceeded, WorkersHang
from tidelog.store.errors import EncodeError, StoreClosed, TidelogError

T = TypeVar("T")


async def run_tasks(plan: Plan) -> int:
    """Take jobs until a signal comes, the store is closed, or every consumer has ended. Returns how many jobs were
    given back. Raises the error that ended a worker.
    """
    return await _Run(plan).run()


class _Run:
    """One run.

    held     the job that each worker works on
    done     number of jobs that each worker has done
    reason   why it ends
    cancelled  a worker was, and not by the run
    hanging  handlers that were cancelled at their limit of time, and run on
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._consumers = plan.consumers()
        self._words = Words(plan, self._consumers[0].worker)
        self._stopped = asyncio.Event()
        self._held: list[Any] = [None] * plan.workers
        self._done = [0] * plan.workers
        self._reason = ""
        self._cancelled = False
        self._spending = Spending(plan)
        self._hanging: set[asyncio.Task[Any]] = set()
        self._told = AsyncHanging(plan, self._consumers[0].worker)
        self._hang = False  # half of the workers did
        self._until: float | None = None  # end of the drain, monotonic seconds
        self._teller = None if plan.on_dead is None else AsyncTeller(plan, self._words)
        self._worked = asyncio.Event()  # the workers have ended

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        # `call_soon_threadsafe` also wakes the loop out of its wait for sockets
        with Signals(lambda name: loop.call_soon_threadsafe(self._came, name)):
            telling = None
            if self._teller is not None:
                await self._teller.begin()
                telling = asyncio.create_task(
                    self._teller.run(self._look_again), name="tidelog-on-dead"
                )
            tasks = {
                asyncio.create_task(self._work(number), name=f"tidelog-worker-{number}")
                for number in range(self._plan.workers)
            }
            self._words.started("task")
            try:
                await self._wait(tasks)
                if telling is not None:
                    await self._tell_rest(telling)
            finally:
                if telling is not None:
                    telling.cancel()
                    await asyncio.wait({telling}, timeout=GRACE_SECONDS)
                left = await self._end(tasks)
                await self._told.close()
                self._words.ended(sum(self._done), left)
        if self._cancelled:
            raise TidelogError(f"a worker of the queue {self._plan.queue.name!r} was cancelled")
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()  # raises the error that ended a worker
        if self._hang:
            raise WorkersHang(HALF % self._plan.queue.name)
        return self._spending.result(left)

    def _came(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._stopped.set()

    async def _wait(self, tasks: set[asyncio.Task[None]]) -> None:
        """Until all workers have ended, or the drain is over."""
        stopped = asyncio.create_task(self._stopped.wait())
        running = tasks
        try:
            while running and not self._stopped.is_set():
                done, _ = await asyncio.wait(
                    {*running, stopped}, return_when=asyncio.FIRST_COMPLETED
                )
                running = running - done
                self._cancelled = any(task.cancelled() for task in done)
                if self._cancelled or any(task.exception() for task in done):
                    self._came("a worker was cancelled" if self._cancelled else "a worker failed")
        finally:
            stopped.cancel()
        await self._stop()
        if running:
            self._words.stopping(self._reason)
            if self._plan.drain is not None:
                self._until = time.monotonic() + self._plan.drain
            await asyncio.wait(running, timeout=self._plan.drain)

    async def _tell_rest(self, telling: asyncio.Task[None]) -> None:
        """The workers have ended: wait for the calls of `on_dead`, until the drain is over."""
        self._worked.set()
        limit = self._plan.drain
        if self._until is not None:
            limit = max(0.0, self._until - time.monotonic())
        await asyncio.wait({telling}, timeout=limit)

    async def _look_again(self) -> bool:
        try:
            return await asyncio.wait_for(self._worked.wait(), LOOK_S)
        except TimeoutError:
            return False

    async def _stop(self) -> None:
        """Take no more jobs."""
        for consumer in self._consumers:
            try:
                await consumer.aclose()
            except TidelogError as error:
                # the jobs that it could not give back are delivered again when their leases end
                self._words.passing(error)

    async def _end(self, tasks: set[asyncio.Task[None]]) -> int:
        """Cancel the workers that run on, and release their jobs. Returns how many."""
        self._stopped.set()
        left = [job for job in self._held if job is not None]
        running = {task for task in tasks if not task.done()}
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=GRACE_SECONDS)
        await self._stop()
        for job in left:
            try:
                await job.release()
            except TidelogError as error:
                self._words.kept(job, error)
        return sum(job.state == "given" for job in left)

    # --- in the workers

    async def _work(self, number: int) -> None:
        while not self._stopped.is_set():
            try:
                async for job in self._consumers[number]:
                    await self._one(number, job)
                    if why := self._spending.one_more():
                        self._came(why)
                    if self._spending.over:
                        break
                return
            except StoreClosed:
                return  # closed by another task, which ends the run
            except self._plan.backend.passing as error:
                self._words.passing(error)
                try:
                    await asyncio.wait_for(self._stopped.wait(), AGAIN_SECONDS)
                except TimeoutError:
                    pass

    async def _one(self, number: int, job: Any) -> None:
        self._held[number] = job
        result = None
        try:
            async with job:
                result = await self._handled(job)
                if self._plan.results and job.state == "open":
                    try:
                        await job.ack(result)
                    except EncodeError as error:
                        # The handler has done its work, and would only do it again.
                        await job.fail(error)
                        self._words.no_result(job, error)
            if job.state == "acked":
                self._done[number] += 1
                plan = self._plan
                if plan.on_done is not None:
                    await call_hook(plan.queue.name, "on_done", plan.on_done, job, result)
        except (Exception, KeyboardInterrupt):
            raise  # what keeps the worker from going on
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and ends_the_worker(error):
                raise
            self._words.failed(job, error)
        finally:
            self._held[number] = None

    async def _handled(self, job: Any) -> Any:
        """The result of the handler. It runs in a task of its own: a cancellation that it sends to its own task, or
        that comes out of something that it awaited, does not reach the worker.
        """
        limit = self._plan.limit_of(job)
        if limit is None:
            result, error = await _begun(self._boxed(job))
        else:
            result, error = await self._limited(job, limit)
        if error is None:
            return result
        if isinstance(error, GeneratorExit):
            await job.nack(error)  # the block would take it for its own end
        try:
            raise error
        finally:
            del error  # its frames refer to the job

    async def _limited(self, job: Any, limit: float) -> tuple[Any, BaseException | None]:
        task = _begun(self._boxed(job))
        try:
            return await within(task, job, limit)
        except TimeLimitExceeded:
            if not task.done():
                self._hanging.add(task)
                self._told.note(job, hanging=1)
                task.add_done_callback(partial(self._ended_late, job))
                self._words.hangs(job, limit, len(self._hanging))
                if 2 * len(self._hanging) >= self._plan.workers:
                    self._hang = True
                    self._came("half of the workers hang")
            raise

    def _ended_late(self, job: Any, task: asyncio.Task[Any]) -> None:
        self._hanging.discard(task)
        self._told.note(job, hanging=-1)

    async def _boxed(self, job: Any) -> tuple[Any, BaseException | None]:
        """(result, error) of the handler.

        SystemExit and KeyboardInterrupt would end the loop with the task, and no coroutine may await anything after
        GeneratorExit was thrown into it.
        """
        try:
            return await self._plan.handler(job), None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            return None, error
        finally:
            if os.getpid() != self._pid:
                self._words.end_fork(job)


def _begun(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """A task for the work of the running one. Before Python 3.12 it costs two turns of the loop; since then it
    begins at once, and costs no turn unless it waits.
    """
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=asyncio.get_running_loop(), eager_start=True)
    return asyncio.create_task(work)
