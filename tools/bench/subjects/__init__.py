"""The subjects, in the order of the report. Each module has `rows(bench)`: its figures, measured now."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Figure

# fmt: off
SUBJECTS = {
    "xadd":    "XADD one call at a time",
    "batches": "batches of 1,000: pipeline, xadd_many",
    "always":  "every call synced: one thread, 16 threads",
    "tails":   "the slowest XADDs of some millions",
    "beside":  "XADD beside a thread that computes",
    "groups":  "XREADGROUP and XACK",
    "replay":  "opening a store from its log alone",
    "inspection": "ls, dump, export, stats, verify, state and why over a log",
    "memory":  "bytes of memory per entry and per pending entry",
    "pending": "1,000,000 pending entries beside 1,000",
    "startup": "import and open",
    "restart": "open and the first call after a restart, much stored; beside redis-server's",
    "checkpoint": "pauses, time and memory of a checkpoint; beside redis-server's BGSAVE",
    "cold":    "reading what is stored and not in memory",
    "budget":  "a backlog of 5 GB with memory_budget=64 MiB",
    "queue":   "the durable queue beside other queues, and how deep or worked off it is",
    "shared":  "a queue that several processes share, beside other queues",
    "later":   "delayed jobs beside jobs that are due at once",
    "limits":  "priorities, keys and limits of a queue beside jobs without them",
    "spark":   "snapshots read by Spark, beside other sources of the same rows",
    "server":  "the server beside redis-server: commands per second, latency, idle clients",
    "replication": "a leader and its follower beside redis-server and its replica",
    "moving":  "dump files of Redis, written and imported; beside redis-server's load of the same file",
    "peers":   "the same work by other queues, 100 random bytes a message",
}
# fmt: on


def rows(subject: str, bench: Bench) -> Iterator[Figure]:
    """Measure one subject. Raises KeyError for an unknown name."""
    SUBJECTS[subject]
    module = importlib.import_module(f"tidelog.tools.bench.subjects.{subject}")
    measure: Callable[[Bench], Iterator[Figure]] = module.rows
    return measure(bench)
