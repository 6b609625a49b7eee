"""Link: a connection to a Redis, with sockets alone: the base installation has no client library."""

from __future__ import annotations

import select
import ssl
from typing import Any, Final, NoReturn

from tidelog.aof.layout import SHARED
from tidelog.api.closing import Closing
from tidelog.client.address import Address
from tidelog.resp.commands import encoded
from tidelog.resp.hints import CLOSED
from tidelog.tools.failed import Refused
from tidelog.tools.replica.client import Unreachable

CONNECT_S: Final = 10.0
TIMEOUT_S: Final = 60.0  # without a byte from the server
_RECEIVE_BYTES: Final = 256 << 10
_LINE_BYTES_MAX: Final = 64 << 10
_BULK_BYTES_MAX: Final = 1 << 30
_NESTED_MAX: Final = 8
_SHOWN: Final = 60
_ITEMS_MAX: Final = 1 << 20


class Link(Closing):
    """A connection that is signed in. Raises Unreachable, Refused."""

    def __init__(self, place: Address, timeout: float = TIMEOUT_S) -> None:
        self.place = place
        try:
            self.socket = place.dial(SHARED, CONNECT_S)
        except OSError as error:
            raise Unreachable(f"{place}: {place.reason(error)}") from None
        self.socket.settimeout(timeout)
        self._buffer = bytearray()  # received, and not read yet
        self._heard = False
        try:
            if place.password:
                user = (place.user.encode(),) if place.user else ()
                self.call(b"AUTH", *user, place.password.encode())
        except BaseException:
            self.close()
            raise

    def send(self, *commands: tuple[bytes, ...]) -> None:
        """Send commands."""
        try:
            self.socket.sendall(b"".join(map(encoded, commands)))
        except OSError as error:
            raise self._lost(error) from None

    def call(self, *words: bytes) -> Any:
        """The reply of one command: bytes, int, None or a list."""
        self.send(words)
        reply = self.reply()
        if isinstance(reply, ServerError):
            name = words[0].decode()
            raise Refused(f"{self.place} refused {name}: {reply.text}")
        return reply

    def pipeline(self, *commands: tuple[bytes, ...]) -> list[Any]:
        """The replies of many commands; an error is a ServerError in the list."""
        self.send(*commands)
        return [self.reply() for _ in commands]

    def reply(self, depth: int = 0) -> Any:
        """The next reply."""
        line = self.line()
        kind, text = line[:1], line[1:]
        if kind == b"+":
            return text
        if kind == b"-":
            return ServerError(text.decode("utf-8", "backslashreplace"))
        if kind in b":$*" and text.removeprefix(b"-").isdigit():
            number = int(text)
            if kind == b":":
                return number
            if number < 0:
                return None
            if kind == b"$" and number <= _BULK_BYTES_MAX:
                return self.exactly(number + 2)[:-2]
            if kind == b"*" and number <= _ITEMS_MAX and depth < _NESTED_MAX:
                return [self.reply(depth + 1) for _ in range(number)]
        self.refuse(line)

    def refuse(self, reply: Any) -> NoReturn:
        """Raise Refused for a reply that no Redis gives."""
        raise Refused(f"{self.place} does not answer as a Redis does: {repr(reply)[:_SHOWN]}")

    def text(self, *words: bytes) -> bytes:
        """The reply of a command that answers with a text."""
        reply = self.call(*words)
        if not isinstance(reply, bytes):
            self.refuse(reply)
        return reply

    def line(self) -> bytes:
        """The next line, without its end."""
        while (stop := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > _LINE_BYTES_MAX:
                self.refuse("a line without an end")
            self._receive()
        line = bytes(self._buffer[:stop]).removesuffix(b"\r")
        del self._buffer[: stop + 1]
        return line

    def exactly(self, count: int) -> bytes:
        """The next `count` bytes."""
        while len(self._buffer) < count:
            self._receive()
        return self.some(count)

    def some(self, count: int) -> bytes:
        """Some of the next bytes, at most `count`."""
        if not self._buffer:
            piece = self._piece()
            if len(piece) <= count:
                return piece  # the usual case: nothing is copied
            self._buffer += piece
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def ready(self, count: int, seconds: float) -> bytes:
        """As `some`. Raises TimeoutError if nothing comes for that long; nothing is lost then."""
        if not self._buffer and not self._decrypted():
            if not select.select((self.socket,), (), (), seconds)[0]:
                raise TimeoutError
        return self.some(count)

    def _decrypted(self) -> bool:
        return isinstance(self.socket, ssl.SSLSocket) and self.socket.pending() > 0

    def _receive(self) -> None:
        self._buffer += self._piece()

    def _piece(self) -> bytes:
        try:
            piece = self.socket.recv(_RECEIVE_BYTES)
        except OSError as error:
            raise self._lost(error) from None
        if not piece:
            did = CLOSED if self._heard else self.place.closed()
            raise Unreachable(f"{self.place} {did}")
        self._heard = True
        return piece

    def _lost(self, error: OSError) -> Unreachable:
        if isinstance(error, TimeoutError):
            return Unreachable(f"{self.place} sent nothing for {self.socket.gettimeout():g} s")
        return Unreachable(f"{self.place}: {error.strerror or error}")

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


class ServerError:
    """An error reply."""

    def __init__(self, text: str) -> None:
        self.text = text
