"""Owner processes of a test: found by LOCK, ended by their ID."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.until import until

from tidelog.aof.layout import SHARED
from tidelog.disk.process import environment


def owner_of(root: Path) -> int:
    """The ID of the process that has the store open, or had it open last."""
    return int((root / "LOCK").read_text())


def is_running(pid: int) -> bool:
    """Whether the process has not ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def kill(root: Path, number: int = signal.SIGKILL) -> int:
    """End the owner of a store, and wait until it is gone. Returns its ID."""
    pid = owner_of(root)
    assert pid != os.getpid()
    os.kill(pid, number)
    until(lambda: not is_running(pid), "the owner does not end")
    return pid


def owners(root: Path) -> list[int]:
    """Every process that was started as an owner of the store, also one that still waits for the lock."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if b"tidelog.client.owner" in words and str(root).encode() in words:
                found.append(int(folder.name))
    return found


@contextmanager
def ended_owner(root: Path) -> Iterator[None]:
    """At the end, end the owner of the store, and those that were about to be owners."""
    try:
        yield
    finally:
        while left := owners(root):
            for pid in left:
                try:
                    os.kill(pid, signal.SIGCONT)
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
            until(lambda: not any(map(is_running, left)), "the owner does not end")


@contextmanager
def served(root: Path, *words: str, ready: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """`tidelog serve`, as an operator starts it; ended by SIGTERM unless it has ended."""
    with subprocess.Popen(
        [sys.executable, "-m", "tidelog", "serve", str(root), *words],
        env=environment(), stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            if ready:
                until(lambda: has(root, process), "it does not serve")
            yield process
        finally:
            process.terminate()
            process.communicate()


def has(root: Path, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, (process.stderr and process.stderr.read()) or "it ended"
    try:
        return owner_of(root) == process.pid and (root / SHARED).exists()
    except (FileNotFoundError, ValueError):
        return False
