"""`tidelog.aconnect` and `tidelog.aqueue`: a store or a queue that several processes share, for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from tidelog.api.aopening import Opening
from tidelog.api.queue.aio import AsyncQueue
from tidelog.api.queue.aopening import aopen_queue as aopen_embedded
from tidelog.client.opening import TIMEOUT_S, connect, open_remote
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.durations import Duration
from tidelog.store.opening import AnyPath, is_url

if TYPE_CHECKING:
    from tidelog.client.aio import AsyncSharedStore
    from tidelog.client.aqueue import AsyncSharedQueue
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.typed import OpenOptions, QueueOptions, T, Typed
    from tidelog.store.options import ConnectOptions


@overload
def aconnect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    decode_responses: Literal[False] = False,
    **options: Unpack[ConnectOptions],
) -> Opening[AsyncSharedStore[bytes]]: ...
@overload
def aconnect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    decode_responses: Literal[True],
    **options: Unpack[ConnectOptions],
) -> Opening[AsyncSharedStore[str]]: ...
@overload
def aconnect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    decode_responses: bool,
    **options: Unpack[ConnectOptions],
) -> Opening[AsyncSharedStore[bytes | str]]: ...
def aconnect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    fsync: str | None = None,
    decode_responses: bool = False,
    timeout: Duration = TIMEOUT_S,
    tls_ca: AnyPath | None = None,
    tls_cert: AnyPath | None = None,
    tls_key: AnyPath | None = None,
    start: bool = True,
) -> Opening[AsyncSharedStore[Any]]:
    """Connect to a store that several processes use, for asyncio. As `tidelog.connect`.

        db = await tidelog.aconnect("orders")          # close it with `await db.aclose()`
        async with tidelog.aconnect("orders") as db:   # closes it
            ...

    Returns:
        An object to `await` or to use in `async with`; it connects then, in a thread.
    """
    # here: programs with a store of their own do not load the client
    from tidelog.client.aio import AsyncSharedStore

    def opened() -> AsyncSharedStore:
        return AsyncSharedStore(
            connect(
                where,
                fsync=fsync,
                decode_responses=decode_responses,
                timeout=timeout,
                tls_ca=tls_ca,
                tls_cert=tls_cert,
                tls_key=tls_key,
                start=start,
            ),
            opened_here=True,
        )

    return Opening(opened)


@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: Literal["bytes"],
    **options: Unpack[OpenOptions],
) -> Opening[AsyncSharedQueue[bytes]]: ...
@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: Literal["str"],
    **options: Unpack[OpenOptions],
) -> Opening[AsyncSharedQueue[str]]: ...
@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: Typed[T],
    **options: Unpack[OpenOptions],
) -> Opening[AsyncSharedQueue[T]]: ...
@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: str | Codec = "json",
    **options: Unpack[OpenOptions],
) -> Opening[AsyncSharedQueue[Any]]: ...
@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: Literal["bytes"],
    **options: Unpack[OpenOptions],
) -> Opening[AsyncQueue[bytes]]: ...
@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: Literal["str"],
    **options: Unpack[OpenOptions],
) -> Opening[AsyncQueue[str]]: ...
@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: Typed[T],
    **options: Unpack[OpenOptions],
) -> Opening[AsyncQueue[T]]: ...
@overload
def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: str | Codec = "json",
    **options: Unpack[OpenOptions],
) -> Opening[AsyncQueue[Any]]: ...


def aopen_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: bool = False,
    codec: Any = "json",
    fsync: str | None = None,
    clock: Clock = SYSTEM,
    **options: Unpack[QueueOptions],
) -> Opening[AsyncQueue] | Opening[AsyncSharedQueue]:
    """Open the store in a directory for one queue, for asyncio. As `tidelog.queue`.

        mails = await tidelog.aqueue("mail-data", "mails")          # close it with `await mails.aclose()`
        async with tidelog.aqueue("mail-data", "mails") as mails:   # closes it
            ...

    Returns:
        An object to `await` or to use in `async with`; the directory is opened then, in a thread.
    """
    if not (shared or is_url(path)):
        level = fsync or "always"
        return aopen_embedded(path, name, group, codec=codec, fsync=level, clock=clock, **options)
    # here: programs with a store of their own do not load the client
    from tidelog.client.aio import AsyncSharedStore
    from tidelog.client.aqueue import AsyncSharedQueue

    def opened() -> AsyncSharedQueue:
        store, remote = open_remote(path, name, group, codec, fsync, clock, options)
        return AsyncSharedQueue(AsyncSharedStore(store), remote)

    return Opening(opened)
