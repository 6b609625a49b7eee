"""A server in a separate process, on a free port of loopback, with its memory and processor time."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import redis

from tidelog.tools.bench.processes.fresh import anonymous_bytes
from tidelog.tools.bench.wire import STREAM

START_S_MAX = 300.0  # with ten million commands to replay
STOP_S_MAX = 60.0


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Served:
    """The process, from its start until `close`, which waits for its end.

    name      of the contender
    ready_s   seconds until it answered a first XLEN
    """

    def __init__(self, name: str, command: Sequence[str], port: int) -> None:
        self.name = name
        self.port = port
        start = time.perf_counter()
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.client = self.connect()
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise
        self.ready_s = time.perf_counter() - start

    def connect(self) -> redis.Redis:
        return redis.Redis(port=self.port, protocol=2, socket_timeout=60)

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + START_S_MAX
        while True:
            try:
                self.client.xlen(STREAM)
                return
            except redis.ConnectionError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.005)

    def command(self, *arguments: str) -> None:
        """Run one command and ignore its reply. Raises redis.ResponseError."""
        self.client.execute_command(*arguments)  # type: ignore[no-untyped-call]

    def anonymous(self) -> int:
        """Anonymous memory of the process now, in bytes."""
        return anonymous_bytes(self._process.pid)

    def cpu_s(self) -> float:
        """Seconds of processor time that all its threads have used, with the kernel's resolution (mostly 10 ms)."""
        # The program's name is in parentheses and may contain anything, so split only after the last parenthesis. utime
        # and stime are fields 14 and 15 of the whole line.
        text = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        self.client.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
