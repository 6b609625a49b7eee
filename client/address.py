"""Addresses: where a shared store is, as `tidelog.connect` takes it.

orders-data                     the directory of a store on this machine
redis://user:word@host:6379/0   a server elsewhere; rediss:// with TLS, whose options client/tls.py lists
unix:///run/orders.sock?db=1    a server on a Unix socket
redis+sentinel://a:26379,b:26379,c:26379/orders/0
                                the leader that these Sentinels know by the name `orders`; rediss+sentinel:// with TLS
"""

from __future__ import annotations

import errno
import os
import socket
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tidelog.aof.layout import SHARED
from tidelog.client.tls import FILES, Tls, of_query
from tidelog.disk import unix_socket
from tidelog.resp import hints
from tidelog.resp.urls import shown
from tidelog.store.errors import DataError

SENTINEL: Final = "+sentinel"
SCHEMES: Final = ("redis", "rediss", "unix", "redis" + SENTINEL, "rediss" + SENTINEL)
PORT: Final = 6379
SENTINEL_PORT: Final = 26379
_TLS: Final = {*FILES, "ssl_cert_reqs"}
LOOK_S: Final = 1.0  # a socket of this machine is connected to at once, unless the server hangs


@dataclass(frozen=True)
class Address:
    """One server.

    Attributes:
        root: The store's directory, if the server is found by its path; else None.
        host: Host, or the path of a Unix socket.
        port: Port; 0 for a Unix socket.
        tls: How to use TLS; None = do not.
        user: Name of the user, empty = the default user.
        password: Password; None = do not sign in.
        db: Number of the database.
        service: If the server is a Sentinel, the name of the leader that it is asked for; else empty. User, password
            and database are those of the leader.
    """

    root: Path | None = None
    host: str = ""
    port: int = 0
    tls: Tls | None = None
    user: str = ""
    password: str | None = field(default=None, repr=False)
    db: int = 0
    service: str = ""

    def __str__(self) -> str:
        if self.root is not None:
            return str(self.root)
        host = f"[{self.host}]" if ":" in self.host and self.port else self.host
        return f"{host}:{self.port}" if self.port else host

    def reason(self, error: Exception) -> str:
        """Why there is no connection, with what to do."""
        return hints.reason(error, hints.URL, tls=self.tls is not None)

    def closed(self) -> str:
        """The words for a server that hung up before it answered, with what to do."""
        return hints.closed(hints.URL if self.port else None, tls=self.tls is not None)

    def dial(self, name: str, seconds: float) -> socket.socket:
        """Connect. `name` is that of the socket in a store's directory. Raises OSError."""
        if self.root is not None:
            return _of_this_user(unix_socket.connect_in(self.root, name, seconds))
        if not self.port:
            path = Path(self.host)
            return unix_socket.connect_in(path.parent, path.name, seconds)
        link = socket.create_connection((self.host, self.port), seconds)
        if self.tls is None:
            return link
        try:
            return self.tls.context().wrap_socket(link, server_hostname=self.host)
        except BaseException:
            link.close()
            raise


def _of_this_user(link: socket.socket) -> socket.socket:
    """The connection, if the server belongs to this user or to root. Raises PermissionError: anybody may listen in a
    directory that others can write to, and would get this user's data.
    """
    mine = os.geteuid()
    if mine and unix_socket.peer_uid(link) not in (0, mine):
        link.close()
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return link


def is_served(root: Path) -> bool:
    """Whether a process serves the store in this directory."""
    try:
        unix_socket.connect_in(root, SHARED, LOOK_S).close()
    except OSError:
        return False
    return True


def addresses_of(where: Any) -> list[Address]:
    """The addresses that a path, a URL or several URLs name. Raises DataError."""
    given: list[Any] = list(where) if isinstance(where, list | tuple) else [where]
    if not given:
        raise DataError("connect needs a path or a URL")
    found = []
    for each in given:
        if not isinstance(each, str | bytes | os.PathLike):
            raise DataError(f"connect takes paths and URLs, not {each!r}")
        found += _parse_all(os.fsdecode(each))
    if len(found) > 1 and any(address.root is not None for address in found):
        raise DataError("several addresses must be URLs; a path is one store on this machine")
    return found


