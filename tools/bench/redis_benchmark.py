"""redis-benchmark as the client of a race: the same program and arguments for every server."""

from __future__ import annotations

import csv
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.race import Contender
from tidelog.tools.bench.wire import STREAM

XADD = ("XADD", STREAM, "*", "user", "100042", "qty", "7")  # as messages.SMALL
CALLS_MAX = 4_000_000
# Calls of the first slice, which warms up a new server. With fewer calls, connecting would take most of the time.
WARM_CALLS = 20_000
STOP_S_MAX = 600


@dataclass(frozen=True)
class Load:
    """The work of redis-benchmark: a number of connections, each with a number of pipelined commands; always the same
    command.
    """

    clients: int
    pipeline: int = 1
    command: tuple[str, ...] = XADD

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
        done = subprocess.run(
            [program, *options, *self.command], capture_output=True, text=True, timeout=STOP_S_MAX
        )
        if done.returncode:
            raise RuntimeError(f"redis-benchmark failed: {done.stderr.strip() or done.stdout}")
        return parsed(done.stdout.splitlines())

    def against(self, server: Served) -> Benchmarked:
        """A side of a race."""
        return Benchmarked(server, self)


def parsed(lines: Sequence[str]) -> float:
    """Calls per second, from the lines of --csv. Raises RuntimeError if there is no such figure."""
    for row in csv.DictReader(lines):
        if row.get("rps"):
            return float(row["rps"])
    raise RuntimeError(f"redis-benchmark printed no rate: {list(lines)}")


class Benchmarked(Contender):
    """The seconds of a slice are those that redis-benchmark counts: its start and its connecting are left out.

    After each slice the stream is deleted, so that all begin with the same.
    """

    def __init__(self, server: Served, load: Load) -> None:
        def run(calls: int) -> None:
            self._rate = load.run(server.port, calls)

        def settle(calls: int) -> None:
            added, _ = server.client.xlen(STREAM), server.client.delete(STREAM)
            if load.command is XADD and added < calls:
                raise RuntimeError(f"{server.name} added only {added} of {calls} entries")

        quantum = load.clients * load.pipeline * 10  # enough for all connections to get going
        super().__init__(server.name, run, settle=settle, quantum=quantum, most=CALLS_MAX)

    def fit(self, slice_s: float) -> int:
        self.slice(max(WARM_CALLS, self.quantum))
        return super().fit(slice_s)

    def slice(self, count: int) -> float:
        super().slice(count)
        return count / self._rate
