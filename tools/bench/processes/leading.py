"""An embedded leader, run in a fresh process: threads add without pause, and followers are served beside it."""

from __future__ import annotations

import threading
import time
from typing import Any

import tidelog
from tidelog.tools.bench.bench import EVERYSEC
from tidelog.tools.bench.messages import SMALL
from tidelog.tools.bench.processes.opened import BY_HAND
from tidelog.tools.bench.wire import STREAM

SLICE = 1_000


class Leading:
    """An open store, served on a free port if `serve` is called."""

    def __init__(self, path: str) -> None:
        self._db: Any = tidelog.open(path, fsync=EVERYSEC, **BY_HAND)
        self._serving: Any = None

    def serve(self) -> int:
        """The port."""
        self._serving = tidelog.serve(self._db, port=0)
        port: int = self._serving.port
        return port

    def add_for(self, seconds: float) -> dict[str, float]:
        """Add entries for so long: how many there were in a second, and the LSN of the last one."""
        xadd, messages = self._db.xadd, SMALL.some(SLICE)
        added = 0
        start = time.perf_counter()
        end = start + seconds
        while time.perf_counter() < end:
            for fields in messages:
                xadd(STREAM, fields)
            added += SLICE
        spent = time.perf_counter() - start
        return {"rate": added / spent, "lsn": self._db.info()["next_lsn"] - 1}

    def confirmed_for(self, seconds: float, threads: int) -> float:
        """Let threads add entries one by one at the level `replicated`: how many there were in a second."""
        view, fields = self._db.at("replicated", timeout=60), SMALL.some(1)[0]
        view.xadd(STREAM, fields)
        added = [0] * threads
        start = time.perf_counter()
        end = start + seconds

        def add(number: int) -> None:
            while time.perf_counter() < end:
                view.xadd(STREAM, fields)
                added[number] += 1

        adding = [threading.Thread(target=add, args=(number,)) for number in range(threads)]
        for thread in adding:
            thread.start()
        for thread in adding:
            thread.join()
        return sum(added) / (time.perf_counter() - start)

    def close(self) -> None:
        if self._serving is not None:
            self._serving.close()
        self._db.close()
