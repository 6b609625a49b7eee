"""A process and all that it started: their processor time, and the memory of Spark's Python workers.

A session consists of the Python driver, the JVM, one daemon that the JVM starts, and the workers that the daemon forks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
DAEMON = b"pyspark.daemon"


def cpu_s(root: int) -> float:
    """Seconds of processor time that a process and its descendants have used, those that ended included."""
    return sum(_times(pid) for pid in (root, *descendants(root)))


def each_cpu_s(root: int) -> dict[int, float]:
    """Seconds of processor time that each of these processes has used itself, by its number."""
    return {pid: sum(map(int, _stat(pid)[11:13])) / TICKS for pid in (root, *descendants(root))}


def workers(root: int) -> list[int]:
    """The Python workers of the session in process `root`: children of its daemons."""
    found = descendants(root)
    daemons = {pid for pid in found if DAEMON in _read(pid, "cmdline")}
    return [pid for pid in found if pid in daemons and _parent(pid) in daemons]


def peak_bytes(pid: int) -> int:
    """The largest resident set that a process has had; 0 if it has ended."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def descendants(root: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    children: dict[int, list[int]] = {}
    for pid in _all():
        children.setdefault(_parent(pid), []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _all() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _times(pid: int) -> float:
    """utime, stime, and those of the children that it has waited for."""
    return sum(map(int, _stat(pid)[11:15])) / TICKS


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the third on: the second is a name that may contain anything."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""
