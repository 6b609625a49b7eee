"""The processes of a Spark driver."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes below a process, the nearest first."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(each.name))
    return found + [below for child in found for below in children(child)]


def workers(driver: int) -> list[int]:
    """The Python processes in which Spark runs tasks."""
    found = []
    for pid in children(driver):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in line:
            found.append(pid)
    return found[1:]  # the first one is the daemon that forks the others
