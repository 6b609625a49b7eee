"""Raw sockets to a server: what was sent and what came, byte for byte as `tests.oracle.wire` reads it."""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence

from tests.oracle.wire import Connection, Form, Unfinished, decode


class Client(Connection):
    """A connection that can also be looked at without waiting."""

    def begin(self, *args: bytes) -> None:
        """Send a command whose reply is not waited for."""
        self.send([args])

    def arrived(self) -> list[Form]:
        """The replies that are here already."""
        while select.select([self._link], [], [], 0)[0]:
            piece = self._link.recv(1 << 16)
            if not piece:
                break
            self._buffer += piece
        forms: list[Form] = []
        while self._buffer:
            try:
                form, used = decode(self._buffer, 0)
            except Unfinished:
                break
            forms.append(form)
            del self._buffer[:used]
        return forms

    def raw(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._link.sendall(data)

    def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        data = bytes(self._buffer)
        self._buffer.clear()
        while True:
            try:
                piece = self._link.recv(1 << 16)
            except ConnectionResetError:
                return data
            if not piece:
                return data
            data += piece


def connect(port: int, host: str = "127.0.0.1") -> Client:
    """A new connection."""
    return Client(socket.create_connection((host, port), 60))


def calls(client: Connection, *commands: Sequence[bytes] | str) -> list[Form]:
    """The replies of commands; a string is split at blanks."""
    return client.pipeline([c.encode().split() if isinstance(c, str) else c for c in commands])