def with_tls(addresses: list[Address], ca: Any, certificate: Any, key: Any) -> list[Address]:
    """The addresses with these files of TLS; None = what the URL says. Raises DataError, if a file is wrong, too."""
    ca, certificate, key = (
        None if path is None else os.fsdecode(path) for path in (ca, certificate, key)
    )
    found = []
    for address in addresses:
        tls = address.tls
        if tls is not None:
            tls = Tls(
                tls.ca if ca is None else ca,
                tls.certificate if certificate is None else certificate,
                tls.key if key is None else key,
                tls.checks,
            )
            tls.context()
        elif (ca, certificate, key) != (None, None, None):
            raise DataError(f"tls_ca, tls_cert and tls_key need the URL rediss://, not {address}")
        found.append(replace(address, tls=tls))
    return found


def _parse_all(name: str) -> list[Address]:
    """The addresses of one path or URL: several for a URL of Sentinels."""
    scheme, separator, rest = name.partition("://")
    if not separator or not scheme.endswith(SENTINEL) or scheme not in SCHEMES:
        return [parse(name)]
    rest, mark, query = rest.partition("?")
    place, _, path = rest.partition("/")
    signs, at, hosts = place.rpartition("@")
    service, _, db = path.partition("/")
    if not service:
        raise DataError(
            f"{shown(name)!r} does not name the leader; write {scheme}://HOST:PORT,.../NAME"
        )
    plain = scheme.removesuffix(SENTINEL)
    found = []
    for host in hosts.split(","):
        # The default port of a Sentinel is another one.
        port = "" if host.rpartition("]")[2].count(":") else f":{SENTINEL_PORT}"
        given = parse(f"{plain}://{signs}{at}{host}{port}/{db}{mark}{query}")
        found.append(replace(given, service=unquote(service)))
    return found


def parse(where: str | os.PathLike[str]) -> Address:
    """The address that a path or a URL names. Raises DataError."""
    name = os.fsdecode(where)
    told = shown(name)
    if not name or "\0" in name:
        raise DataError(f"{told!r} is neither the path of a store nor a URL")
    scheme, separator, _ = name.partition("://")
    if not separator:
        return Address(Path(name).absolute())
    if scheme not in SCHEMES:
        raise DataError(
            f"{told!r}: the scheme of a URL must be one of {', '.join(SCHEMES)}; a path has none"
        )
    try:
        parts = urlsplit(name)
        port = parts.port or PORT
    except ValueError:  # its text may have a part of the password
        raise DataError(
            f"{told!r} has no valid host and port; write a / in a password as %2F, and other signs likewise"
        ) from None
    user = unquote(parts.username or "")
    password = None if parts.password is None else unquote(parts.password)
    query = {option: given[-1] for option, given in parse_qs(parts.query).items()}
    known = {"unix": {"db"}, "rediss": _TLS}.get(scheme, set())
    if not known >= query.keys():
        wrong = ", ".join(sorted(query.keys() - known))
        raise DataError(f"{told!r}: a URL of {scheme} has no option {wrong}")
    if scheme == "unix":
        found = query.get("db", "0")
        if not parts.path:
            raise DataError(f"{told!r} names no socket; write unix:///path/of/the.sock")
        return Address(None, unquote(parts.path), 0, None, user, password, _db(told, found))
    if not parts.hostname:
        raise DataError(f"{told!r} names no host")
    db = _db(told, parts.path.strip("/") or "0")
    tls = of_query(told, query) if scheme == "rediss" else None
    return Address(None, parts.hostname, port, tls, user, password, db)


def _db(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 15:
        raise DataError(f"{name!r}: the database must be a number from 0 to 15")
    return int(text)
