"""`tidelog.connect` and `tidelog.queue`: a store or a queue that several processes share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from tidelog.api.queue.face import Queue
from tidelog.api.queue.opening import open_queue as open_embedded
from tidelog.store.clock import SYSTEM, Clock
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError, NotAStore
from tidelog.store.opening import AnyPath, is_url
from tidelog.store.options import make_options

if TYPE_CHECKING:
    from tidelog.client.queue import SharedQueue
    from tidelog.client.remote import Remote
    from tidelog.client.store import SharedStore
    from tidelog.jobs.codecs import Codec
    from tidelog.jobs.typed import OpenOptions, QueueOptions, T, Typed
    from tidelog.store.options import ConnectOptions

TIMEOUT_S = 30.0


@overload
def connect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    decode_responses: Literal[False] = False,
    **options: Unpack[ConnectOptions],
) -> SharedStore[bytes]: ...
@overload
def connect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    decode_responses: Literal[True],
    **options: Unpack[ConnectOptions],
) -> SharedStore[str]: ...
@overload
def connect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    decode_responses: bool,
    **options: Unpack[ConnectOptions],
) -> SharedStore[bytes | str]: ...
def connect(
    where: AnyPath | list[AnyPath] | tuple[AnyPath, ...],
    *,
    fsync: str | None = None,
    decode_responses: bool = False,
    timeout: Duration = TIMEOUT_S,
    tls_ca: AnyPath | None = None,
    tls_cert: AnyPath | None = None,
    tls_key: AnyPath | None = None,
    start: bool = True,
) -> SharedStore[bytes | str]:
    """Connect to a store that several processes use: by its path, or to a server elsewhere.

        db = tidelog.connect("orders")                       # in each process
        db = tidelog.connect("redis://orders.example:6379")  # rediss:// with TLS, unix:///run/orders.sock

    The first process that connects to a path starts a process of its own that serves the store, the owner. It ends when
    nobody was connected for a minute. If a program serves the store already (`tidelog serve PATH`, `tidelog.serve`),
    that is found and used.

    Args:
        where: The store's directory, which is created if missing, or the URL of a server. Several URLs: those of a
            leader and its followers; the one that leads is used. `redis+sentinel://HOST:PORT,HOST:PORT/NAME`: the
            leader that these Sentinels know by that name.
        fsync: The least fsync policy: `always`, `everysec` or `no`, as in `tidelog.open`. A server with a lower one is
            refused; an owner that this call starts gets it, unless tidelog.toml in the directory says another. None =
            whatever the store has: `always`, unless somebody said otherwise.
        decode_responses: Replies hold str instead of bytes.
        timeout: Seconds or a timedelta that a call waits for a server, and for its reply.
        tls_ca: With `rediss://`: a PEM file with the certificates that sign those of servers; None = those of the
            system. The URL can name it, too: `rediss://host?ssl_ca_certs=ca.pem`, with redis-py's names.
        tls_cert: A PEM file with the certificate of this client, for a server that asks for one.
        tls_key: A PEM file with its key; None = it is in the file `tls_cert`.
        start: Start the owner if no process serves the store. False: wait for one, for `timeout`. If tidelog.toml in
            the directory has TCP, TLS, users or followers, only an operator starts its server (`tidelog serve`).

    Returns:
        The shared store, to be closed.

    Raises:
        DataError: An argument is invalid, or the server has a lower fsync policy.
        Unreachable: No server answered in time, or the certificate of the server is not valid.
        StoreLocked: Another process has the store open and does not serve it.
        CannotOpen: The owner could not be started; also its subclasses, as of `tidelog.open`.
    """
    # here: a program that opens its own store for a queue does not load the client
    from tidelog.client.address import addresses_of, with_tls
    from tidelog.client.link import Link
    from tidelog.client.store import SharedStore
    from tidelog.jobs.verbs.verb import Safe

    limit = seconds("timeout", timeout)
    given = {} if fsync is None else {"appendfsync": make_options(fsync=fsync).fsync}
    addresses = with_tls(addresses_of(where), tls_ca, tls_cert, tls_key)
    root = addresses[0].root
    if root is not None and root.exists() and not root.is_dir():
        raise NotAStore(f"{root} is not a directory")
    link = Link(addresses, limit, given, start)
    try:
        link.call((b"PING",), Safe.READ)
    except BaseException:
        link.close()
        raise
    db = addresses[0].db
    return SharedStore(link, decode=decode_responses, db=db, opened_here=True)


@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: Literal["bytes"],
    **options: Unpack[OpenOptions],
) -> SharedQueue[bytes]: ...
@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: Literal["str"],
    **options: Unpack[OpenOptions],
) -> SharedQueue[str]: ...
@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: Typed[T],
    **options: Unpack[OpenOptions],
) -> SharedQueue[T]: ...
@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[True],
    codec: str | Codec = "json",
    **options: Unpack[OpenOptions],
) -> SharedQueue[Any]: ...
@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: Literal["bytes"],
    **options: Unpack[OpenOptions],
) -> Queue[bytes]: ...
@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: Literal["str"],
    **options: Unpack[OpenOptions],
) -> Queue[str]: ...
@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: Typed[T],
    **options: Unpack[OpenOptions],
) -> Queue[T]: ...
@overload
def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: Literal[False] = False,
    codec: str | Codec = "json",
    **options: Unpack[OpenOptions],
) -> Queue[Any]: ...


def open_queue(
    path: AnyPath,
    name: str,
    group: str = "workers",
    *,
    shared: bool = False,
    codec: Any = "json",
    fsync: str | None = None,
    clock: Clock = SYSTEM,
    **options: Unpack[QueueOptions],
) -> Queue | SharedQueue:
    """Open the store in a directory for one queue. Creates it if the directory is empty or missing.

        with tidelog.queue("mail-data", "mails") as mails:
            mails.put({"to": "ann@example.org"})

    To use several queues, open the store and call `Store.queue` for each.

    Args:
        path: The directory; or the URL of a server, as in `tidelog.connect`, whose queues are always shared.
        name: Name of the queue. For it and all that is not named here see `Store.queue`.
        shared: Several processes use the queue at the same time; see `tidelog.connect`. All of them pass True.
        fsync: As in `tidelog.open`, where None is `always`; for a shared queue, as in `tidelog.connect`.
        clock: As in `tidelog.open`. Not for a shared queue.

    Returns:
        The queue. Closing it closes the store, or disconnects.

    Raises:
        DataError: An option or the path is invalid.
        CannotOpen: As `tidelog.open`, with the same subclasses.
        Unreachable: No server of the shared store answered in time.
    """
    if not (shared or is_url(path)):
        level = fsync or "always"
        return open_embedded(path, name, group, codec=codec, fsync=level, clock=clock, **options)
    # here: a program that opens its own store for a queue does not load the client
    from tidelog.client.queue import SharedQueue

    return SharedQueue(*open_remote(path, name, group, codec, fsync, clock, options))


def open_remote(
    path: AnyPath,
    name: str,
    group: str,
    codec: Any,
    fsync: str | None,
    clock: Clock,
    options: QueueOptions,
) -> tuple[SharedStore[bytes], Remote]:
    """Connect to a store for one queue. Raises as `open_queue`."""
    # here: a program that opens its own store for a queue does not load the client
    from tidelog.client.base import inside
    from tidelog.client.remote import Remote
    from tidelog.jobs.options import make_options as queue_options

    if clock is not SYSTEM:
        raise DataError("a shared queue uses the clock of the process that serves it")
    made = queue_options(name, group, codec=codec, **options)
    store = connect(path, fsync=fsync)
    return store, Remote(inside(store), made, codec, opened_here=True)
