"""Process: what the system tells of another process of this machine."""

from __future__ import annotations

from pathlib import Path


def words_of(pid: int) -> list[str]:
    """The command line of a process; empty if it is gone, or not for this user to see."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [word.decode("utf-8", "backslashreplace") for word in raw.split(b"\0")[:-1]]
