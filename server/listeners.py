"""Listeners: accept connections on a server's addresses (addresses.py): TCP, TLS, a Unix socket, HTTP for metrics.

During the TLS handshake a peer is not a client yet, but it already holds a file descriptor. `Handshakes` limits their
number and duration. Otherwise silent peers could use up all descriptors, and the log could not open its next segment.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from tidelog.aof.layout import SHARED
from tidelog.disk import unix_socket
from tidelog.server.addresses import Address, Addresses
from tidelog.server.connection import Connection, ConnectionHost, address_name
from tidelog.server.monitoring.logs import VERBOSE
from tidelog.server.reserve import SEATS, Reserve

if TYPE_CHECKING:
    from tidelog.server.monitoring.metrics import Metrics

SHARED_MODE: Final = 0o600
PASSED: Final = b"+PASSED\r\n"  # comes with the socket that a process is given
_STRANGER: Final = b"-DENIED this socket is for processes of the user who serves the store\r\n"
HANDSHAKE_S: Final = 10.0  # then the connection is closed
# handshakes allowed above `maxclients` and the reserve, because even a refusal is sent over TLS
HANDSHAKES_SPARE: Final = 4

_logger = logging.getLogger("tidelog.server")


class Listeners:
    """The listening sockets of one server.

    ports      (kind, address), kind being tcp, tls, unix or http
    reserve    the seats for operators
    sharing    the task that makes the socket of the store's directory again
    """

    def __init__(self, server: ConnectionHost, reserve: Reserve) -> None:
        self.reserve = reserve
        self.ports: list[tuple[str, str]] = []
        self.handshakes = Handshakes(server)
        self.metrics: Metrics | None = None
        self._server = server
        self._listening: list[asyncio.Server] = []
        self._files: list[str] = []  # of Unix sockets
        # that of the socket in the store's directory, the socket's path, and the socket
        self._shared: tuple[asyncio.Server, str, socket.socket] | None = None
        self.sharing: asyncio.Task[None] | None = None

    async def start(self, addresses: Addresses | None = None) -> None:
        """Listen on these addresses, or on the configured ones.

        Raises as `Addresses`, and OSError if another process has begun to listen on one of them meanwhile.
        """
        server = self._server
        addresses = addresses or Addresses(server.config)
        bound = addresses.taken()
        try:
            while bound:
                await self._listen(bound[0], addresses.tls)
                self.ports.append((bound[0].kind, bound[0].name))
                del bound[0]  # from now on `stop` closes it
        except BaseException:
            for address in bound:
                address.link.close()
                if address.kind == "unix":
                    unix_socket.remove(address.name)
            self.stop()
            raise
        for kind, name in self.ports:
            _logger.info("listening on %s (%s)", name, kind)

    async def _listen(self, address: Address, tls: ssl.SSLContext | None) -> None:
        server, loop = self._server, self._server.loop
        make = partial(Connection, server, address.kind)
        try:
            if address.kind == "http":
                from tidelog.server.monitoring.metrics import Metrics  # lazily: few servers need it

                self.metrics = Metrics(server)
                self.metrics.start(address.link)
            elif address.kind == "unix":
                self._listening.append(await loop.create_unix_server(make, sock=address.link))
                self._files.append(address.name)
            else:
                if address.kind == "tls":
                    assert tls is not None
                    accept: Callable[[], asyncio.Protocol] = partial(
                        _Accepted, self.handshakes, make, tls
                    )
                else:
                    accept = make
                backlog = server.config["tcp-backlog"]
                self._listening.append(
                    await loop.create_server(accept, sock=address.link, backlog=backlog)
                )
        except OSError as error:
            raise OSError(
                error.errno, f"cannot listen on {address.name}: {error.strerror or error}"
            ) from error

    async def share(self, root: Path, passed: socket.socket | None = None) -> None:
        """Listen on the socket in the store's directory, whose lock this process holds. Raises OSError.

        passed    that socket, from an owner that has handed over; clients wait in its queue
        """
        path = str(root / SHARED)
        if passed is not None and not os.path.lexists(path):
            passed.close()  # somebody has removed its name, so nobody finds it
            passed = None
        link = passed or unix_socket.bind_in(root, SHARED, SHARED_MODE)
        link.setblocking(False)
        # `stop` removes the name, or keeps it for another process.
        keeps: dict[str, Any] = {"cleanup_socket": False} if sys.version_info >= (3, 13) else {}
        try:
            make = partial(_SharedSocket, self._server, path)
            listener = await self._server.loop.create_unix_server(make, sock=link, **keeps)
        except BaseException:
            link.close()
            unix_socket.remove(path)
            raise
        if self._shared is not None:
            self._shared[0].close()
            self._listening.remove(self._shared[0])
            self._files.remove(path)
        self._shared = listener, path, link
        self._listening.append(listener)
        self._files.append(path)

    @property
    def lost_share(self) -> bool:
        """Whether somebody has removed the socket of the store's directory, as cleaners of temporary files do."""
        return self._shared is not None and not os.path.lexists(self._shared[1])

    def port(self, kind: str = "tcp") -> int:
        """The port in use, which the system may have chosen; 0 = none."""
        for found, address in self.ports:
            if found == kind:
                return int(address.rpartition(":")[2])
        return 0

    def pass_on(self, connection: object) -> bool:
        """Send the socket of the store's directory to a client of it. False if it is a client of another one."""
        if not isinstance(connection, _SharedSocket) or self._shared is None:
            return False
        fd = connection.transport.get_extra_info("socket").fileno()
        unix_socket.pass_on(fd, PASSED, self._shared[2])
        return True

    def stop(self, *, keep_share: bool = False) -> None:
        """Stop listening. May be called twice.

        keep_share    another process listens on the socket of the store's directory
        """
        if keep_share and self._shared is not None:
            self._files.remove(self._shared[1])
        self._shared = None
        for listener in self._listening:
            listener.close()
        self._listening = []
        while self._files:
            unix_socket.remove(self._files.pop())
        if self.metrics is not None:
            self.metrics.stop()
            self.metrics = None


