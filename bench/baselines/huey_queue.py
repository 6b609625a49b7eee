"""huey's SqliteStorage, the queue that its tasks use: a transaction per message, no batches.

It also has no acknowledgement: `dequeue` deletes the message, which is lost if the worker dies. Durable: fsync=True.
Relaxed: synchronous=NORMAL, set from outside; its own fsync=False would mean OFF.
"""

from __future__ import annotations

from pathlib import Path

from huey.storage import SqliteStorage

from bench.baselines.peer import Peer


class HueyQueue(Peer):
    def __init__(self, directory: str, messages: str, durable: bool) -> None:
        super().__init__(messages)
        self._storage = SqliteStorage(
            "queue", str(Path(directory) / "huey.db"), fsync=durable or None
        )
        if not durable:
            self._storage.conn.execute("PRAGMA synchronous = NORMAL")

    def add(self, count: int) -> None:
        enqueue = self._storage.enqueue
        for body in self.messages.some_blobs(count):
            enqueue(body)

    def take(self, count: int, at_once: int) -> None:
        dequeue = self._storage.dequeue
        for _ in range(count):
            dequeue()

    def close(self) -> None:
        self._storage.close()
