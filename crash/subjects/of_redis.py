"""Redis with its append-only file, synced for each command or every second.

Its manual (redis.conf, appendfsync) says:

    always    slowest and safest: the data is on disk before the reply is sent
    everysec  a disaster costs at most one second of data

A broken end of the file is cut at the start, as `aof-load-truncated` is by default.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from tidelog.crash.model import Contents
from tidelog.crash.oracle import Kind
from tidelog.crash.subjects.subject import CannotRun, Opened, Subject, admits
from tidelog.crash.trace import Unit
from tidelog.disk.real import RealDisk
from tidelog.resp.commands import encoded

PROGRAM: Final = "redis-server"
START_S: Final = 60.0
PAUSE_S: Final = 0.003
SOCKET_BYTES_MAX: Final = 100  # of a path


class RedisError(Exception):
    """The server ended, or answered with an error."""


class Redis:
    """One `appendfsync`. Each opening starts a server; it listens on a socket beside the directory of its data."""

    forked = False

    def __init__(
        self, appendfsync: str, promise: str, admitted: Mapping[str, frozenset[Kind]]
    ) -> None:
        self.name = f"redis-{appendfsync}"
        self.promise = promise
        self.admitted = admitted
        self._appendfsync = appendfsync

    def missing(self) -> str:
        try:
            subprocess.run([PROGRAM, "--version"], stdout=subprocess.DEVNULL)
        except OSError:
            return f"{PROGRAM} is not installed"
        return ""

    @contextmanager
    def open(self, root: Path) -> Iterator[Opened]:
        place = root.parent / f"{root.name}.sock"
        if len(str(place)) > SOCKET_BYTES_MAX:
            raise CannotRun(f"the path of a socket is too long: {place}")
        # fmt: off
        words = [
            PROGRAM, "--dir", str(root), "--port", "0", "--unixsocket", str(place), "--save", "",
            "--appendonly", "yes", "--appendfsync", self._appendfsync,
        ]
        # fmt: on
        server = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        try:
            connection = _connect(server, place)
            with connection, connection.makefile("rb") as replies:
                opened = _Opened(connection, replies)
                try:
                    opened.wait()
                except ConnectionError as error:
                    raise _ended(server) from error
                yield opened
                connection.sendall(encoded([b"SHUTDOWN"]))
            server.wait(START_S)
        finally:
            server.kill()
            server.wait()
            assert server.stdout is not None
            server.stdout.close()
            disk = RealDisk()
            if disk.exists(place):
                disk.unlink(place)


def _connect(server: subprocess.Popen[bytes], place: Path) -> socket.socket:
    end = time.monotonic() + START_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(START_S)
            connection.connect(str(place))
            return connection
        except (FileNotFoundError, ConnectionRefusedError):
            connection.close()
        if server.poll() is not None:
            raise _ended(server)
        if time.monotonic() > end:
            raise RedisError(f"the server did not listen within {START_S:.0f} s")
        time.sleep(PAUSE_S)


def _ended(server: subprocess.Popen[bytes]) -> RedisError:
    """The error of a server that ends by itself: the last line that it printed."""
    code = server.wait(START_S)
    assert server.stdout is not None
    lines = server.stdout.read().decode(errors="replace").strip().splitlines() or ["nothing"]
    before, _, said = lines[-1].rpartition(" # ")  # its number and the time come first
    return RedisError(f"the server ended with exit code {code}: {said or before}")


class _Opened:
    def __init__(self, connection: socket.socket, replies: BinaryIO) -> None:
        self._connection = connection
        self._replies = replies

    def wait(self) -> None:
        """Wait until the server has loaded its data, or ended."""
        while True:
            try:
                self._call([b"DBSIZE"])
                return
            except RedisError as error:
                if not str(error).startswith("LOADING"):
                    raise
            time.sleep(PAUSE_S)

    def do(self, unit: Unit) -> None:
        words = [[b"SET" if name == "set" else b"DEL", *rest] for name, *rest in unit]
        if len(words) > 1:
            words = [[b"MULTI"], *words, [b"EXEC"]]
        self._call(*words)

    def contents(self) -> Contents:
        keys = self._call([b"KEYS", b"*"])
        return dict(zip(keys, self._call([b"MGET", *keys]), strict=True)) if keys else {}

    def _call(self, *commands: list[bytes]) -> Any:
        """The last reply."""
        self._connection.sendall(b"".join(map(encoded, commands)))
        return [self._reply() for _ in commands][-1]

    def _reply(self) -> Any:
        line = self._replies.readline()
        kind, rest = line[:1], line[1:-2]
        match kind:
            case b"+" | b":":
                return rest
            case b"$":
                size = int(rest)
                return None if size < 0 else self._replies.read(size + 2)[:-2]
            case b"*":
                return [self._reply() for _ in range(int(rest))]
            case b"-":
                raise RedisError(rest.decode(errors="replace"))
            case _:
                raise ConnectionResetError("the server is gone")


SUBJECTS: Final[tuple[Subject, ...]] = (
    Redis("always", "durable", admits()),
    Redis("everysec", "the last second may be lost", admits(Kind.LOST)),
)
