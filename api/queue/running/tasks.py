"""A run of workers that are tasks of an event loop. As a run of threads, with one difference: tasks can be cancelled.

When the drain is over, the tasks are cancelled, and a job whose handler is cancelled is released. A handler that does
not end for a second after that keeps running, but its job is released.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final

from tidelog.api.queue.running.plan import AGAIN_SECONDS, Plan, Words
from tidelog.api.queue.running.signals import Signals
from tidelog.store.errors import StoreClosed, TidelogError

GRACE_SECONDS: Final = 1.0  # for handlers that were cancelled


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

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        # `call_soon_threadsafe` also wakes the loop out of its wait for sockets
        with Signals(lambda name: loop.call_soon_threadsafe(self._came, name)):
            tasks = {
                asyncio.create_task(self._work(number), name=f"tidelog-worker-{number}")
                for number in range(self._plan.workers)
            }
            self._words.started("task")
            try:
                await self._wait(tasks)
            finally:
                left = await self._end(tasks)
                self._words.ended(sum(self._done), left)
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()  # raises the error that ended a worker
        return left

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
                if any(not task.cancelled() and task.exception() for task in done):
                    self._came("a worker failed")
        finally:
            stopped.cancel()
        await self._stop()
        if running:
            self._words.stopping(self._reason)
            await asyncio.wait(running, timeout=self._plan.drain)

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
                return
            except StoreClosed:
                return  # closed by another task, which ends the run
            except self._plan.passing as error:
                self._words.passing(error)
                try:
                    await asyncio.wait_for(self._stopped.wait(), AGAIN_SECONDS)
                except TimeoutError:
                    pass

    async def _one(self, number: int, job: Any) -> None:
        began = time.monotonic()
        self._held[number] = job
        try:
            async with job:
                try:
                    result = await self._plan.handler(job)
                finally:
                    if os.getpid() != self._pid:
                        self._words.end_fork(job)
                if self._plan.results and job.state == "open":
                    await job.ack(result)
            self._done[number] += job.state == "acked"
            self._words.done(job, began)
        except SystemExit as error:
            # it would end the loop
            self._words.exited(job, error)
        finally:
            self._held[number] = None
