"""Clients whose every XADD is followed by WAIT 1 in the same write, and who send the next one after both replies."""

from __future__ import annotations

import select
import socket
from contextlib import ExitStack

from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.race import Contender
from tidelog.tools.bench.wire import STREAM, connected, packed

TIMEOUT_MS = 5_000
REQUEST = packed("XADD", STREAM, "*", "user", "100042", "qty", "7") + packed(
    "WAIT", "1", str(TIMEOUT_MS)
)
STALLED_S = 10.0


def confirming(server: Served, clients: int, closing: ExitStack) -> Contender:
    """A side of a race: calls of XADD and WAIT 1 by so many connections, which are closed with `closing`."""
    lines = [closing.enter_context(connected(server.port)) for _ in range(clients)]

    def run(calls: int) -> None:
        add(lines, calls)

    return Contender(server.name, run, quantum=clients)


def add(lines: list[socket.socket], calls: int) -> None:
    """Let the connections make so many calls together. Raises RuntimeError if a write was not confirmed."""
    poll = select.epoll()
    by_fd = {line.fileno(): line for line in lines}
    replies = dict.fromkeys(by_fd, b"")
    sent = confirmed = 0
    for fd, line in by_fd.items():
        poll.register(fd, select.EPOLLIN)
        if sent < calls:
            line.sendall(REQUEST)
            sent += 1
    while confirmed < calls:
        ready = poll.poll(STALLED_S)
        if not ready:
            raise RuntimeError(f"only {confirmed} of {calls} calls were answered")
        for fd, _ in ready:
            data = replies[fd] + by_fd[fd].recv(1 << 16)
            if data.count(b"\r\n") < 3:  # the ID of a bulk reply has two of them
                replies[fd] = data
                continue
            if not data.startswith(b"$") or not data.endswith(b"\r\n:1\r\n"):
                raise RuntimeError(f"a write was not confirmed: {data!r}")
            replies[fd] = b""
            confirmed += 1
            if sent < calls:
                by_fd[fd].sendall(REQUEST)
                sent += 1
    poll.close()
