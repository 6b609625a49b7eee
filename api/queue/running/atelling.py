"""Telling: a run tells its `on_dead` of the jobs that died, for asyncio.

The deaths come from the queue and not from the run's own workers: the process that has the store open decides many of
them, after a worker was killed. If this process ends before a call has returned, another one calls again.
"""

from __future__ import annotations

import inspect  # asyncio
from typing import Any, Final

from tidelog.api.queue.adeaths import AsyncDeaths
from tidelog.api.queue.leaving import ends_the_worker
from tidelog.api.queue.running.plan import Plan, Words
from tidelog.jobs.rows import DeadJob
from tidelog.store.errors import StoreClosed

LOOK_S: Final = 1.0  # between two looks for deaths
FAILED_MAX: Final = 10  # calls that raise, after which a look ends


class AsyncTeller:
    """The teller of one run.

    late    the run has ended; no more calls begin
    """

    def __init__(self, plan: Plan, words: Words) -> None:
        self._queues = [_QueueTeller(backend, plan, words) for backend in plan.backends]
        self.late = False

    async def begin(self) -> None:
        """Before the workers take jobs: deaths count from here on, if no earlier run has begun."""
        for queue in self._queues:
            await queue.begin()

    async def run(self, over: Any) -> None:
        """Tell until `over`, which waits for the next look, says that the workers have ended; then what is left."""
        last = False
        while True:
            for queue in self._queues:
                if not await queue.look(self):
                    return
            if last:
                return
            last = await over()


class _QueueTeller:
    """That of one of its queues."""

    def __init__(self, backend: Any, plan: Plan, words: Words) -> None:
        self._deaths = AsyncDeaths(backend)
        self._on_dead, self._words = plan.on_dead, words
        self._again_s = backend.options.retry_after
        self._trouble = ""

    async def begin(self) -> None:
        try:
            await self._deaths.begin()
        except StoreClosed:
            pass  # the workers find that too
        except Exception as error:
            self._troubled(error)

    async def look(self, run: AsyncTeller) -> bool:
        """Tell what there is to tell, until the run is over. False: the store is closed."""
        left = FAILED_MAX
        try:
            while left and not run.late and (job := await self._deaths.next()) is not None:
                left -= not await self._told(job)
            self._trouble = ""
        except StoreClosed:
            return False
        except Exception as error:
            self._troubled(error)
        return True

    async def _told(self, job: DeadJob) -> bool:
        assert self._on_dead is not None
        try:
            # threads: self._on_dead(job)
            answer = self._on_dead(job)  # asyncio
            if inspect.isawaitable(answer):  # asyncio
                await answer  # asyncio
        except BaseException as error:
            if ends_the_worker(error):
                raise
            self._words.untold(job, error, self._again_s)
            return False
        await self._deaths.told(job)
        return True

    def _troubled(self, error: Exception) -> None:
        """The deaths cannot be read or acknowledged now. Say so once."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._words.silent(error)
