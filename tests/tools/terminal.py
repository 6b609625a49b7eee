"""Programs that run on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys


def on_a_terminal(*args: object, width: int = 200) -> tuple[str, str]:
    """The output of the command line to a terminal on standard output, and to one on standard error."""
    said = []
    ends = [pty.openpty(), pty.openpty()]
    script = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        f"from tidelog.tools import cli; sys.exit(cli.run({[str(arg) for arg in args]!r}))"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=ends[0][1],
        stderr=ends[1][1],
        env={**os.environ, "TERM": "xterm", "COLUMNS": str(width)},
    )
    assert child.wait(120) == 0
    for master, slave in ends:
        os.close(slave)
        parts = []
        try:
            while part := os.read(master, 65536):
                parts.append(part)
        except OSError:
            pass  # a terminal whose other side is closed reads as an error
        os.close(master)
        said.append(b"".join(parts).decode())
    return said[0], said[1]
