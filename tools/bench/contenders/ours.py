"""tidelog as a contender: through its public interface alone, as an application would use it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tidelog
from tidelog.tools.bench.contenders.peer import Peer
from tidelog.tools.bench.messages import BATCH, Messages
from tidelog.tools.bench.race import Contender

STREAM, GROUP, CONSUMER = "orders", "billing", "worker-1"


class Tidelog(Peer):
    """An embedded store with one stream and one group."""

    def __init__(self, directory: Path, messages: Messages, *, fsync: str, name: str = "tidelog"):
        self.name = name
        self.messages = messages
        self.db: Any = tidelog.open(directory / "store", fsync=fsync)
        self.db.xgroup_create(STREAM, GROUP, "0", mkstream=True)

    def close(self) -> None:
        self.db.close()

    def add(self, count: int) -> None:
        xadd = self.db.xadd
        for fields in self.messages.some(count):
            xadd(STREAM, fields)

    def add_batches(self, count: int) -> None:
        messages = self.messages.some(count)
        for start in range(0, count, BATCH):
            pipeline = self.db.pipeline(transaction=False)
            for fields in messages[start : start + BATCH]:
                pipeline.xadd(STREAM, fields)
            pipeline.execute()

    def add_many(self, count: int) -> None:
        messages = self.messages.some(count)
        for start in range(0, count, BATCH):
            self.db.xadd_many(STREAM, messages[start : start + BATCH])

    def adding_many(self) -> Contender:
        return Contender(self.name, self.add_many, quantum=BATCH)

    def add_from_threads(self, count: int, threads: int) -> None:
        """`count` XADDs, one at a time in each of `threads` threads."""

        def work() -> None:
            self.add(count // threads)

        workers = [threading.Thread(target=work) for _ in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def adding_from_threads(self, threads: int) -> Contender:
        def run(count: int) -> None:
            self.add_from_threads(count, threads)

        return Contender(self.name, run, quantum=threads)

    def take(self, count: int, at_once: int) -> None:
        db = self.db
        for _ in range(count // at_once):
            reply = db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=at_once)
            db.xack(STREAM, GROUP, *[id for id, _ in reply[0][1]])

    def taking(self, at_once: int) -> Contender:
        contender = super().taking(at_once)
        contender.prepare = self.add_many
        return contender


def beside_a_busy_thread(contender: Contender) -> Contender:
    """The same work while another thread of this process computes without pause."""
    stop = threading.Event()
    busy: list[threading.Thread] = []
    prepare, settle = contender.prepare, contender.settle

    def compute() -> None:
        while not stop.is_set():
            for _ in range(1_000):
                pass

    def begin(count: int) -> None:
        prepare(count)
        stop.clear()
        busy.append(threading.Thread(target=compute, daemon=True))
        busy[-1].start()

    def end(count: int) -> None:
        stop.set()
        busy.pop().join()
        settle(count)

    run: Callable[[int], object] = contender.run
    return Contender(f"{contender.name} beside", run, begin, end, contender.quantum)
