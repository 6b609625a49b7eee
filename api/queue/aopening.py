"""`tidelog.aqueue`: open a store for one queue, for asyncio. `tidelog.queue` is in api.queue.opening."""

from __future__ import annotations

from typing import Any, Unpack

from tidelog.api.aio import AsyncStore
from tidelog.api.aopening import Opening
from tidelog.api.queue.aio import AsyncQueue
from tidelog.jobs.options import make_options
from tidelog.jobs.typed import QueueOptions
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.opening import AnyPath, open_core
from tidelog.store.options import make_options as make_open_options


def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    codec: Any = "json",
    fsync: str = "always",
    clock: Clock = SYSTEM,
    **options: Unpack[QueueOptions],
) -> Opening[AsyncQueue]:
    """Open the store in a directory for one queue, for asyncio. As `tidelog.queue`.

        mails = await tidelog.aqueue("mail-data", "mails")          # close it with `await mails.aclose()`
        async with tidelog.aqueue("mail-data", "mails") as mails:   # closes it
            ...

    Returns:
        An object to `await` or to use in `async with`; the directory is opened then, in a thread.
    """
    made = make_options(name, group, codec=codec, **options)
    how = make_open_options(fsync=fsync)

    def opened() -> AsyncQueue:
        core = open_core(path, how, None, clock)
        return AsyncQueue(AsyncStore(core, decode=False), made, opened_here=True)

    return Opening(opened)
