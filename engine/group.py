"""Consumer groups: how far a group has read a stream, its consumers, and what they have pending.

A group is plain state; its methods that change are called by apply alone. Which consumer an owner number in
`Pending` means stands in `owners`. Source: spec 2.2, 2.3, 7.

A GROUP row is a msgpack array:

    [name, last ID, entries read, consumers, directory]
    last ID    16 bytes, big-endian
    consumers  [[name, owner number, seen time, active time], ...]
    directory  of the pending entries (engine.frozen_pending), whose chunks are rows of their own
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final, NoReturn

import msgpack

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock, echo
from tidelog.engine.frozen_pending import FrozenPending
from tidelog.engine.idlist import IdList
from tidelog.engine.pending import NOBODY, Pending
from tidelog.engine.rowkeys import Operation, group_row

Facts = tuple[Any, ...]  # of a group, all but its chunks

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
    """A consumer group: `>` serves what comes after `last_id`.

    number    of the group in its stream, never used again there
    lost      it is a `LostGroup`
    all_seen  (unix ms, (database, key)): when, and at which key, all who wait for its messages were seen last, None if
              that is not known; the store's
    """

    __slots__ = (
        *("number", "name", "last_id", "entries_read", "pending", "consumers", "owners"),
        *("all_seen", "_handed"),
    )

    lost: ClassVar[bool] = False

    def __init__(self, name: bytes, last_id: int, entries_read: int, number: int) -> None:
        self.number = number
        self.name = name
        self.last_id = last_id
        self.entries_read = entries_read
        self.pending = Pending()
        self.consumers: dict[bytes, Consumer] = {}
        self.owners: list[Consumer | None] = [None]  # by owner number; NOBODY is the first
        self.all_seen: tuple[int, tuple[int, bytes]] | None = None
        self._handed: Facts | None = None  # what the last checkpoint was handed, but for chunks

    # --- looking

    def listed(self) -> list[Consumer]:
        """The consumers in byte order of their names, as every reply lists them."""
        return [self.consumers[name] for name in sorted(self.consumers)]

    def owner_name(self, owner: int) -> bytes:
        """Name of the consumer with this owner number; empty for an entry that XNACK released."""
        consumer = self.owners[owner]
        return b"" if consumer is None else consumer.name

    def copy(self) -> Group:
        """An independent copy, under the same number. May raise CorruptBlock."""
        other = Group(self.name, self.last_id, self.entries_read, self.number)
        other.pending = self.pending.copy()
        other.owners = [None] * len(self.owners)
        for name, old in self.consumers.items():
            consumer = Consumer(name, old.index, old.seen_time, old.active_time)
            other.consumers[name] = other.owners[old.index] = consumer
        return other

    # --- checkpoints

    def freeze(self) -> FrozenGroup:
        """What a checkpoint is to hold: O(chunks and consumers)."""
        consumers = [
            (each.name, each.index, each.seen_time, each.active_time)
            for each in self.consumers.values()
        ]
        pending = self.pending.freeze()
        facts = (self.name, self.last_id, self.entries_read, consumers, *pending.facts())
        changed = facts != self._handed or pending.changed()
        self._handed = facts
        return FrozenGroup(self.number, facts, pending, changed)

    def thaw(self, frozen: FrozenGroup) -> None:
        """The checkpoint that got `frozen` failed: the next one writes all it had to write."""
        self.pending.thaw(frozen.pending)
        self._handed = None

    def evict(self, cold: ColdStore, stream: int) -> None:
        """Forget what lies in a checkpoint of the stream with this number; no freeze is in flight."""
        self.pending.evict(cold, stream, self.number, self.name)

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
        self.all_seen = None  # who waits under that name is a consumer again when it is asked
        self.pending.drop_owner(consumer.index)

    def claim(
        self,
        name: bytes,
        ids: IdList,
        time: int,
        counts: int | Sequence[int],
        now: int,
        ms: int = -1,
        seq: int = 0,
        read: int = 0,
    ) -> None:
        """Deliver or hand over entries, as the XCLAIM effect says it.

        With now = -1 the consumer got nothing new (a history read, or no entries at all): its active time
        stays, and `time` is when it was seen. With a position (ms, seq, entries read) the group moves there.
        """
        consumer = self.consumers.get(name)
        if consumer is None:
            consumer = self.create_consumer(name, time)
        if now < 0:
            consumer.seen_time = time
        else:
            consumer.seen_time = consumer.active_time = now
        self.pending.deliver(ids, consumer.index, time, counts)
        if ms >= 0:
            self.entries_read = read
            self.last_id = ms << 64 | seq


class LostGroup(Group):
    """A group whose row cannot be read. All that is known is that it is there: what else is asked raises CorruptBlock.

    So the stream can be read and goes on, with its other groups. The rows of this one stay as they are until it is
    destroyed.
    """

    __slots__ = ("damage",)

    lost = True

    def __init__(self, name: bytes, number: int, damage: str) -> None:
        # The other slots stay empty, and `__getattr__` speaks for them.
        self.number = number
        self.name = name
        self.entries_read = UNKNOWN
        self.damage = damage

    def __getattr__(self, attribute: str) -> NoReturn:
        raise CorruptBlock(
            f"{self.damage}: the group {echo(self.name)!r} cannot be read. The entries and other groups of its stream "
            "can; XGROUP DESTROY gives it up"
        )

    def set_position(self, last_id: int, entries_read: int) -> NoReturn:
        """A log says so. It is no group again by that."""
        raise CorruptBlock(self.damage)

    def evict(self, cold: ColdStore, stream: int) -> None:
        """There is nothing to forget."""


class FrozenGroup:
    """A group at a freeze."""

    __slots__ = ("number", "name", "pending", "_facts", "_changed")

    def __init__(self, number: int, facts: Facts, pending: FrozenPending, changed: bool) -> None:
        self.number = number
        self.name: bytes = facts[0]
        self.pending = pending
        self._facts = facts
        self._changed = changed  # since the freeze before, if that one held

    def rows(self, stream: int) -> Iterator[Operation]:
        """What changes in the rows of a group of the stream with this number."""
        if not self._changed:
            return
        yield from self.pending.rows(stream, self.number)
        directory = yield from self.pending.directory()
        name, last_id, entries_read, consumers = self._facts[:4]
        row = (name, last_id.to_bytes(16, "big"), entries_read, consumers, directory)
        yield "put", group_row(stream, self.number), msgpack.packb(row)


def load_group(cold: ColdStore, stream: int, number: int) -> Group:
    """A group of the stream with this number, its chunks not in memory. Raises CorruptBlock."""
    where = f"stream number {stream}, group number {number}"
    payload = cold.get(group_row(stream, number))
    if payload is None:
        raise CorruptBlock(f"{where}: the row of the group is missing")
    try:
        name, last_id, entries_read, consumers, directory = msgpack.unpackb(payload)
        group = Group(name, int.from_bytes(last_id, "big"), entries_read, number)
        group.pending = pending = Pending.restored(directory, cold, stream, number, name)
        group.owners = [None] * pending.owner_numbers()
        for consumer_name, index, seen_time, active_time in consumers:
            consumer = Consumer(consumer_name, index, seen_time, active_time)
            group.consumers[consumer_name] = group.owners[index] = consumer
    except (ValueError, TypeError, IndexError, OverflowError, msgpack.UnpackException) as error:
        raise CorruptBlock(f"{where}: the row of the group cannot be read: {error}") from error
    return group


assert NOBODY == 0
