"""The processes of a Spark driver."""

from __future__ import annotations

from pathlib import Path


def _parent(pid: int) -> int | None:
    """The parent of a process; None if the process is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def children(pid: int) -> list[int]:
    """The processes below a process, the nearest first."""
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    found = [each for each in pids if _parent(each) == pid]
    return found + [below for child in found for below in children(child)]


def workers(driver: int) -> list[int]:
    """The Python processes in which Spark runs tasks. Their parents are daemons, one for each kind of task.

    A daemon that is killed is not started again in the same session.
    """
    daemons = set()
    for pid in children(driver):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in line:
            daemons.add(pid)
    return [pid for pid in daemons if _parent(pid) in daemons]
