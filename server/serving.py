"""Serving: runs a server in a thread of a program that owns a store, or as a process of its own."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import shlex
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.aof.errors import NoThread
from tidelog.aof.threads import start
from tidelog.api.closing import Closing
from tidelog.api.sync import Store
from tidelog.server.acl.users import Acl
from tidelog.server.addresses import Addresses
from tidelog.server.config.config import Config
from tidelog.server.handlers import COMMANDS
from tidelog.server.server import FILES_RESERVED, Server
from tidelog.store.clock import SYSTEM
from tidelog.store.commit.core import Core
from tidelog.store.errors import CannotOpen, TidelogError
from tidelog.store.lifetime import close
from tidelog.store.opening import is_new, open_core, was_served
from tidelog.store.options import Options, make_options

if TYPE_CHECKING:
    from tidelog.api.aio import AsyncStore

_logger = logging.getLogger("tidelog.server")


class Serving(Closing):
    """A server that runs in its own thread in a program that owns the store. `tidelog.serve` makes it.

    Attributes:
        port: The TCP port in use; 0 if there is none.
        tls_port: The port for TLS in use; 0 if there is none.
    """

    def __init__(self, core: Core, config: Config) -> None:
        self._core = core
        self._config = config
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self.server: Server | None = None
        self._thread = threading.Thread(target=self._run, name="tidelog-serve", daemon=True)
        self.port = self.tls_port = 0
        try:
            start(self._thread, "serve clients")
        except NoThread as error:
            raise CannotOpen(str(error)) from error
        self._ready.wait()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        server = Server(self._core, self._config, self._core.root)
        await server.start()
        self.server = server
        self.port, self.tls_port = server.listeners.port(), server.listeners.port("tls")
        self._ready.set()
        await server.ended

    def close(self) -> None:
        """Stop accepting, finish replies, close the connections. The store stays open. Closing twice is allowed."""
        server = self.server
        if server is not None and self._thread.is_alive():
            try:
                server.loop.call_soon_threadsafe(server.stop)
            except RuntimeError:
                pass  # the loop has just ended
            self._thread.join()


def serve(db: Store | AsyncStore, **options: Any) -> Serving:
    """Serve an open store to Redis clients, while the program goes on using it.

        with tidelog.open("orders") as db, tidelog.serve(db, port=0) as server:
            redis.Redis(port=server.port).xadd("orders", {"item": "tea"})

    Args:
        db: The store.
        **options: Options of the server's configuration (docs/reference/server-options.md), with underscores: `port`
            (6379; 0 = a free one), `bind`, `unixsocket`, `requirepass`, `maxclients` and so on.

    Returns:
        The running server. It ends with `Serving.close`, or when the store is closed.

    Raises:
        ConfigError: An option is invalid.
        OSError: The server cannot listen on the address.
        CannotOpen: The system gives no thread.
        StoreClosed: The store was closed.
    """
    core = db._core
    core.check_open()
    config = Config()
    config.start(options, fsync=db.fsync)
    config.place(core.root)
    if core.checkpoints is not None:
        config.adopt(core.checkpoints.options, db.fsync)
    return Serving(core, config)


def serve_forever(
    root: Path,
    config: Config,
    *,
    ready: Callable[[Server], None] | None = None,
    lock_timeout: float = 0.0,
    passed: socket.socket | None = None,
) -> int:
    """Open the store in a directory and serve it until SIGTERM, SIGINT or SHUTDOWN. Returns the exit code.

    Raises what `tidelog.open` and `Server.start` raise, and StoreClosed if the directory is removed meanwhile. A new
    store is created last, so that a server that cannot start leaves none behind. An existing store is opened first, so
    that a second server reports that the store is in use rather than the port.

    passed    the socket of the store's directory, from an owner that hands over
    """
    _allow_clients(config["maxclients"])
    config.on("maxclients", _allow_clients)  # before the server checks the limit
    new = is_new(root)
    less = choose_policy(root, config, new)
    options = make_options(**config.store_options())
    config.place(root)
    Acl(COMMANDS.table, COMMANDS.categories).load(config["users"])
    with ExitStack() as stack:
        core = None if new else stack.enter_context(_opened(root, options, lock_timeout))
        addresses = stack.enter_context(Addresses(config))
        if less:
            _warn(root, config)
        if core is None:
            core = stack.enter_context(_opened(root, options, lock_timeout))
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop_factory()))
        runner.run(_until_told(core, config, root, ready, addresses, passed))
        core.check_open()
    return 0


def choose_policy(root: Path, config: Config, new: bool) -> bool:
    """Choose the fsync policy if nobody has said one: always, but not for a store that had less until now.

    new    the store is about to be created

    Returns whether it is such a store, whose operator is to be warned.
    """
    if config.says("appendfsync") or config.owner or config.remembered:
        return False
    if not new:
        # opening the store tells what is wrong with it
        with suppress(TidelogError):
            new = was_served(root)
    if new:
        config.assume("appendfsync", "always")
    return not new


def _warn(root: Path, config: Config) -> None:
    _logger.warning(
        "the fsync policy is everysec, so a power cut may lose the last second: nobody has said one, and earlier "
        "versions served this store so. Say `always` or `everysec` with --fsync, or for good with `tidelog config %s "
        "set appendfsync=always port=%d`",
        *(shlex.quote(str(root)), config["port"]),
    )


@contextmanager
def _opened(root: Path, options: Options, lock_timeout: float) -> Iterator[Core]:
    core = open_core(root, options, None, SYSTEM, lock_timeout, served=True)
    _logger.info("opened %s, pid %d", root, os.getpid())
    try:
        yield core
    finally:
        close(core)
        _logger.info("closed %s", root)


async def _until_told(
    core: Core,
    config: Config,
    root: Path,
    ready: Callable[[Server], None] | None,
    addresses: Addresses,
    passed: socket.socket | None,
) -> None:
    server = Server(core, config, root)
    begun = False
    early: list[str] = []

    def stop(name: str) -> None:
        _logger.info("%s: stopping", name)
        if begun:
            server.stop(abortable=True)
        else:
            early.append(name)

    # These come before the server says that it listens, since a supervisor that reads it may send a signal at once.
    for number in (signal.SIGTERM, signal.SIGINT):
        server.loop.add_signal_handler(number, stop, number.name)
    await server.start(addresses, passed)
    begun = True
    if early:
        server.stop(abortable=True)
    # This process does nothing but serve. So exclude everything loaded so far from garbage collection, and collect less
    # often (docs/decisions/server.md).
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)
    if ready is not None:
        ready(server)
    await server.ended


def _allow_clients(clients: int) -> None:
    """Raise the limit of open files to fit this number of clients, as far as the system allows (as Redis does)."""
    wanted = clients + FILES_RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
        except (ValueError, OSError):
            pass  # `Server` warns about the lower limit


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return uvloop's loop factory if it is installed, else asyncio's."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
