"""A proxy on loopback between a follower and its leader, which cuts, stalls and damages what the leader sends."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

Change = Callable[[bytes, int], bytes]


class Proxy:
    """Listens on `port`. Attributes may be changed at any time; they hold for bytes that come after that.

    leader     port that it connects to
    limit      bytes from the leader that one connection passes on before it is cut; None = all
    change     what becomes of bytes from the leader, given with the number of those passed before
    open       cleared: no bytes pass in either direction
    pace       bytes a second that pass from the leader; None = as many as come
    count      connections so far
    """

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.limit: int | None = None
        self.change: Change = lambda data, at: data
        self.pace: int | None = None
        self.open = threading.Event()
        self.open.set()
        self.count = 0
        self._links: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            self.count += 1
            try:
                upstream = socket.create_connection(("127.0.0.1", self.leader), 60)
                upstream.settimeout(None)
            except OSError:
                link.close()
                continue
            self._links |= {link, upstream}
            for source, target, back in ((link, upstream, False), (upstream, link, True)):
                threading.Thread(
                    target=self._pass, args=(source, target, back), daemon=True
                ).start()

    def _pass(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        with closing(source), closing(target):
            try:
                self._pass_all(source, target, back)
            except OSError:
                pass  # one side has cut the connection; the other one hears of it too
            # A close alone would not end it, as the other thread still reads from it.
            for link in (source, target):
                self._links.discard(link)
                with suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def _pass_all(self, source: socket.socket, target: socket.socket, back: bool) -> None:
        at = 0
        while data := source.recv(self._piece(back)):
            self.open.wait()
            if back and (pace := self.pace) is not None:
                time.sleep(len(data) / pace)
            if back:
                count = len(data)
                if self.limit is not None:
                    data = data[: max(self.limit - at, 0)]
                target.sendall(self.change(data, at))
                at += count
                if self.limit is not None and at >= self.limit:
                    return
            else:
                target.sendall(data)

    def _piece(self, back: bool) -> int:
        pace = self.pace
        return 1 << 16 if pace is None or not back else max(pace // 10, 1)

    def stall_after(self, nbytes: int) -> threading.Event:
        """Pass no bytes any more once a connection has passed `nbytes` from the leader. Returns an event of that."""
        stalled = threading.Event()

        def stall(data: bytes, at: int) -> bytes:
            if at > nbytes:
                stalled.set()
                self.open.clear()
            return data

        self.change = stall
        return stalled

    @property
    def links(self) -> int:
        """Ends of connections that are open."""
        return len(self._links)

    def cut(self) -> None:
        """Cut all connections."""
        for link in list(self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Listen no more, and cut all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.open.set()
        self.cut()
