"""Servers as processes, to be followed, cut off and killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis
from tests.server.ports import free_port
from tests.until import until

CHILD = Path(__file__).with_name("child.py")


class Node:
    """A store in `root`, and the server process over it while it runs. Options as words: `appendfsync=always`."""

    def __init__(self, root: Path, *options: str) -> None:
        self.root = root
        self.options = options
        self.port = free_port()
        self.errors = root.with_suffix(".log")
        self._child: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> Node:
        """Start it, on the same port each time."""
        with self.errors.open("ab") as errors:
            self._child = child = subprocess.Popen(
                [
                    sys.executable,
                    str(CHILD),
                    str(self.root),
                    *self.options,
                    f"port={self.port}",
                    *options,
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert child.stdout is not None
        line = child.stdout.readline()
        assert line, self.errors.read_text()
        assert int(line) == self.port
        return self

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal. Does nothing if it does not run."""
        child, self._child = self._child, None
        if child is None:
            return
        child.send_signal(number)
        try:
            child.wait(60)
        finally:
            child.kill()
            child.wait()
            assert child.stdout is not None
            child.stdout.close()

    def send(self, number: int) -> None:
        """Send it a signal, and do not wait."""
        assert self._child is not None
        self._child.send_signal(number)

    def returned(self) -> int | None:
        """The exit code of its process; None while that runs."""
        assert self._child is not None
        return self._child.poll()

    def kill(self) -> None:
        """kill -9."""
        self.end(signal.SIGKILL)

    def client(self) -> Any:
        """A redis.Redis."""
        return redis.Redis(port=self.port, protocol=2, socket_timeout=90)

    def follow(self, port: int) -> None:
        """Make it follow the server on this port."""
        with self.client() as client:
            assert client.execute_command("REPLICAOF", "127.0.0.1", str(port))

    def lsn(self) -> int:
        """Of its last record."""
        with self.client() as client:
            found: int = client.info("replication")["master_repl_offset"]
            return found

    def is_followed(self) -> bool:
        """Whether a follower is connected."""
        with self.client() as client:
            return bool(client.info("replication")["connected_slaves"])

    def is_linked(self) -> bool:
        """Whether its link to the leader is up."""
        with self.client() as client:
            return bool(client.info("replication")["master_link_status"] == "up")

    def follows(self, port: int) -> bool:
        """Whether it follows the server on this port, and its link is up."""
        with self.client() as client:
            return bool(client.role()[:4] == [b"slave", b"127.0.0.1", port, b"connected"])

    def digest(self) -> bytes:
        """Of everything it holds. Needs `enable-debug-command`."""
        with self.client() as client:
            found: bytes = client.execute_command("DEBUG", "DIGEST")
            return found


def caught_up(leader: Node, follower: Node) -> None:
    """Until the follower has everything that its leader has, and nobody writes."""
    # A leader that has started again logs its EPOCH when the follower comes back, so its LSN counts only from then on.
    until(leader.is_followed, "no follower connects")
    until(follower.is_linked, "the follower does not connect")
    lsn = leader.lsn()
    until(lambda: follower.lsn() >= lsn, "the follower does not catch up")


@contextmanager
def ended(*nodes: Node) -> Iterator[None]:
    """Kill the processes at the end."""
    try:
        yield
    finally:
        for node in nodes:
            node.kill()
