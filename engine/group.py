"""Consumer groups: how far a group has read a stream, its consumers, and what they have pending.

A group is plain state; its methods that change are called by apply alone. Which consumer an owner number in
`Pending` means stands in `owners`. Source: spec 2.2, 2.3, 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tidelog.engine.idlist import IdList
from tidelog.engine.pending import NOBODY, Pending

NEVER: Final = -1  # active_time of a consumer that never got anything
UNKNOWN: Final = -1  # entries_read of a group whose position cannot be counted


class Consumer:
    """A consumer of a group.

    index        its owner number in the group's Pending
    seen_time    unix ms when it was last named by XREADGROUP, XCLAIM or XAUTOCLAIM
    active_time  unix ms when it last got an entry, NEVER if it never did
    """

    __slots__ = ("name", "index", "seen_time", "active_time")

    def __init__(self, name: bytes, index: int, seen_time: int, active_time: int = NEVER) -> None:
        self.name = name
        self.index = index
        self.seen_time = seen_time
        self.active_time = active_time


class Group:
    """A consumer group: `>` serves what comes after `last_id`."""

    __slots__ = ("name", "last_id", "entries_read", "pending", "consumers", "owners")

    def __init__(self, name: bytes, last_id: int, entries_read: int) -> None:
        self.name = name
        self.last_id = last_id
        self.entries_read = entries_read
        self.pending = Pending()
        self.consumers: dict[bytes, Consumer] = {}
        self.owners: list[Consumer | None] = [None]  # by owner number; NOBODY is the first

    # --- looking

    def listed(self) -> list[Consumer]:
        """The consumers in byte order of their names, as every reply lists them."""
        return [self.consumers[name] for name in sorted(self.consumers)]

    def owner_name(self, owner: int) -> bytes:
        """Name of the consumer with this owner number; empty for an entry that XNACK released."""
        consumer = self.owners[owner]
        return b"" if consumer is None else consumer.name

    def copy(self) -> Group:
        """An independent copy."""
        other = Group(self.name, self.last_id, self.entries_read)
        other.pending = self.pending.copy()
        other.owners = [None] * len(self.owners)
        for name, old in self.consumers.items():
            consumer = Consumer(name, old.index, old.seen_time, old.active_time)
            other.consumers[name] = other.owners[old.index] = consumer
        return other

    # --- changing: called by apply alone

    def set_position(self, last_id: int, entries_read: int) -> None:
        """Move the group."""
        self.last_id = last_id
        self.entries_read = entries_read

    def create_consumer(self, name: bytes, now: int) -> Consumer:
        """A consumer that was not there, seen now."""
        index = self.pending.add_owner()
        consumer = self.consumers[name] = Consumer(name, index, now)
        if index == len(self.owners):
            self.owners.append(consumer)
        else:
            self.owners[index] = consumer
        return consumer

    def drop_consumer(self, name: bytes) -> None:
        """A consumer goes, and its pending entries with it."""
        consumer = self.consumers.pop(name)
        self.owners[consumer.index] = None
        self.pending.drop_owner(consumer.index)

    def claim(
        self, name: bytes, ids: IdList, time: int, counts: int | Sequence[int], now: int
    ) -> None:
        """Deliver or hand over entries, as the XCLAIM effect says it.

        With now = -1 the consumer got nothing new (a history read, or no entries at all): its active time
        stays, and `time` is when it was seen.
        """
        consumer = self.consumers.get(name)
        if consumer is None:
            consumer = self.create_consumer(name, time)
        if now < 0:
            consumer.seen_time = time
        else:
            consumer.seen_time = consumer.active_time = now
        self.pending.deliver(ids, consumer.index, time, counts)


assert NOBODY == 0
