"""A redis-server that writes an append-only file, in a directory of its own and by the wall clock."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

from tests.oracle.server import SEVEN, START_SECONDS_MAX, Release
from tests.oracle.wire import Connection


class Ended(Exception):
    """The server ended at its start. The message is its log."""


class Appending:
    """One running server. `stop` ends it as it should be ended, `kill` as a crash does; `start` starts it again."""

    def __init__(self, directory: Path, release: Release = SEVEN, **options: str) -> None:
        self.directory = directory
        self.socket = directory / "s"
        self._program = release.program()
        self._options = options
        self.start()

    def start(self) -> None:
        arguments = {
            "--port": "0",
            "--unixsocket": str(self.socket),
            "--save": "",
            "--appendonly": "yes",
            "--appendfsync": "no",
            "--dir": str(self.directory),
            "--logfile": str(self.directory / "log"),
            "--enable-debug-command": "yes",
            **{f"--{name.replace('_', '-')}": value for name, value in self._options.items()},
        }
        self._process = subprocess.Popen(
            [self._program, *(word for pair in arguments.items() for word in pair)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            try:
                with closing(self.connect()) as link:  # which a server that ends breaks off
                    reply = link.call(b"PING")
                if reply == ("+", b"PONG") or reply[1].startswith(b"NOAUTH"):
                    return
            except OSError:
                pass
            if self._process.poll() is not None:
                raise Ended((self.directory / "log").read_text(errors="replace"))
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def connect(self) -> Connection:
        return Connection.to_socket(self.socket)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        if self._process.poll() is None:
            os.kill(self._process.pid, with_signal)
            self._process.wait()
