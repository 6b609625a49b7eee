"""redis-cli as people use it: typed into a terminal, or run once per command."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
import time
from typing import Any

from tests.oracle.server import tool

WAIT_SECONDS = 60.0


class Typed:
    """An interactive redis-cli behind a terminal. `type` a line, and get what it shows for it."""

    def __init__(self, *options: str) -> None:
        self._terminal, inner = pty.openpty()
        modes = termios.tcgetattr(inner)
        modes[3] &= ~termios.ECHO
        termios.tcsetattr(inner, termios.TCSANOW, modes)
        self._process = subprocess.Popen(
            [tool("redis-cli", "redis-tools"), *options],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            env={**os.environ, "TERM": "dumb", "HOME": "/nonexistent", "REDISCLI_HISTFILE": os.devnull},
            start_new_session=True,
        )  # fmt: skip
        os.close(inner)
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def type(self, line: str) -> str:
        """The output until the next prompt, without the newline at its end."""
        self.send(line)
        return self._read()

    def send(self, line: str) -> None:
        os.write(self._terminal, line.encode() + b"\n")

    def shown(self) -> str:
        """The output until the next prompt, for a line that was sent."""
        return self._read()

    def _read(self) -> str:
        found = b""
        deadline = time.monotonic() + WAIT_SECONDS
        while not re.search(rb"(^|\n)[^\n>]*> $", found):
            left = deadline - time.monotonic()
            # not `select.select`, which refuses descriptors above 1,023
            poll = select.poll()
            poll.register(self._terminal, select.POLLIN)
            if left <= 0 or not poll.poll(left * 1000):
                raise TimeoutError(f"redis-cli shows no prompt, but {found!r}")
            found += os.read(self._terminal, 65536)
        text = found.replace(b"\r\n", b"\n").decode()
        return text.rpartition("\n")[0].rstrip("\n")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        os.close(self._terminal)

    def __enter__(self) -> Typed:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def run(options: list[str], *words: str, stdin: bytes = b"") -> tuple[int, str]:
    """The exit code and what it prints, of one redis-cli that is not interactive."""
    done = subprocess.run(
        [tool("redis-cli", "redis-tools"), *options, *words],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=WAIT_SECONDS,
    )
    return done.returncode, done.stdout.decode()


def shown(reply: Any, indent: int = 0) -> str:
    """A RESP2 reply as redis-cli shows it: an int, a str, None, a list; `Bare` is shown without quotes."""
    if isinstance(reply, Bare):
        return str(reply)
    if isinstance(reply, int):
        return f"(integer) {reply}"
    if reply is None:
        return "(nil)"
    if isinstance(reply, str):
        return f'"{reply}"'
    if not reply:
        return "(empty array)"
    width = len(str(len(reply)))
    lines = []
    for number, item in enumerate(reply, 1):
        label = f"{number:>{width}}) "
        start = " " * indent if number > 1 else ""
        lines.append(start + label + shown(item, indent + len(label)))
    return "\n".join(lines)


class Bare(str):
    """A status, or an error line."""
