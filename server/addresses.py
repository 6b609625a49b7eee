"""Addresses: the sockets of a server, bound but not yet listened on, and the certificates for TLS.

They need nothing but the configuration. So `tidelog serve` makes them before it creates a store: a port that is in use
or a certificate that is missing leaves no new store behind. `Listeners` takes them over.
"""

from __future__ import annotations

import errno
import importlib
import os
import socket
from types import TracebackType
from typing import Final, NamedTuple, Self

from tidelog.disk import unix_socket
from tidelog.server.config import Config, ConfigError
from tidelog.server.tls import context

# An address of `bind` with a `-` before it may be missing on this machine; these are other troubles.
_NOT_MISSING: Final = (errno.EADDRINUSE, errno.EACCES)


class Address(NamedTuple):
    """One bound socket. `kind`: tcp, tls, unix or http; `name` as it is shown."""

    kind: str
    name: str
    link: socket.socket


class Addresses:
    """All addresses that a configuration names.

    bound    in the order in which they are named
    tls      the context for those of kind tls, None without any
    """

    def __init__(self, config: Config) -> None:
        """Raises OSError, which names the address, and ConfigError for certificates that cannot be read."""
        self.bound: list[Address] = []
        self.tls = context(config) if config["tls-port"] else None
        try:
            if config["port"] or config.ephemeral:
                self._bind_all("tcp", config, config["port"])
            if config["tls-port"]:
                self._bind_all("tls", config, config["tls-port"])
            path: str = config["unixsocket"]
            if path:
                link = unix_socket.bind(path, int(config["unixsocketperm"], 8))
                self.bound.append(Address("unix", path, link))
            if not self.bound:
                raise ConfigError(
                    "nobody could reach it: name a port, a Unix socket, or an address of this machine"
                )
            if config["metrics-port"]:
                self._bind_metrics(config)
        except BaseException:
            self.close()
            raise

    def _bind_all(self, kind: str, config: Config, port: int) -> None:
        """Every address of `bind` (as in Redis, with `-` before those that may be missing)."""
        for word in config["bind"].split():
            host = word.removeprefix("-")
            try:
                links = _bind(None if host == "*" else host, port)
            except OSError as error:
                if word.startswith("-") and error.errno not in _NOT_MISSING:
                    continue
                raise _cannot_listen(host, port, error) from error
            for link in links:
                name = link.getsockname()
                port = port or name[1]  # the same on every address, where the system chose it
                shown = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
                self.bound.append(Address(kind, shown, link))

    def _bind_metrics(self, config: Config) -> None:
        try:
            importlib.import_module("prometheus_client")
        except ImportError as error:
            raise ConfigError(
                f"metrics-port needs what `pip install 'tidelog[server]'` installs: {error}"
            ) from error
        host, port = config["metrics-bind"], config["metrics-port"]
        try:
            [link, *others] = _bind(host, port)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        for other in others:  # a name with several addresses: HTTP has one
            other.close()
        self.bound.append(Address("http", f"{host}:{port}", link))

    def taken(self) -> list[Address]:
        """All of them, for the caller to close. `close` leaves them alone from now on."""
        bound, self.bound = self.bound, []
        return bound

    def close(self) -> None:
        """Close what nobody took. Twice is allowed."""
        for address in self.taken():
            address.link.close()
            if address.kind == "unix":
                unix_socket.remove(address.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _bind(host: str | None, port: int) -> list[socket.socket]:
    """A socket for each address that a name stands for; None: for all addresses of this machine."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    links: list[socket.socket] = []
    try:
        for family, type_, protocol, _, address in dict.fromkeys(found):
            try:
                link = socket.socket(family, type_, protocol)
            except OSError:
                if len(found) == 1:
                    raise
                continue  # a machine without IPv6 may know its addresses
            links.append(link)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # The same port on every address, where the system chose the first one.
            chosen = port or (links[0].getsockname()[1] if len(links) > 1 else 0)
            link.bind((address[0], chosen, *address[2:]))
            link.setblocking(False)
    except BaseException:
        for link in links:
            link.close()
        raise
    return links


def _cannot_listen(host: str, port: int, error: OSError) -> OSError:
    known = error.errno is not None and not isinstance(error, socket.gaierror)
    why = os.strerror(error.errno or 0).lower() if known else error.strerror or str(error)
    return OSError(error.errno, f"cannot listen on {host} port {port}: {why}")