class Handshakes:
    """The TLS connections whose handshake is running."""

    def __init__(self, server: ConnectionHost) -> None:
        self._server = server
        self._under_way: dict[Connection, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._under_way)

    def begin(
        self, link: socket.socket, peer: str, connection: Connection, tls: ssl.SSLContext
    ) -> None:
        """Start the handshake with a new peer, or close the socket if there are too many."""
        server = self._server
        if len(server.sessions) + len(self) >= server.clients_max + SEATS + HANDSHAKES_SPARE:
            link.close()
            server.stats.connections_received += 1
            server.stats.rejected_connections += 1
            return
        shaking = self._shake(link, peer, connection, tls)
        self._under_way[connection] = server.loop.create_task(shaking)

    def end(self, connection: Connection) -> None:
        """The handshake is over: the peer is a client now, or gone."""
        self._under_way.pop(connection, None)

    async def _shake(
        self, link: socket.socket, peer: str, connection: Connection, tls: ssl.SSLContext
    ) -> None:
        try:
            await self._server.loop.connect_accepted_socket(
                lambda: connection, link, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
            )
        except OSError as error:
            why = str(error) or "the client closed the connection"
            _logger.log(VERBOSE, "TLS handshake with %s failed: %s", peer, why)
        finally:
            self.end(connection)


class _SharedSocket(Connection):
    """A connection to the socket in the store's directory. A process of the same user could open the store's files, so
    it needs no password.
    """

    operates = False

    def __init__(self, server: ConnectionHost, path: str) -> None:
        super().__init__(server, "unix")
        self._path = path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.addr = self.laddr = f"{self._path}:0"
        if unix_socket.peer_uid(transport.get_extra_info("socket")) not in (0, os.geteuid()):
            self.send(_STRANGER)
            self.close_soon()
            return
        self.session.authenticated = True
        self.session.settle()


class _Accepted(asyncio.Protocol):
    """Takes over an accepted socket from the loop's server, which does not report failed handshakes."""

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
