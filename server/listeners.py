"""Listeners: the addresses a server listens on: TCP, TLS, a Unix socket, and HTTP for its metrics.

Who connects by TLS is no client yet while both sides agree on keys, but has a descriptor of ours already. `Handshakes`
bounds how many those are, and for how long: else a peer that says nothing could take all of them, and the log could not
open its next file.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from tidelog.disk import unix_socket
from tidelog.server.config import ConfigError
from tidelog.server.connection import Connection, address_name
from tidelog.server.logs import VERBOSE
from tidelog.server.tls import context

if TYPE_CHECKING:
    from tidelog.server.metrics import Metrics
    from tidelog.server.server import Server

# An address of `bind` with a `-` before it may be missing on this machine; these are other troubles.
_NOT_MISSING: Final = (errno.EADDRINUSE, errno.EACCES)

HANDSHAKE_S: Final = 10.0  # after so long the peer is given up
HANDSHAKES_SPARE: Final = 4  # above `maxclients`: who is one too many can be told so only by TLS

_logger = logging.getLogger("tidelog.server")


class Listeners:
    """What one server listens on.

    ports    (kind, address), kind being tcp, tls, unix or http
    """

    def __init__(self, server: Server) -> None:
        self.ports: list[tuple[str, str]] = []
        self.handshakes = Handshakes(server)
        self.metrics: Metrics | None = None
        self._server = server
        self._listening: list[asyncio.Server] = []
        self._unix: str | None = None

    async def start(self) -> None:
        """Listen. Raises OSError, which names the address, and ConfigError for certificates that cannot be read."""
        server = self._server
        config = server.config
        try:
            for kind, port, tls in (
                ("tcp", config["port"], None),
                ("tls", config["tls-port"], context(config) if config["tls-port"] else None),
            ):
                if port or (kind == "tcp" and config.ephemeral):
                    await self._listen(kind, port, tls)
            if config["unixsocket"]:
                mode = int(config["unixsocketperm"], 8)
                listening = unix_socket.bind(config["unixsocket"], mode)
                self._unix = config["unixsocket"]
                self._listening.append(
                    await server.loop.create_unix_server(
                        lambda: Connection(server, "unix"), sock=listening
                    )
                )
                self.ports.append(("unix", config["unixsocket"]))
            if not self.ports:
                raise ConfigError(
                    "nobody could reach it: name a port, a Unix socket, or an address of this machine"
                )
            if config["metrics-port"]:
                try:
                    from tidelog.server.metrics import Metrics  # not with the rest: few ask for it
                except ImportError as error:
                    raise ConfigError(
                        f"metrics-port needs what `pip install 'tidelog[server]'` installs: {error}"
                    ) from error
                self.metrics = Metrics(server)
                self.metrics.start()
                self.ports.append(("http", f"{config['metrics-bind']}:{config['metrics-port']}"))
        except BaseException:
            self.stop()
            raise
        for kind, address in self.ports:
            _logger.info("listening on %s (%s)", address, kind)

    async def _listen(self, kind: str, port: int, tls: ssl.SSLContext | None) -> None:
        """On every address of `bind` (as in Redis, with `-` before those that may be missing)."""
        config, loop = self._server.config, self._server.loop
        for word in config["bind"].split():
            host = word.removeprefix("-")
            make = partial(Connection, self._server, kind)
            try:
                listening = await loop.create_server(
                    make if tls is None else partial(_Accepted, self.handshakes, make, tls),
                    None if host == "*" else host,
                    port,
                    backlog=config["tcp-backlog"],
                    reuse_address=True,
                )
            except OSError as error:
                if word.startswith("-") and error.errno not in _NOT_MISSING:
                    continue
                raise OSError(
                    error.errno, f"cannot listen on {host} port {port}: {error.strerror or error}"
                ) from error
            self._listening.append(listening)
            for each in listening.sockets:
                name = each.getsockname()
                port = port or name[1]  # the same on every address, where the system chose it
                self.ports.append(
                    (kind, f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}")
                )

    def port(self, kind: str = "tcp") -> int:
        """The port that is listened on, which the system may have chosen; 0 = none."""
        for found, address in self.ports:
            if found == kind:
                return int(address.rpartition(":")[2])
        return 0

    def stop(self) -> None:
        """Listen no more. Twice is allowed."""
        for listener in self._listening:
            listener.close()
        self._listening = []
        if self._unix is not None:
            unix_socket.remove(self._unix)
            self._unix = None
        if self.metrics is not None:
            self.metrics.stop()
            self.metrics = None


class Handshakes:
    """The TLS connections that are no clients yet."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._under_way: dict[Connection, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self, link: socket.socket, peer: str, connection: Connection, tls: ssl.SSLContext
    ) -> None:
        """A peer has connected."""
        server = self._server
        if len(server.sessions) + len(self) >= server.clients_max + HANDSHAKES_SPARE:
            link.close()
            server.stats.connections_received += 1
            server.stats.rejected_connections += 1
            return
        shaking = self._shake(link, peer, connection, tls)
        self._under_way[connection] = server.loop.create_task(shaking)

    def end(self, connection: Connection) -> None:
        """It is a client now, or gone."""
        self._under_way.pop(connection, None)

    async def _shake(
        self, link: socket.socket, peer: str, connection: Connection, tls: ssl.SSLContext
    ) -> None:
        try:
            await self._server.loop.connect_accepted_socket(
                lambda: connection, link, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:
            why = str(error) or "it has closed the connection"
            _logger.log(VERBOSE, "no TLS with %s: %s", peer, why)
        finally:
            self.end(connection)


class _Accepted(asyncio.Protocol):
    """Takes a socket out of the hands of the loop's server, which does not tell of a handshake that fails."""

    def __init__(
        self, handshakes: Handshakes, make: Callable[[], Connection], tls: ssl.SSLContext
    ) -> None:
        self._handshakes = handshakes
        self._make = make
        self._tls = tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        link = transport.get_extra_info("socket").dup()
        cast(asyncio.Transport, transport).abort()  # nothing was read yet
        peer = address_name(transport.get_extra_info("peername"))
        self._handshakes.begin(link, peer, self._make(), self._tls)
