"""A relay on loopback between a follower and its leader, which can be cut and comes back at the same port."""

from __future__ import annotations

import socket
import threading
from contextlib import AbstractContextManager, closing, suppress


class Relay(AbstractContextManager["Relay"]):
    """Passes bytes between its `port` and the leader's. While it is cut, connections are refused."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._lines: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._listen()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._close(self._listener)
        for line in list(self._lines):
            self._close(line)

    def mend(self) -> None:
        """Accept connections again."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._listen()

    def __exit__(self, *error: object) -> None:
        self.cut()

    def _listen(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                leader = socket.create_connection(("127.0.0.1", self._leader))
                for one in (line, leader):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._lines.add(one)
                for ends in ((line, leader), (leader, line)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with closing(source), closing(target), suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
            self._close(target)
        self._lines.discard(source)

    @staticmethod
    def _close(line: socket.socket) -> None:
        with suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
        line.close()
