"""Deaths: jobs as they become dead jobs, for asyncio. A program waits for them, or a group of workers is told of each.

The position of a group is that of a consumer group on the stream of dead jobs. So it is stored, all processes of the
group share it, and a death stays pending until somebody has been told of it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any, Final

from tidelog.api.queue.abackend import AsyncBackend
from tidelog.api.shapes import raw
from tidelog.engine.ids import text
from tidelog.engine.reply import NULL_ARRAY
from tidelog.jobs.rows import DeadJob
from tidelog.jobs.verbs.dead import PAGE, dead_number
from tidelog.store.durations import Duration, patience
from tidelog.store.errors import ResponseError

SLICE_S: Final = 5.0  # longest wait of one call; that of a shared store outlives its caller
TELLER: Final = b"on_dead"  # the one consumer, of all processes
FIRST: Final = b"0-0"


class AsyncDeaths:
    """The deaths of the jobs of a queue of any face."""

    def __init__(self, backend: AsyncBackend) -> None:
        options = backend.options
        self._name, self._codec, self._group = options.name, options.codec, options.group
        self._key, self._group_key = options.dead_key, options.group_key
        self._again_ms = max(1, round(options.retry_after * 1000))
        self._call = backend.call
        self._begin_at = b"$"

    def _job(self, id: int, row: Any) -> DeadJob:
        return DeadJob(id, row, self._codec, self._name)

    # --- a program waits for them

    def after(self, since: str | None, block: Duration | None) -> AsyncIterator[DeadJob]:
        """See `Queue.deaths`."""
        start = None if since is None else text(dead_number(since))
        return self._after(start, patience("block", block))

    async def _after(self, start: bytes | None, wait: float | None) -> AsyncIterator[DeadJob]:
        if start is None:
            start = await self._call(_newest, [b"XREVRANGE", self._key, b"+", b"-", b"COUNT", 1])
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = SLICE_S if until is None else min(SLICE_S, until - time.monotonic())
            block = (b"BLOCK", max(1, round(left * 1000))) if left > 0 else ()
            words = [b"XREAD", b"COUNT", PAGE, *block, b"STREAMS", self._key, start]
            found = await self._call(_rows, words)
            for id, row in found:
                yield self._job(id, row)
                start = text(id)
            if found:
                until = None if wait is None else time.monotonic() + wait
            elif left <= 0:
                return

    # --- a group of workers is told of each

    async def begin(self) -> None:
        """Store the position of the group if it has none: it is told of the deaths from now on."""
        create = (b"XGROUP", b"CREATE", self._key, self._group_key, self._begin_at, b"MKSTREAM")
        try:
            await self._call(raw, [*create])
        except ResponseError as error:
            if error.code != "BUSYGROUP":
                raise
        # If it is missing later, the stream was deleted, and all deaths are new.
        self._begin_at = FIRST

    async def next(self) -> DeadJob | None:
        """The next death to tell of: one that was begun `retry_after` ago and not told, or a new one."""
        words = [b"XREADGROUP", b"GROUP", self._group_key, TELLER, b"COUNT", 1]
        words += [b"CLAIM", self._again_ms, b"STREAMS", self._key, b">"]
        while True:
            try:
                found = await self._call(_rows, words)
            except ResponseError as error:
                if error.code != "NOGROUP":
                    raise
                await self.begin()
                return None
            if not found:
                return None
            job = self._job(*found[0])
            if job.group in ("", self._group):  # others give up jobs of the same queue
                return job
            await self.told(job)

    async def told(self, job: DeadJob) -> None:
        """Somebody was told of this death."""
        await self._call(raw, [b"XACK", self._key, self._group_key, job.id])


def _rows(reply: Any, decode: bool) -> list[Any]:
    """[(ID, row), ...] of the one stream that was read."""
    return [] if reply is None or reply is NULL_ARRAY else list(reply[0][1])


def _newest(reply: Any, decode: bool) -> bytes:
    """The ID of the newest entry."""
    return next((text(id) for id, _ in reply), FIRST)
