"""Addresses: a server's sockets, bound but not yet listening, and the certificates for TLS.

They need only the configuration, so `tidelog serve` makes them before it creates a store: if a port is in use or a
certificate is missing, no new store is left behind. `Listeners` takes them over.
"""

from __future__ import annotations

import errno
import importlib
import os
import socket
from typing import Final, NamedTuple

from tidelog.api.closing import Closing
from tidelog.disk import unix_socket
from tidelog.server.config.config import Config, ConfigError, PackageMissing
from tidelog.server.tls import context

# With a `-` prefix, an address of `bind` may be missing on this machine. These two errors do not mean that it is
# missing, so they are always raised.
_NOT_MISSING: Final = (errno.EADDRINUSE, errno.EACCES)


# The option that gives the port of a kind.
_PORTS: Final = {"tcp": "port", "tls": "tls-port"}


class Address(NamedTuple):
    """One bound socket. `kind`: tcp, tls, unix or http; `name`: for display."""

    kind: str
    name: str
    link: socket.socket


class Addresses(Closing):
    """All addresses that a configuration names.

    bound    in configuration order
    tls      the context for those of kind tls, None without any
    """

    def __init__(self, config: Config) -> None:
        """Bind all of them. Raises OSError, which names the address, and ConfigError for unreadable certificates."""
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
            alone = config["idle-exit"] or config.remembered
            if not self.bound and not (config["shared-socket"] and alone):
                raise ConfigError(
                    "the server would listen nowhere: set port, unixsocket, or bind to an address of this machine"
                )
            if config["metrics-port"]:
                self._bind_metrics(config)
        except BaseException:
            self.close()
            raise

    def _bind_all(self, kind: str, config: Config, port: int) -> None:
        """Bind every address of `bind`. As in Redis, an address with a `-` prefix may be missing."""
        for word in config["bind"].split():
            host = word.removeprefix("-")
            try:
                links = _bind(None if host == "*" else host, port)
            except OSError as error:
                if word.startswith("-") and error.errno not in _NOT_MISSING:
                    continue
                raise _cannot_listen(host, port, error, _PORTS[kind]) from error
            for link in links:
                name = link.getsockname()
                port = port or name[1]  # if the system chose it: the same for all
                shown = f"[{name[0]}]:{name[1]}" if ":" in name[0] else f"{name[0]}:{name[1]}"
                self.bound.append(Address(kind, shown, link))

    def _bind_metrics(self, config: Config) -> None:
        try:
            importlib.import_module("prometheus_client")
        except ImportError as error:
            raise PackageMissing(
                f"metrics-port needs more packages: run `pip install 'tidelog[server]'` ({error})"
            ) from error
        host, port = config["metrics-bind"], config["metrics-port"]
        try:
            [link, *others] = _bind(host, port)
        except OSError as error:
            raise _cannot_listen(host, port, error, "metrics-port") from error
        for other in others:  # the name has several addresses: HTTP uses one
            other.close()
        self.bound.append(Address("http", f"{host}:{port}", link))

    def taken(self) -> list[Address]:
        """Hand all of them to the caller, who has to close them."""
        bound, self.bound = self.bound, []
        return bound

    def close(self) -> None:
        """Close the addresses that were not taken. May be called twice."""
        for address in self.taken():
            address.link.close()
            if address.kind == "unix":
                unix_socket.remove(address.name)


def _bind(host: str | None, port: int) -> list[socket.socket]:
    """Return a bound socket for each address of a host name; None: all addresses of this machine."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    links: list[socket.socket] = []
    try:
        for family, type_, protocol, _, address in dict.fromkeys(found):
            try:
                link = socket.socket(family, type_, protocol)
            except OSError:
                if len(found) == 1:
                    raise
                continue  # for example an IPv6 address on a machine without IPv6: skip it
            links.append(link)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                link.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            # If the system chose the first port, use this port for the other addresses too.
            chosen = port or (links[0].getsockname()[1] if len(links) > 1 else 0)
            link.bind((address[0], chosen, *address[2:]))
            link.setblocking(False)
    except BaseException:
        for link in links:
            link.close()
        raise
    return links


def _cannot_listen(host: str, port: int, error: OSError, option: str) -> OSError:
    known = error.errno is not None and not isinstance(error, socket.gaierror)
    why = os.strerror(error.errno or 0).lower() if known else error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        why += f"; `ss -ltnp` names the process that has it. End that one, or choose another `{option}`"
    return OSError(error.errno, f"cannot listen on {host} port {port}: {why}")
