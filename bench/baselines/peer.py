"""A peer: any queue that stores messages and delivers them to be acknowledged, in a process of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bench.messages import MESSAGES


class Peer(ABC):
    """One open queue with one level of durability. `messages` is the name of the messages that it stores.

    When a method returns, all of its messages hold at the peer's level: handed to the kernel (relaxed), or synced to
    the disk (durable).
    """

    def __init__(self, messages: str) -> None:
        self.messages = MESSAGES[messages]

    @abstractmethod
    def add(self, count: int) -> None:
        """Store `count` messages, one call and one commit each."""

    def add_batches(self, count: int) -> None:
        """Store `count` messages, `BATCH` to a commit; one by one if the peer has no batches."""
        self.add(count)

    @abstractmethod
    def take(self, count: int, at_once: int) -> None:
        """Claim and acknowledge `count` messages, `at_once` to a call. Claims and acks are commits of their own."""

    def before_take(self, count: int, at_once: int) -> None:
        """Store the messages that a slice of `take` consumes."""
        self.add_batches(count)

    @abstractmethod
    def close(self) -> None: ...
