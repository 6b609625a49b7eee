"""The server's event loop, held up by a test: what clients send meanwhile, it finds at once."""

from __future__ import annotations

import fcntl
import struct
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.server.conftest import Running
from tests.server.wire import Client
from tests.until import PATIENCE_S, until


@contextmanager
def loop_held(running: Running) -> Iterator[None]:
    """Within, the loop does nothing."""
    held, gate = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert gate.wait(PATIENCE_S)

    running.server.loop.call_soon_threadsafe(hold)
    assert held.wait(PATIENCE_S)
    try:
        yield
    finally:
        gate.set()


def in_one_turn(running: Running, clients: Sequence[Client], sent: Sequence[bytes]) -> None:
    """Send to clients that the server knows already, so that its loop finds all of it in one turn."""
    ends = {s.connection.addr: s.connection.fd for s in list(running.server.sessions.values())}
    with loop_held(running):
        for client, data in zip(clients, sent, strict=True):
            host, port = client._link.getsockname()
            client.raw(data)
            # The kernel may still be carrying it.
            until(lambda: _unread(ends[f"{host}:{port}"]) == len(data), "it does not arrive")


def _unread(fd: int) -> int:
    """Bytes that have arrived at a socket, and that nobody has read yet."""
    found: tuple[int] = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))
    return found[0]
