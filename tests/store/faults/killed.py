"""A process that works on a store until it is killed."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import time
from pathlib import Path

CHILD = Path(__file__).with_name("kill_child.py")


def run_and_kill(
    directory: Path,
    policy: str,
    delay_s: float,
    child_file: Path = CHILD,
    *words: str,
    lines: int = 0,
) -> list[bytes]:
    """Start the writer, kill it `delay_s` after it was ready and had told its first lines; all whole lines it wrote."""
    child = subprocess.Popen(
        [sys.executable, str(child_file), str(directory), policy, *words], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    received = bytearray()
    deadline: float | None = None
    try:
        while True:
            timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
            if deadline is not None and timeout == 0.0:
                break
            readable, _, _ = select.select([child.stdout], [], [], timeout)
            if not readable:
                break
            piece = child.stdout.raw.read(1 << 16)  # type: ignore[attr-defined]
            assert piece, f"the writer ended by itself with {child.wait()}"
            received += piece
            if deadline is None and b"ready\n" in received and received.count(b"\n") > lines:
                deadline = time.monotonic() + delay_s
        child.send_signal(signal.SIGKILL)
        received += child.stdout.read()
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
    return bytes(received).split(b"\n")[:-1]
