"""queuelib's FifoDiskQueue: one write per message, never synced; a popped message is deleted, so there are no acks."""

from __future__ import annotations

from pathlib import Path

from queuelib import FifoDiskQueue

from bench.baselines.peer import Peer


class QueuelibQueue(Peer):
    def __init__(self, directory: str, messages: str, durable: bool) -> None:
        super().__init__(messages)
        if durable:
            raise ValueError("queuelib cannot sync")
        self._queue = FifoDiskQueue(str(Path(directory) / "queuelib"))

    def add(self, count: int) -> None:
        push = self._queue.push
        for body in self.messages.some_blobs(count):
            push(body)

    def take(self, count: int, at_once: int) -> None:
        pop = self._queue.pop
        for _ in range(count):
            pop()

    def close(self) -> None:
        self._queue.close()
