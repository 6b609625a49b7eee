"""A queue with many jobs in a fresh process: the memory that they cost, and how long the store takes to open."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any, Final

import tidelog
from tidelog.tools.bench.bench import EVERYSEC

BUDGET: Final = 32 << 20
VALUE: Final = b"x" * 100
HOUR: Final = 3600.0


class Delayed:
    """An open store with the queue `jobs`. `open_s`: how long it took to open."""

    def __init__(self, path: str) -> None:
        start = perf_counter()
        self.db: Any = tidelog.open(Path(path), fsync=EVERYSEC, memory_budget=BUDGET)
        self.open_s = perf_counter() - start
        self._queue: Any = self.db.queue("jobs", codec="bytes")

    def close(self) -> None:
        self.db.close()

    def put(self, count: int, delayed: bool) -> None:
        """Put so many jobs, due in an hour or at once."""
        values = [VALUE] * 10_000
        for at in range(0, count, len(values)):
            some = values[: count - at]
            if delayed:
                self._queue.put_many(some, delay=HOUR)
            else:
                self._queue.put_many(some)

    def opened(self) -> list[float]:
        """Seconds of the open, and of the first fetch, which finds nothing due."""
        start = perf_counter()
        assert self._queue.get("worker-1", block=0) is None
        return [self.open_s, perf_counter() - start]
