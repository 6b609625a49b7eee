"""A small file system that is really mounted, for tests of a full disk."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.exemptions import SMALL_DISK, exempt


@contextmanager
def small_disk(at: Path, size: str = "2m") -> Iterator[Path]:
    """Mount a tmpfs of `size`, as mount(8) writes it, on the new directory `at`. Ends the test where it is refused."""
    at.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(at)],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        exempt(SMALL_DISK, done.stderr.strip())
    try:
        yield at
    finally:
        unmount(at)


def resize(at: Path, size: str) -> None:
    """Give a mounted small file system another size."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(at)], check=True)


def unmount(at: Path) -> None:
    """Unmount at once, even if files are open."""
    subprocess.run(["umount", "-l", str(at)], check=True)
