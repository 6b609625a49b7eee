"""What has to be measured in a process of its own: memory, and the import.

`python -m tidelog.tools.bench.child memory DIRECTORY small|random ENTRIES` answers one JSON object: growth of
the resident set, bytes per entry and per pending entry.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from pathlib import Path


def ask(*arguments: object) -> dict[str, float]:
    """Run this module in a fresh interpreter and return its answer. Raises CalledProcessError."""
    command = [sys.executable, "-m", __name__, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def rss_bytes() -> int:
    """The resident set of this process."""
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status names no VmRSS")


def measure_memory(directory: Path, kind: str, entries: int) -> dict[str, float]:
    from tidelog.tools.bench.messages import BATCH, RANDOM, SMALL
    from tidelog.tools.bench.ours import CONSUMER, GROUP, STREAM, Tidelog

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


if __name__ == "__main__":
    _, _, directory, kind, entries = sys.argv
    print(json.dumps(measure_memory(Path(directory), kind, int(entries))))
