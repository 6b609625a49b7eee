"""Ask a server one question, with sockets alone: the base installation has no client library."""

from __future__ import annotations

from typing import BinaryIO, Final

import click

from tidelog.aof.layout import SHARED
from tidelog.client.address import SENTINEL, Address, parse
from tidelog.resp.commands import encoded
from tidelog.store.errors import DataError
from tidelog.tools import exits
from tidelog.tools.failed import Failed, Refused

TIMEOUT_S: Final = 10.0
REPLY_BYTES_MAX: Final = 64 << 20
_LINE_BYTES_MAX: Final = 64 << 10


class Unreachable(Failed):
    """The server does not answer."""

    exit_code = exits.SYSTEM


def is_url(text: str) -> bool:
    """Whether this names a server, and not a directory."""
    return "://" in text


def place_of(url: str) -> Address:
    """The server that a URL names, as for `tidelog.connect`; `tidelog://` is the same as `redis://`.

    Raises click.BadParameter.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise click.BadParameter("give the URL of a server, as redis://HOST:PORT")
    if scheme.endswith(SENTINEL):
        raise click.BadParameter("give the address of one server, and not of Sentinels")
    try:
        return parse(f"redis://{rest}" if scheme == "tidelog" else url)
    except DataError as error:
        raise click.BadParameter(str(error)) from None


def ask(place: Address, *words: bytes, timeout: float = TIMEOUT_S) -> bytes:
    """Send one command and return its reply, a string. Raises Unreachable, Refused; DataError for a file of TLS."""
    try:
        with place.dial(SHARED, timeout) as link, link.makefile("rb") as replies:
            if place.password:
                user = (place.user.encode(),) if place.user else ()
                link.sendall(encoded((b"AUTH", *user, place.password.encode())))
                _reply(replies, place)
            link.sendall(encoded(words))
            return _reply(replies, place)
    except OSError as error:
        raise Unreachable(f"{place}: {place.reason(error)}") from None


def _reply(replies: BinaryIO, place: Address) -> bytes:
    """The next reply. Raises Unreachable, Refused."""
    line = replies.readline(_LINE_BYTES_MAX)
    if not line:
        raise Unreachable(f"{place} {place.closed()}")
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
