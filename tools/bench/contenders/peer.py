"""A peer: any queue that stores messages and delivers them to be acknowledged."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tidelog.tools.bench.messages import BATCH
from tidelog.tools.bench.race import Contender


class Peer(ABC):
    """One open queue with one level of durability.

    When a method returns, all of its messages hold at the peer's level: handed to the kernel
    (relaxed), or synced to the disk (durable).
    """

    name: str

    @abstractmethod
    def add(self, count: int) -> None:
        """Store `count` messages, one call and one commit each."""

    @abstractmethod
    def add_batches(self, count: int) -> None:
        """Store `count` messages, `BATCH` to a commit."""

    @abstractmethod
    def take(self, count: int, at_once: int) -> None:
        """Claim and acknowledge `count` messages, `at_once` to a call. Claims and acks are commits of their own."""

    @abstractmethod
    def close(self) -> None: ...

    # --- as sides of a race

    def adding(self) -> Contender:
        return Contender(self.name, self.add)

    def adding_batches(self) -> Contender:
        return Contender(self.name, self.add_batches, quantum=BATCH)

    def taking(self, at_once: int) -> Contender:
        def run(count: int) -> None:
            self.take(count, at_once)

        return Contender(self.name, run, self.add_batches, quantum=max(at_once, 10))
