"""The pauses of a writer while a checkpoint is written. This module runs in a fresh process.

A writer adds entries one at a time without pause. The time from the end of one call to the end of the next is
measured, because a thread that holds the interpreter lock between two calls delays the writer as much as during one.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable
from heapq import nlargest
from itertools import islice
from typing import Any

from tidelog.tools.bench.contenders.ours import CONSUMER, GROUP
from tidelog.tools.bench.messages import BATCH, SENSOR
from tidelog.tools.bench.processes.opened import Opened

WRITER = "live"
CALLS_MAX = 8_000_000  # of one phase: 64 MB of times
WARM_S = 0.5
QUIET_S_MAX = 15.0


class Gaps:
    """Nanoseconds between the ends of successive calls. Allocated beforehand, because growing a list would itself be a
    pause.
    """

    def __init__(self, most: int = CALLS_MAX) -> None:
        self._spent = array("q", [0]) * most
        self.count = 0

    def run(self, call: Callable[[str, Any], object], over: Callable[[], bool]) -> dict[str, float]:
        """Call until `over`; milliseconds of the longest gap and of p99.9, and how many calls there were."""
        spent, clock = self._spent, time.perf_counter_ns
        fields: Any = SENSOR.fields[0]
        at, most = 0, len(spent)
        before = clock()
        while not over() and at < most:
            call(WRITER, fields)
            now = clock()
            spent[at] = now - before
            before = now
            at += 1
        longest = nlargest(at // 1_000 + 1, islice(spent, at))  # sorting all of them takes memory
        return {"worst": longest[0] / 1e6, "p99.9": longest[-1] / 1e6, "calls": at}


class Pauses(Opened):
    """A store with explicit checkpoints, and a writer that makes it dirty."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self._gaps = Gaps()

    def dirty(self, what: str, count: int) -> None:
        """Make that many entries, pending entries or streams that no checkpoint holds, and nothing else."""
        if what == "streams":
            self._add_streams(count)
            return
        self.add(count, what)
        if what == "entries":
            return
        db = self.db
        db.xgroup_create(what, GROUP, "0")
        db.checkpoint()
        for _ in range(count // BATCH):
            db.xreadgroup(GROUP, CONSUMER, {what: ">"}, count=BATCH)

    def _add_streams(self, count: int) -> None:
        for at in range(0, count, BATCH):
            pipeline = self.db.pipeline(transaction=False)
            for number, fields in enumerate(self.messages.some(min(BATCH, count - at)), at):
                pipeline.xadd(f"stream:{number}", fields)
            pipeline.execute()

    def beside(self, busy: bool) -> dict[str, Any]:
        """The writer beside one checkpoint, then for as long without one; with `busy` a thread computes throughout.

        Seconds of the checkpoint, and the gaps of both phases. The second lasts QUIET_S_MAX at most.
        """
        computing = threading.Event()
        computer = threading.Thread(target=_compute, args=(computing,), daemon=True)
        if busy:
            computer.start()
        try:
            self._for(WARM_S)
            seconds, during = self._during_checkpoint()
            quiet = self._for(min(max(seconds, WARM_S), QUIET_S_MAX))
            return {"seconds": seconds, "during": during, "quiet": quiet}
        finally:
            computing.set()
            if busy:
                computer.join()

    def _during_checkpoint(self) -> tuple[float, dict[str, float]]:
        over = threading.Event()
        spent: list[float] = []

        def work() -> None:
            try:
                spent.append(self.checkpoint())
            finally:
                over.set()

        worker = threading.Thread(target=work)
        worker.start()
        during = self._gaps.run(self.db.xadd, over.is_set)
        worker.join()
        return spent[0], during

    def _for(self, seconds: float) -> dict[str, float]:
        over = threading.Event()
        timer = threading.Timer(seconds, over.set)
        timer.start()
        found = self._gaps.run(self.db.xadd, over.is_set)
        timer.join()
        return found


def _compute(over: threading.Event) -> None:
    while not over.is_set():
        for _ in range(1_000):
            pass
