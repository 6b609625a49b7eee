"""Servers in processes of their own on loopback: `tidelog serve` and redis-server, and redis-benchmark as a client."""

from __future__ import annotations

import csv
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import redis

from bench.figure import OURS
from bench.messages import BATCH, SMALL
from bench.race import Contender
from bench.wire import STREAM, connected, packed
from bench.worker import ROOT, anonymous_bytes, environment

START_S_MAX: Final = 300.0  # with ten million commands to replay
STOP_S_MAX: Final = 60.0
XADD: Final = ("XADD", STREAM, "*", "user", "100042", "qty", "7")  # as messages.SMALL
# Calls of a first slice, which warms up a new server. With fewer calls, connecting would take most of the time.
WARM_CALLS: Final = 20_000


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Served:
    """The process, from its start until `close`, which waits for its end.

    name, version    as of a Worker
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        port: int,
        env: dict[str, str] | None = None,
        version: int = 0,
    ) -> None:
        self.name, self.version, self.port = name, version, port
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env)
        self.client: Any = redis.Redis(port=port, protocol=2, socket_timeout=60)
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

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
        self.client.execute_command(*arguments)

    def feed(self, batches: Iterable[bytes]) -> None:
        """Send packed commands and wait until all are done. The server sends no replies."""
        with closing(connected(self.port)) as line:
            line.sendall(packed("CLIENT", "REPLY", "OFF"))
            for batch in batches:
                line.sendall(batch)
            line.sendall(packed("CLIENT", "REPLY", "ON"))
            if line.recv(64) != b"+OK\r\n":
                raise RuntimeError(f"{self.name} did not confirm the commands")

    def anonymous(self) -> int:
        """Anonymous memory of the process now, in bytes."""
        return anonymous_bytes(self._process.pid)

    def cpu_s(self) -> float:
        """Seconds of processor time that its threads have used."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def close(self) -> None:
        self.client.close()
        self._process.terminate()
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class TidelogServer(Served):
    """`tidelog serve` of a store in `directory`, by the tidelog of `source`. It makes no checkpoint before its end,
    because redis-server is configured to save nothing either.
    """

    def __init__(
        self, directory: Path, appendfsync: str, source: Path = ROOT / "src", version: int = 0
    ) -> None:
        port = free_port()
        command = [sys.executable, "-P", "-m", "tidelog", "serve", str(directory / "store")]
        # fmt: off
        options = [
            "--port", str(port), "--bind", "127.0.0.1", "--fsync", appendfsync, "--loglevel", "warning",
            "--option", "save=", "--option", "auto-aof-rewrite-percentage=0",
        ]
        # fmt: on
        super().__init__(OURS, [*command, *options], port, environment(source), version)

    @classmethod
    def starter(cls, source: Path, version: int) -> Callable[[Path, str], Served]:
        """A function that starts such a server of one version."""
        return lambda directory, appendfsync: cls(directory, appendfsync, source, version)


class RedisServer(Served):
    """A new redis-server: free loopback port, AOF in `directory`, no RDB.

    Raises FileNotFoundError if redis-server is not installed.
    """

    def __init__(self, directory: Path, appendfsync: str) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("redis-server is not in PATH")
        port = free_port()
        # fmt: off
        options = {
            "port": str(port), "bind": "127.0.0.1", "dir": str(directory), "save": "",
            "appendonly": "yes", "appendfsync": appendfsync, "auto-aof-rewrite-percentage": "0",
            "enable-debug-command": "yes", "logfile": "redis.log",
            # These spare the 5 s before a full resync, and the 10 s in which its end waits for replicas.
            "repl-diskless-sync-delay": "0", "shutdown-timeout": "0",
        }
        # fmt: on
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        super().__init__("redis-server", [program, *arguments], port)


def adding(count: int) -> Iterable[bytes]:
    """XADDs of `count` entries to one stream, whole batches only; the commands are packed once."""
    batch = b"".join(
        packed("XADD", STREAM, "*", *(word for pair in fields.items() for word in pair))
        for fields in SMALL.some(BATCH)
    )
    for _ in range(count // BATCH):
        yield batch


@dataclass(frozen=True)
class Load:
    """The work of redis-benchmark: XADDs by a number of connections, each with a number of pipelined commands."""

    clients: int
    pipeline: int = 1

    @property
    def shown(self) -> str:
        return f"-c {self.clients} -P {self.pipeline}"

    def run(self, port: int, calls: int) -> float:
        """Calls per second. Raises FileNotFoundError without the program, RuntimeError if it fails."""
        program = shutil.which("redis-benchmark")
        if program is None:
            raise FileNotFoundError("redis-benchmark is not in PATH")
        # fmt: off
        options = [
            "-p", str(port), "-c", str(self.clients), "-P", str(self.pipeline), "-n", str(calls), "--csv",
        ]
        # fmt: on
        done = subprocess.run([program, *options, *XADD], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"redis-benchmark failed: {done.stderr.strip() or done.stdout}")
        return parsed(done.stdout.splitlines())

    def against(self, server: Served) -> Contender:
        """A side of a race. The seconds of a slice are those that redis-benchmark counts: its start and its connecting
        are left out. After each slice the stream is deleted, so that all begin with the same.
        """

        def slice(calls: int) -> tuple[float, float]:
            before = server.cpu_s()
            rate = self.run(server.port, calls)
            spent = server.cpu_s() - before
            added, _ = server.client.xlen(STREAM), server.client.delete(STREAM)
            if added < calls:
                raise RuntimeError(f"{server.name} added only {added} of {calls} entries")
            return calls / rate, spent

        quantum = self.clients * self.pipeline * 10  # enough for all connections to get going
        slice(max(WARM_CALLS, quantum))
        return Contender(server.name, slice, quantum, version=server.version)


def parsed(lines: Sequence[str]) -> float:
    """Calls per second, from the lines of --csv. Raises RuntimeError if there is no such figure."""
    for row in csv.DictReader(lines):
        if row.get("rps"):
            return float(row["rps"])
    raise RuntimeError(f"redis-benchmark printed no rate: {list(lines)}")
