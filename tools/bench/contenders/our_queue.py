"""tidelog's durable queue as a contender: `put`, `put_many`, `consume`, as an application would call them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import tidelog
from tidelog.tools.bench.contenders.ours import CONSUMER, GROUP, STREAM, Tidelog
from tidelog.tools.bench.contenders.peer import Peer
from tidelog.tools.bench.messages import Messages
from tidelog.tools.bench.race import Contender

QUEUE, WORKER = "jobs", "worker-1"
DRAINED = 100  # batch size when a slice consumes the jobs that it has put itself


class TidelogQueue(Peer):
    """An embedded store with one queue in it; a job that is done is gone (keep=0)."""

    def __init__(
        self,
        directory: Path,
        messages: Messages,
        *,
        fsync: str,
        codec: str = "bytes",
        name: str = "tidelog",
    ) -> None:
        self.name = name
        self._messages = messages
        self.db: Any = tidelog.open(directory / "store", fsync=fsync)
        self.queue = self.db.queue(QUEUE, codec=codec)

    def add(self, count: int) -> None:
        put = self.queue.put
        for value in self._messages.some_values(count):
            put(value)

    def add_batches(self, count: int) -> None:
        """One `put_many` of all; it makes the batches."""
        self.queue.put_many(self._messages.some_values(count))

    def take(self, count: int, at_once: int) -> None:
        """Consume `count` jobs with one consumer. They are all acknowledged when it is closed.

        Raises RuntimeError when the queue has fewer.
        """
        taken = 0
        with self.queue.consume(WORKER, batch=at_once, block=0) as jobs:
            for job in islice(jobs, count):
                with job:
                    taken += 1
        if taken != count:
            raise RuntimeError(f"only {taken} of {count} jobs were delivered")

    def close(self) -> None:
        self.db.close()

    def adding_at_depth(self) -> Contender:
        """Puts, one at a time. Each slice leaves as many jobs waiting as it found, as `taking` does too."""

        def drain(count: int) -> None:
            self.take(count, DRAINED)

        return Contender(self.name, self.add, settle=drain, quantum=DRAINED)


class Commands(Tidelog):
    """The stream commands that a queue uses, called directly. The difference is the cost of the queue itself."""

    def take(self, count: int, at_once: int) -> None:
        db = self.db
        for _ in range(count // at_once):
            reply = db.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=at_once)
            db.xackdel(STREAM, GROUP, *[id for id, _ in reply[0][1]], ref_policy="ACKED")
