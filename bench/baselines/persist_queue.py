"""persist-queue's SQLiteAckQueue: on SQLite, a commit per put, get and ack; it has no batches.

Durable: synchronous=FULL, its default. Relaxed: synchronous=NORMAL, set from outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from persistqueue import SQLiteAckQueue

from bench.baselines.peer import Peer


class PersistQueue(Peer):
    def __init__(self, directory: str, messages: str, durable: bool) -> None:
        super().__init__(messages)
        self._queue = SQLiteAckQueue(str(Path(directory) / "persist"), auto_commit=True)
        if not durable:
            connections: list[Any] = [self._queue._putter, self._queue._getter]
            for connection in connections:
                connection.execute("PRAGMA synchronous = NORMAL")

    def add(self, count: int) -> None:
        put = self._queue.put
        for body in self.messages.some_blobs(count):
            put(body)

    def take(self, count: int, at_once: int) -> None:
        queue = self._queue
        for _ in range(count // at_once):
            taken = [queue.get(raw=True) for _ in range(at_once)]
            for item in taken:
                queue.ack(item)

    def before_take(self, count: int, at_once: int) -> None:
        # Delete acked rows, as persist-queue's manual recommends: its `get` reads past every acked row.
        self._queue.clear_acked_data(max_delete=None, keep_latest=None)
        self.add(count)

    def close(self) -> None:
        self._queue.close()
