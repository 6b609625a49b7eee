"""Listeners: the addresses a server listens on: TCP, TLS, a Unix socket, and HTTP for its metrics."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from typing import TYPE_CHECKING, Final

from tidelog.disk import unix_socket
from tidelog.server.config import ConfigError
from tidelog.server.connection import Connection
from tidelog.server.tls import context

if TYPE_CHECKING:
    from tidelog.server.metrics import Metrics
    from tidelog.server.server import Server

# An address of `bind` with a `-` before it may be missing on this machine; these are other troubles.
_NOT_MISSING: Final = (errno.EADDRINUSE, errno.EACCES)

_logger = logging.getLogger("tidelog.server")


class Listeners:
    """What one server listens on.

    ports    (kind, address), kind being tcp, tls, unix or http
    """

    def __init__(self, server: Server) -> None:
        self.ports: list[tuple[str, str]] = []
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
            try:
                listening = await loop.create_server(
                    lambda: Connection(self._server, kind),
                    None if host == "*" else host,
                    port,
                    ssl=tls,
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
