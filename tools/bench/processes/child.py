"""Measurements that need a separate process: memory, and the import.

`python -m tidelog.tools.bench.processes.child memory DIRECTORY small|random ENTRIES` prints one JSON object: growth of
the resident set, bytes per entry and per pending entry.

`python -m tidelog.tools.bench.processes.child worked-off DIRECTORY JOBS` prints the memory that remains after so many
jobs are done.
"""

from __future__ import annotations

import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType

ANON = "RssAnon"
# Types that an object refers to but does not own. The walk of `deep_bytes` stops at them.
NOT_STATE = (type, ModuleType, FunctionType, BuiltinFunctionType, CodeType)


def ask(*arguments: object) -> dict[str, float]:
    """Run this module in a fresh interpreter and return its answer. Raises CalledProcessError."""
    command = [sys.executable, "-m", __name__, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def rss_bytes(kind: str = "VmRSS") -> int:
    """The resident set of this process; RssAnon: without the mapped files of the checkpoint and the log."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no line {kind}")


def trim() -> None:
    """Make the C library return free memory to the system, if it supports that."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


def deep_bytes(root: object) -> int:
    """Bytes of all objects that can be reached from `root`, each counted once; code and classes are left out."""
    seen: set[int] = set()
    found = [root]
    total = 0
    while found:
        one = found.pop()
        if id(one) in seen or isinstance(one, NOT_STATE):
            continue
        seen.add(id(one))
        total += sys.getsizeof(one)
        found += gc.get_referents(one)
    return total


def measure_memory(directory: Path, kind: str, entries: int) -> dict[str, float]:
    # here: the modules of other measurements would count as this one's memory
    from tidelog.tools.bench.contenders.ours import CONSUMER, GROUP, STREAM, Tidelog
    from tidelog.tools.bench.messages import BATCH, RANDOM, SMALL

    ours = Tidelog(directory, SMALL if kind == "small" else RANDOM, fsync="everysec")
    ours.add(1)
    start = rss_bytes()
    for _ in range(entries // BATCH):
        ours.add_batches(BATCH)
    stored = rss_bytes()
    if kind == "small":
        for _ in range(entries // 100):
            ours.db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=100)
    delivered = rss_bytes()
    ours.close()
    return {"entry": (stored - start) / entries, "pending": (delivered - stored) / entries}


def measure_worked_off(directory: Path, jobs: int) -> dict[str, float]:
    """Put `jobs` jobs, then consume them all with keep=0. Returns the growth since the first thousand jobs were done.

    left        XLEN of the queue's stream
    state       bytes of all objects of the engine's state; `before`: before the jobs
    peak        growth of anonymous memory while all jobs were waiting; `stayed`: the part that remained
    trimmed     the part that remained after the allocator returned free memory (as `stayed` without glibc)
    """
    # here: as in `measure_memory`
    from tidelog.tools.bench.contenders.our_queue import QUEUE, TidelogQueue
    from tidelog.tools.bench.messages import BATCH, TEXT

    ours = TidelogQueue(directory, TEXT, fsync="everysec")
    core = ours.db._core  # it may replace its state
    ours.add_batches(BATCH)
    ours.take(BATCH, 100)
    before, start = deep_bytes(core.state), rss_bytes(ANON)
    for _ in range(jobs // BATCH):
        ours.add_batches(BATCH)
    peak = rss_bytes(ANON)
    ours.take(jobs // BATCH * BATCH, 100)
    answer = {
        "left": ours.db.xlen(QUEUE),
        "state": deep_bytes(core.state),
        "before": before,
        "peak": peak - start,
        "stayed": rss_bytes(ANON) - start,
    }
    trim()
    answer["trimmed"] = rss_bytes(ANON) - start
    ours.close()
    return answer


def import_s(module: str) -> float:
    """Seconds that importing a module takes in a fresh interpreter."""
    program = (
        "import time; start = time.perf_counter()\n"
        f"import {module}\n"
        "print(time.perf_counter() - start)"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout)


def main(what: str, directory: str, *rest: str) -> dict[str, float]:
    if what == "worked-off":
        return measure_worked_off(Path(directory), int(rest[0]))
    return measure_memory(Path(directory), rest[0], int(rest[1]))


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
