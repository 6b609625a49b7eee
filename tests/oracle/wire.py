"""RESP2 without loss: what hiredis folds together (null bulk and null array, status and bulk) stays apart.

A reply becomes a `Form`, plain comparable Python:

    int             :n               ("+", b"OK")         simple string
    bytes           bulk string      ("-", b"ERR ...")    error line
    None            null bulk        ("*-1",)             null array
    list            array
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Form = Any
NULL_ARRAY: Form = ("*-1",)
OK: Form = ("+", b"OK")
QUEUED: Form = ("+", b"QUEUED")

REPLY_SECONDS_MAX = 60.0  # a server that stays silent so long hangs


def error(line: bytes) -> Form:
    return ("-", line)


def is_error(form: Form) -> bool:
    return isinstance(form, tuple) and form[0] == "-"


def encode(args: Sequence[bytes]) -> bytes:
    """One command as a RESP array."""
    parts = [b"*%d\r\n" % len(args)]
    for arg in args:
        parts.append(b"$%d\r\n%b\r\n" % (len(arg), arg))
    return b"".join(parts)


class Unfinished(Exception):
    """The buffer ends inside a reply."""


def decode(buffer: bytes | bytearray, offset: int) -> tuple[Form, int]:
    """The reply that starts at `offset`, and where the next one starts. Raises Unfinished."""
    end = buffer.find(b"\r\n", offset)
    if end < 0:
        raise Unfinished
    kind = buffer[offset]
    after = end + 2
    if kind == 0x24:  # $
        size = int(buffer[offset + 1 : end])
        if size < 0:
            return None, after
        stop = after + size
        if len(buffer) < stop + 2:
            raise Unfinished
        return bytes(buffer[after:stop]), stop + 2
    if kind == 0x3A:  # :
        return int(buffer[offset + 1 : end]), after
    if kind == 0x2A:  # *
        count = int(buffer[offset + 1 : end])
        if count < 0:
            return NULL_ARRAY, after
        items = []
        for _ in range(count):
            item, after = decode(buffer, after)
            items.append(item)
        return items, after
    if kind == 0x2B:  # +
        return ("+", bytes(buffer[offset + 1 : end])), after
    if kind == 0x2D:  # -
        return ("-", bytes(buffer[offset + 1 : end])), after
    raise ValueError(f"no RESP2 reply starts with {chr(kind)!r}")


class Connection:
    """A blocking connection. Commands go out in batches, replies come back in order."""

    def __init__(self, link: socket.socket) -> None:
        link.settimeout(REPLY_SECONDS_MAX)
        self._link = link
        self._buffer = bytearray()

    @classmethod
    def to_socket(cls, path: Path) -> Connection:
        """A connection to the server that listens on this Unix socket. Raises OSError."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            link.connect(str(path))
        except OSError:
            link.close()
            raise
        return cls(link)

    def send(self, commands: Iterable[Sequence[bytes]]) -> None:
        self._link.sendall(b"".join(map(encode, commands)))

    def receive(self) -> Form:
        while True:
            try:
                form, used = decode(self._buffer, 0)
            except Unfinished:
                self._fill()
                continue
            del self._buffer[:used]
            return form

    def _fill(self) -> None:
        piece = self._link.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server closed the connection")
        self._buffer += piece

    def pipeline(self, commands: Sequence[Sequence[bytes]]) -> list[Form]:
        """Replies of all commands. A batch must fit the socket buffers both ways: keep it to hundreds."""
        self.send(commands)
        replies: list[Form] = []
        offset = 0
        while len(replies) < len(commands):
            try:
                form, offset = decode(self._buffer, offset)
                replies.append(form)
            except Unfinished:
                del self._buffer[:offset]
                offset = 0
                self._fill()
        del self._buffer[:offset]
        return replies

    def call(self, *args: bytes) -> Form:
        return self.pipeline([args])[0]

    def close(self) -> None:
        self._link.close()
