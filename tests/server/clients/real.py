"""Real redis-server 7.0 for comparison: one on a free port with the system's clock, one on a clock that a test sets."""

from __future__ import annotations

import datetime
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.oracle import server as oracle
from tests.server.ports import free_port

from tidelog import testing

START_MS = 1_692_632_000_000


def wait_until_served(port: int, process: subprocess.Popen[bytes]) -> None:
    """Until it answers. It listens earlier, and reads its directory only then."""
    deadline = time.monotonic() + oracle.START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as link:
                link.sendall(b"PING\r\n")
                if link.recv(16) == b"+PONG\r\n":
                    return
        except OSError:
            pass
        time.sleep(0.01)
    raise RuntimeError("redis-server did not start")


@contextmanager
def real_redis(directory: Path) -> Iterator[int]:
    """A redis-server that keeps nothing; its port."""
    port = free_port()
    command = [oracle.tool("redis-server", "redis-server"), "--port", str(port), "--save", ""]
    command += ["--bind", "127.0.0.1", "--dir", str(directory), "--enable-debug-command", "yes"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until_served(port, process)
        yield port
    finally:
        process.terminate()
        process.wait(60)


class Clocks:
    """One time for a redis-server and for a store. It stands still until it is moved."""

    def __init__(self, theirs: oracle.Clock) -> None:
        self.now_ms = START_MS
        start = datetime.datetime.fromtimestamp(START_MS / 1000, datetime.UTC)
        self.ours, self._theirs = testing.Clock(start), theirs
        theirs.set(START_MS)

    def set(self, now_ms: int) -> None:
        """Let time pass up to then."""
        self.ours.advance((now_ms - self.now_ms) / 1000)
        self._theirs.set(now_ms)
        self.now_ms = now_ms

    def advance(self, ms: int) -> None:
        self.set(self.now_ms + ms)


@contextmanager
def clocked_redis() -> Iterator[tuple[oracle.RedisServer, Clocks]]:
    """A redis-server whose clock, and that of a store beside it, the test moves. It listens on a unix socket."""
    place = oracle.directory()
    try:
        clock = oracle.Clock(place)
        clocks = Clocks(clock)
        server = oracle.RedisServer(place, clock)
        try:
            yield server, clocks
        finally:
            server.close()
    finally:
        shutil.rmtree(place)
