"""A real redis-server, 7.0 or 8.2, for comparisons byte for byte: raw bytes there, raw bytes back."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.oracle.server import SEVEN, Clock, OracleMissing, RedisServer, Release, directory
from tests.oracle.wire import encode

SENTINEL = b"$28\r\nthat was all there is to say\r\n"
_ASK = encode([b"ECHO", b"that was all there is to say"])


@contextmanager
def real_redis(release: Release = SEVEN) -> Iterator[tuple[RedisServer, Clock]]:
    """A running server and its clock; the test fails if the machine has none."""
    place = directory()
    try:
        clock = Clock(place)
        try:
            server = RedisServer(place, clock, "raw", release)
        except OracleMissing as missing:
            pytest.fail(str(missing), pytrace=False)
        try:
            yield server, clock
        finally:
            server.close()
    finally:
        shutil.rmtree(place)


class Raw:
    """A raw connection to it, or to the server at a port."""

    def __init__(self, server: RedisServer | int) -> None:
        if isinstance(server, int):
            self._link = socket.create_connection(("127.0.0.1", server), 60)
            return
        self._link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._link.settimeout(60)
        self._link.connect(str(server.socket))

    def ask(self, data: bytes) -> bytes:
        """All that it answers to `data`, which must end where a command does."""
        got = b""
        try:
            self._link.sendall(data + _ASK)
            while not got.endswith(SENTINEL):
                piece = self._link.recv(1 << 16)
                if not piece:
                    return got  # it has closed the connection
                got += piece
        except (BrokenPipeError, ConnectionResetError):
            return got
        return got.removesuffix(SENTINEL)

    def last(self, data: bytes) -> bytes:
        """All that it answers to `data`, and then it has to close the connection."""
        got = b""
        self._link.sendall(data)
        while piece := self._link.recv(1 << 16):
            got += piece
        return got

    def close(self) -> None:
        self._link.close()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def as_of_8(reply: object) -> object:
    """The reply of a 7.0 with the last line that HELP has since 7.2."""
    if isinstance(reply, list) and reply and reply[-1] == ("+", b"    Prints this help."):
        return [*reply[:-1], ("+", b"    Print this help.")]
    return reply
