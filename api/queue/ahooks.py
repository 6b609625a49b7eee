"""Hooks: functions that are told what became of a job, for asyncio: `on_done` and `on_retry`.

They are called by the worker, after that is stored. So each is called at most once: if the worker is killed in between,
nobody calls it. `on_dead` has a stored position (adeaths.py), and is called at least once.
"""

from __future__ import annotations

import inspect  # asyncio
from collections.abc import Callable
from typing import Any

from tidelog.api.queue.leaving import ends_the_worker
from tidelog.jobs.delivered import log
from tidelog.jobs.rows import evidence, printable


async def call_hook(
    queue: str, name: str, hook: Callable[..., object], job: Any, *facts: Any
) -> None:
    """Call a hook with a job and facts about it. An exception of it is logged, and ends nothing."""
    try:
        # threads: hook(job, *facts)
        answer = hook(job, *facts)  # asyncio
        if inspect.isawaitable(answer):  # asyncio
            await answer  # asyncio
    except BaseException as error:
        if ends_the_worker(error):
            raise
        log.error(
            "queue %s: %s raised %s for job %s",
            *(queue, name, evidence(error)[0], job.id),
            exc_info=printable(error),
            extra={"queue": queue, "worker": job.worker, "job": job.id},
        )
