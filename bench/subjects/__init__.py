"""The subjects, in the order of the report. Each module has `rows(run)`: its figures, measured now."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Final

from bench.figure import Figure
from bench.run import Run

# fmt: off
SUBJECTS: Final = {
    "xadd":    "XADD, pipelines and xadd_many",
    "always":  "every call synced: one thread, 16 threads",
    "groups":  "XREADGROUP and XACK",
    "startup": "import and open",
    "queue":   "the durable queue beside other queues, and how deep or worked off it is",
    "shared":  "a queue that several processes share, beside other queues",
    "peers":   "task queues beside each other: jobs per second, latency, memory and import of their workers",
    "later":   "delayed jobs beside jobs that are due at once",
    "limits":  "priorities, keys and limits of a queue beside jobs without them",
    "server":  "the server beside redis-server: commands per second, latency",
    "replication": "a leader and its follower beside redis-server and its replica",
    "inspection": "dump, export, stats, verify, state and why over a log",
    "spark":   "snapshots and the log read by Spark, exports, writing",
}
# fmt: on


def rows(subject: str, run: Run) -> Iterator[Figure]:
    """Measure one subject. Raises KeyError for an unknown name."""
    SUBJECTS[subject]
    module = importlib.import_module(f"bench.subjects.{subject}")
    measure: Callable[[Run], Iterator[Figure]] = module.rows
    return measure(run)
