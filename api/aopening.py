"""Opening for asyncio: what `aopen` and `aqueue` return, and `aopen` itself. Recovery runs in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, TypeVar, Unpack, overload

from tidelog.aof.bookmarks import KEEP_BYTES
from tidelog.aof.log import SEGMENT_BYTES
from tidelog.api.aio import AsyncStore
from tidelog.api.face import Face, inside
from tidelog.disk.interface import Disk
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.durations import Duration, seconds
from tidelog.store.opening import AnyPath, open_core
from tidelog.store.options import CHECKPOINT_BYTES, RETAIN_BYTES, SAVE, StoreOptions, make_options


class Closable(Protocol):
    """An object whose `aclose` is awaited."""

    async def aclose(self) -> object:
        """Release it."""


Opened = TypeVar("Opened", bound=Closable)


class Opening(Generic[Opened]):
    """The result of `aopen` and `aqueue`: `await` it to get the store or the queue, or use it in `async with`.

    `async with` also closes what it opened.
    """

    def __init__(self, open_: Callable[[], Opened]) -> None:
        self._open = open_
        self._found: Opened | None = None

    async def _opened(self) -> Opened:
        # Recovery reads the log, so run it in a thread; otherwise it would block the loop.
        return await asyncio.to_thread(self._open)

    def __await__(self) -> Generator[Any, None, Opened]:
        return self._opened().__await__()

    async def __aenter__(self) -> Opened:
        self._found = await self._opened()
        return self._found

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._found is not None
        await self._found.aclose()


@overload
def aopen_store(
    path: AnyPath,
    *,
    decode_responses: Literal[False] = False,
    **options: Unpack[StoreOptions],
) -> Opening[AsyncStore[bytes]]: ...
@overload
def aopen_store(
    path: AnyPath,
    *,
    decode_responses: Literal[True],
    **options: Unpack[StoreOptions],
) -> Opening[AsyncStore[str]]: ...
@overload
def aopen_store(
    path: AnyPath,
    *,
    decode_responses: bool,
    **options: Unpack[StoreOptions],
) -> Opening[AsyncStore[bytes | str]]: ...
def aopen_store(
    path: AnyPath,
    *,
    fsync: str = "always",
    decode_responses: bool = False,
    read_only: bool = False,
    memory_budget: int | None = None,
    maxdisk: int | None = None,
    checkpoint_bytes: int = CHECKPOINT_BYTES,
    save: Iterable[tuple[float, int]] = SAVE,
    snapshot_every: float | timedelta | None = None,
    keep_snapshots: int = 0,
    retain_bytes: int = RETAIN_BYTES,
    retain_seconds: float | timedelta | None = None,
    retain_bookmark_bytes: int = KEEP_BYTES,
    keep_dead_seconds: float | timedelta | None = None,
    keep_dead_jobs: int | None = None,
    segment_bytes: int = SEGMENT_BYTES,
    lock_timeout: Duration = 0.0,
    disk: Disk | None = None,
    clock: Clock = SYSTEM,
) -> Opening[AsyncStore[Any]]:
    """Open the store in a directory, for asyncio. As `tidelog.open`.

        db = await tidelog.aopen("orders")          # close it with `await db.aclose()`
        async with tidelog.aopen("orders") as db:   # closes it
            ...

    Returns:
        An object to `await` or to use in `async with`; the directory is opened then, in a thread.
    """
    options = make_options(
        fsync=fsync,
        read_only=read_only,
        memory_budget=memory_budget,
        maxdisk=maxdisk,
        checkpoint_bytes=checkpoint_bytes,
        save=save,
        snapshot_every=snapshot_every,
        keep_snapshots=keep_snapshots,
        retain_bytes=retain_bytes,
        retain_seconds=retain_seconds,
        retain_bookmark_bytes=retain_bookmark_bytes,
        keep_dead_seconds=keep_dead_seconds,
        keep_dead_jobs=keep_dead_jobs,
        segment_bytes=segment_bytes,
    )

    wait = seconds("lock_timeout", lock_timeout, zero=True)

    def opened() -> AsyncStore:
        core = open_core(path, options, disk, clock, wait)
        return AsyncStore(core, decode=decode_responses, opened_here=True)

    return Opening(opened)


def beside(store: Face) -> AsyncStore[Any]:
    """The database of an open store once more, for asyncio. It is closed with the store."""
    seen = inside(store)
    return AsyncStore(seen.core, decode=False, db=seen.db, level=seen.level)
