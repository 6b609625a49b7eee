"""Dial: the address of a leader, and the bytes that a follower sends and reads until the leader accepts it.

A follower connects to the RESP port, so passwords, users, TLS and firewalls work as for any client. It sends

    HELLO 3 [AUTH user password]
    TIDELOG FOLLOW ...                  replication/protocol.py has the words and the replies

Bytes in, bytes out: this module opens no sockets.
"""

from __future__ import annotations

import socket
import ssl
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from tidelog.replication.errors import LinkError
from tidelog.resp.commands import encoded
from tidelog.store.errors import DataError

REPLY_BYTES_MAX: Final = 64 << 10  # of both replies together; a leader sends a few hundred
PORT_DEFAULT: Final = 6379
_MILLISECONDS_MAX: Final = (1 << 31) - 1
_USER_DEFAULT: Final = "default"
_DEPTH_MAX: Final = 8


class Address(NamedTuple):
    """Where the leader is, and how to sign in there.

    user    "" = the default user
    tls     None = plain TCP
    """

    host: str
    port: int
    user: str = ""
    password: str = ""
    tls: ssl.SSLContext | None = None

    def __str__(self) -> str:
        """Without the password: for log lines."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def address_of(url: str, tls: ssl.SSLContext | bool | None = None) -> Address:
    """The address in `tidelog://[user:password@]host[:port]`. Raises DataError.

    tls     True = verify the leader's certificate with the system's CA certificates
    """
    wrong = "the leader's address must be tidelog://[user:password@]host[:port]"
    try:
        parts = urlsplit(url)
        port = parts.port or PORT_DEFAULT
    except ValueError as error:
        raise DataError(f"{wrong}: {error}") from None
    if parts.scheme != "tidelog" or not parts.hostname or parts.path not in ("", "/"):
        raise DataError(wrong)
    if parts.query or parts.fragment:
        raise DataError(wrong)
    context = ssl.create_default_context() if tls is True else tls or None
    return Address(
        parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or ""), context
    )


def give_up_after(connection: socket.socket, seconds: float) -> None:
    """Let the system end a TCP connection when what was sent is not acknowledged for so long."""
    milliseconds = min(int(seconds * 1000), _MILLISECONDS_MAX)  # about 25 days
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def greeting(address: Address) -> bytes:
    """The first command on a new connection."""
    words = [b"HELLO", b"3"]
    if address.password:
        user = address.user or _USER_DEFAULT
        words += b"AUTH", user.encode(), address.password.encode()
    return encoded(words)


class Replies:
    """Splits what the leader answers into replies.

    buffered    bytes that were put and are not part of a taken reply: behind the last reply, the link's messages
    """

    def __init__(self) -> None:
        self.buffered = bytearray()

    def put(self, data: bytes) -> None:
        """Add bytes that arrived. Raises LinkError if that is more than any leader answers."""
        self.buffered += data

    def take(self) -> bytes | None:
        """The first line of the next whole reply, as `+OK`; None if it has not arrived. Raises LinkError."""
        end = self._end(0, 0)
        if end < 0:
            if len(self.buffered) > REPLY_BYTES_MAX:
                raise LinkError("the leader's answer is too long: is it a tidelog server?")
            return None
        line = bytes(self.buffered[: self.buffered.index(b"\r\n")])
        del self.buffered[:end]
        return line

    def _end(self, at: int, depth: int) -> int:
        """Where the reply that begins at `at` ends; -1: it is not whole."""
        if depth > _DEPTH_MAX:
            raise LinkError("the leader's answer is nested too deeply: is it a tidelog server?")
        after = self.buffered.find(b"\r\n", at, at + REPLY_BYTES_MAX) + 2
        if after < 2:
            return -1
        kind = self.buffered[at : at + 1]
        if kind in b"+-:_,#(":
            return after if kind else -1
        try:
            count = int(self.buffered[at + 1 : after - 2])
        except ValueError:
            count = -2
        if count < -1 or count > REPLY_BYTES_MAX or kind not in b"$=*~%>":
            raise LinkError("the leader's answer is not RESP: is it a tidelog server?")
        if kind in b"$=":
            end = after + max(count, -2) + 2 if count >= 0 else after
            return end if end <= len(self.buffered) else -1
        for _ in range(count * (2 if kind == b"%" else 1)):
            after = self._end(after, depth + 1)
            if after < 0:
                return -1
        return after
