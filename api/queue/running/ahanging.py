"""Hanging: a run tells its queues how many of its handlers hang, and how many processes it had to kill, for asyncio.

The process that has the store open keeps it in memory, and forgets a run that is silent. So a run with something to
tell repeats it, until it ends. Others tell nothing.
"""

from __future__ import annotations

import asyncio  # asyncio
import logging

# threads: import threading
from contextlib import nullcontext  # asyncio
from secrets import token_hex
from typing import Any, Final

# threads: from tidelog.aof.errors import NoThread
# threads: from tidelog.aof.threads import start
from tidelog.api.queue.running.plan import Plan
from tidelog.jobs.hangs import BEAT_S, NONE, Counts
from tidelog.jobs.verbs.hangs import TellHangs
from tidelog.store.errors import StoreClosed, TidelogError, Unsupported

END_S: Final = 1.0  # that the last words of a run may take

log = logging.getLogger("tidelog.worker")


class AsyncHanging:
    """The counts that one run tells. `worker`: the name of its workers."""

    def __init__(self, plan: Plan, worker: str) -> None:
        self._plan, self._worker, self._run = plan, worker.encode(), token_hex(8).encode()
        self._counts: dict[Any, Counts] = {}  # by the backend of the queue
        self._changed = asyncio.Event()  # asyncio
        self._changing = nullcontext()  # asyncio
        self._telling: asyncio.Task[None] | None = None  # asyncio
        # threads: self._changed = threading.Event()
        # threads: self._changing = threading.Lock()
        # threads: self._telling: threading.Thread | None = None
        self._over = False

    def note(self, job: Any, *, hanging: int = 0, killed: int = 0) -> None:
        """The handler of a job hangs (1), or has ended after all (-1); or its process was killed."""
        backend = self._plan.backend_of(job)
        with self._changing:
            before = self._counts.get(backend, NONE)
            self._counts[backend] = before.plus(Counts(hanging, killed))
            self._changed.set()
            if self._telling is None and not self._over:
                self._begin()

    def _begin(self) -> None:
        self._telling = asyncio.create_task(self._tell(), name="tidelog-hanging")  # asyncio
        # threads: telling = threading.Thread(target=self._tell, name="tidelog-hanging", daemon=True)
        # threads: try:
        # threads:     start(telling, "tell which handlers hang")
        # threads:     self._telling = telling
        # threads: except NoThread as error:
        # threads:     log.warning("%s", error)

    async def close(self) -> None:
        """The run ends, and its workers with it."""
        self._over = True
        self._changed.set()
        if self._telling is not None:
            await asyncio.wait({self._telling}, timeout=END_S)  # asyncio
            self._telling.cancel()  # asyncio
            # threads: self._telling.join(END_S)

    async def _tell(self) -> None:
        while True:
            self._changed.clear()
            over = self._over  # in this order: the end may come between
            for backend, counts in list(self._counts.items()):
                told = TellHangs(self._worker, self._run, NONE if over else counts)
                try:
                    await backend.ask(told)
                except (StoreClosed, Unsupported):
                    return
                except TidelogError as error:
                    log.debug("it could not be told how many handlers hang: %s", error)
            if over:
                return
            # threads: self._changed.wait(BEAT_S)
            try:  # asyncio
                await asyncio.wait_for(self._changed.wait(), BEAT_S)  # asyncio
            except TimeoutError:  # asyncio
                pass  # asyncio
