"""Start-up: the cost of importing the library, and of opening an empty store."""

from __future__ import annotations

import sqlite3
import statistics
import time
from collections.abc import Callable, Iterator

import tidelog
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.figure import Figure
from tidelog.tools.bench.processes.child import import_s

TIMES = 7


def rows(bench: Bench) -> Iterator[Figure]:
    imports: dict[str, list[float]] = {"tidelog": [], "redis": [], "sqlite3": []}
    for _ in range(TIMES):
        for module, times in imports.items():
            times.append(import_s(module) * 1000)
    medians = {f"import {name}": statistics.median(times) for name, times in imports.items()}
    yield Figure("import tidelog", "ms", medians.pop("import tidelog"), medians)

    def open_ours() -> None:
        tidelog.open(bench.fresh("empty") / "store", fsync=EVERYSEC).close()

    def open_sqlite() -> None:
        db = sqlite3.connect(bench.fresh("empty") / "queue.db")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE queue (id INTEGER PRIMARY KEY, body BLOB)")
        db.close()

    ours, theirs = [], []
    for _ in range(TIMES):
        ours.append(_ms(open_ours))
        theirs.append(_ms(open_sqlite))
    yield Figure(
        "create, open and close an empty store",
        "ms",
        statistics.median(ours),
        {"sqlite3, one table": statistics.median(theirs)},
    )


def _ms(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000
