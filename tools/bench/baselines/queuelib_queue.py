"""queuelib's FifoDiskQueue: one write per message, never synced; a popped message is deleted, so there are no acks."""

from __future__ import annotations

from pathlib import Path

from queuelib import FifoDiskQueue

from tidelog.tools.bench.contenders.peer import Peer
from tidelog.tools.bench.messages import Messages


class QueuelibQueue(Peer):
    def __init__(self, directory: Path, messages: Messages, *, durable: bool = False) -> None:
        if durable:
            raise ValueError("queuelib cannot sync")
        self.name = "queuelib"
        self._messages = messages
        self._queue = FifoDiskQueue(str(directory / "queuelib"))

    def add(self, count: int) -> None:
        push = self._queue.push
        for body in self._messages.some_blobs(count):
            push(body)

    def add_batches(self, count: int) -> None:
        self.add(count)  # it has no batches

    def take(self, count: int, at_once: int) -> None:
        pop = self._queue.pop
        for _ in range(count):
            pop()

    def close(self) -> None:
        self._queue.close()
