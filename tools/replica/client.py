"""Ask a server one question, with sockets alone: the base installation has no client library."""

from __future__ import annotations

import socket
import ssl
from typing import BinaryIO, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import click

from tidelog.resp.commands import encoded
from tidelog.tools import exits
from tidelog.tools.failed import Failed

SCHEMES: Final = ("redis", "rediss", "tidelog")
PORT_DEFAULT: Final = 6379
TIMEOUT_S: Final = 10.0
REPLY_BYTES_MAX: Final = 64 << 20
_LINE_BYTES_MAX: Final = 64 << 10


class Unreachable(Failed):
    """The server does not answer."""

    exit_code = exits.SYSTEM


class Refused(Failed):
    """The server answers with an error, or is none of tidelog's."""

    exit_code = exits.REFUSED


class Place(NamedTuple):
    """A server, and how to sign in there. `tls`: verify its certificate with the system's CA certificates."""

    host: str
    port: int
    user: str
    password: str
    tls: bool

    def __str__(self) -> str:
        """Without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def is_url(text: str) -> bool:
    """Whether this names a server, and not a directory."""
    return "://" in text


def place_of(url: str) -> Place:
    """The server in `redis://[[user]:password@]host[:port]`. Raises click.BadParameter."""
    wrong = f"a server is given as {'|'.join(SCHEMES)}://[[user]:password@]host[:port]"
    try:
        parts = urlsplit(url)
        port = parts.port or PORT_DEFAULT
    except ValueError as error:
        raise click.BadParameter(f"{wrong}: {error}") from None
    rest = parts.path.strip("/") or parts.query or parts.fragment
    if parts.scheme not in SCHEMES or not parts.hostname or rest:
        raise click.BadParameter(wrong)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    return Place(parts.hostname, port, user, password, parts.scheme == "rediss")


def ask(place: Place, *words: bytes, timeout: float = TIMEOUT_S) -> bytes:
    """Send one command and return its reply, a string. Raises Unreachable, Refused."""
    try:
        with socket.create_connection((place.host, place.port), timeout) as plain:
            with secured(plain, place) as link, link.makefile("rb") as replies:
                if place.password:
                    user = (place.user.encode(),) if place.user else ()
                    link.sendall(encoded((b"AUTH", *user, place.password.encode())))
                    _reply(replies, place)
                link.sendall(encoded(words))
                return _reply(replies, place)
    except TimeoutError:
        raise Unreachable(f"{place} did not answer within {timeout:g} s") from None
    except OSError as error:
        raise Unreachable(f"{place}: {error.strerror or error}") from None


def secured(plain: socket.socket, place: Place) -> socket.socket:
    """The connection, over TLS if the place asks for it. Raises OSError."""
    if not place.tls:
        return plain
    return ssl.create_default_context().wrap_socket(plain, server_hostname=place.host)


def _reply(replies: BinaryIO, place: Place) -> bytes:
    """The next reply. Raises Unreachable, Refused."""
    line = replies.readline(_LINE_BYTES_MAX)
    if not line:
        raise Unreachable(f"{place} closed the connection")
    kind, text = line[:1], line[1:].rstrip(b"\r\n")
    if kind == b"-":
        raise Refused(f"{place} refused: {text.decode(errors='replace')}")
    if kind == b"+":
        return text
    if kind == b"$" and text.isdigit() and int(text) <= REPLY_BYTES_MAX:
        data = replies.read(int(text))
        if len(data) == int(text):
            return data
    raise Refused(f"{place} gave no answer of a tidelog server")
