"""litequeue: one SQLite table in WAL mode; messages are text, claimed and marked done one at a time.

Durable: synchronous=FULL, set from outside. Relaxed: synchronous=NORMAL, its default. It has no batches, but its
transactions are public: puts go 1,000 to a transaction, and so do the marks of a hundred claims.
"""

from __future__ import annotations

from pathlib import Path

from litequeue import LiteQueue

from bench.baselines.peer import Peer
from bench.messages import BATCH


class LiteQueuePeer(Peer):
    def __init__(self, directory: str, messages: str, durable: bool) -> None:
        super().__init__(messages)
        self._queue = LiteQueue(Path(directory) / "queue.db")
        if durable:
            self._queue.conn.execute("PRAGMA synchronous = FULL")

    def add(self, count: int) -> None:
        put = self._queue.put
        for body in self.messages.some_blobs(count):
            put(body.decode())

    def add_batches(self, count: int) -> None:
        bodies = self.messages.some_blobs(count)
        put = self._queue.put
        for start in range(0, count, BATCH):
            with self._queue.transaction():
                for body in bodies[start : start + BATCH]:
                    put(body.decode())

    def take(self, count: int, at_once: int) -> None:
        pop, done = self._queue.pop, self._queue.done
        if at_once == 1:
            for _ in range(count):
                done(pop().message_id)
            return
        for _ in range(count // at_once):
            taken = [pop() for _ in range(at_once)]  # each a transaction of its own
            with self._queue.transaction():
                for message in taken:
                    done(message.message_id)

    def before_take(self, count: int, at_once: int) -> None:
        self._queue.prune()  # delete finished messages; otherwise they would stay in the table
        self.add_batches(count)

    def close(self) -> None:
        self._queue.close()
