"""Consumer groups: a group's position in its stream, its consumers, and their pending entries.

A group is plain state; only apply calls the methods that change it. `owners` maps the owner numbers of `Pending` to
consumers. Source: spec 2.2, 2.3, 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final, NoReturn

import msgpack

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock, echo
from tidelog.engine.groups.group_row import Facts, FrozenGroup, unpack_group
from tidelog.engine.groups.pending import NOBODY, Pending
from tidelog.engine.idlist import IdList
from tidelog.engine.rowkeys import group_row

NEVER_ACTIVE: Final = -1  # active_time of a consumer that never got an entry
UNKNOWN: Final = -1  # entries_read of a group for which it cannot be computed


class Consumer:
    """A consumer of a group.

    index        its owner number in the group's Pending
    seen_time    unix ms when it was last named by XREADGROUP, XCLAIM or XAUTOCLAIM
    active_time  unix ms when it last got an entry, NEVER_ACTIVE if it never did
    """

    __slots__ = ("name", "index", "seen_time", "active_time")

    def __init__(
        self, name: bytes, index: int, seen_time: int, active_time: int = NEVER_ACTIVE
    ) -> None:
        self.name = name
        self.index = index
        self.seen_time = seen_time
        self.active_time = active_time


class Group:
    """A consumer group. `>` serves the entries after `last_id`.

    number    the group's number in its stream, never reused there
    lost      whether it is a `LostGroup`
    all_seen  (unix ms, (database, key)): when, and at which key, all consumers that wait for its entries were last
              marked as seen together; None if unknown. The store sets it (store/commit/blocked.py)
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
        self.owners: list[Consumer | None] = [None]  # by owner number; the first is NOBODY
        self.all_seen: tuple[int, tuple[int, bytes]] | None = None
        self._handed: Facts | None = None  # the facts that the last checkpoint was handed

    # --- looking

    def listed(self) -> list[Consumer]:
        """The consumers in byte order of their names, the order of every reply."""
        return [self.consumers[name] for name in sorted(self.consumers)]

    def owner_name(self, owner: int) -> bytes:
        """The name of the consumer with this owner number; empty for NOBODY (entries that XNACK released)."""
        consumer = self.owners[owner]
        return b"" if consumer is None else consumer.name

    def copy(self) -> Group:
        """An independent copy with the same number. May raise CorruptBlock."""
        other = Group(self.name, self.last_id, self.entries_read, self.number)
        other.pending = self.pending.copy()
        other.owners = [None] * len(self.owners)
        for name, old in self.consumers.items():
            consumer = Consumer(name, old.index, old.seen_time, old.active_time)
            other.consumers[name] = other.owners[old.index] = consumer
        return other

    # --- checkpoints

    def freeze(self) -> FrozenGroup:
        """Copy the group for a checkpoint. O(chunks + consumers)."""
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
        """Undo the freeze of a checkpoint that failed: the next one writes everything in `frozen` again."""
        self.pending.orders.thaw(frozen.pending)
        self._handed = None

    def evict(self, cold: ColdStore, stream: int) -> None:
        """Evict the chunks that the checkpoint holds; `stream` is the stream's number. No freeze may be in flight."""
        self.pending.orders.evict(cold, stream, self.number, self.name)

    # --- changing: called by apply alone

    def set_position(self, last_id: int, entries_read: int) -> None:
        """Set the group's last ID and entries-read."""
        self.last_id = last_id
        self.entries_read = entries_read

    def create_consumer(self, name: bytes, now: int) -> Consumer:
        """Create a consumer that does not exist yet, with seen-time `now` (unix ms)."""
        index = self.pending.orders.add_owner()
        consumer = self.consumers[name] = Consumer(name, index, now)
        if index == len(self.owners):
            self.owners.append(consumer)
        else:
            self.owners[index] = consumer
        return consumer

    def drop_consumer(self, name: bytes) -> None:
        """Delete a consumer and its pending entries."""
        consumer = self.consumers.pop(name)
        self.owners[consumer.index] = None
        # Forget that the waiting consumers were marked as seen, so that the store marks them again next time. If one of
        # them waits under the deleted name, the store then creates the consumer again.
        self.all_seen = None
        self.pending.drop_owner(consumer.index)

    def deliver(
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
        """Deliver entries to a consumer or reassign them to it: the DELIVER effect (engine.effects.effect).

        time: unix ms of the delivery. With now = -1 the consumer got nothing new (a history read, or no entries at
        all): its active time stays, and its seen time becomes `time`. With a position (ms, seq, read) the group moves
        there. Creates the consumer if it is missing.
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
    """A group whose row cannot be read. Its name and number are known; any other access raises CorruptBlock.

    So the stream and its other groups stay usable. The rows of this group are kept until XGROUP DESTROY.
    """

    __slots__ = ("damage",)

    lost = True

    def __init__(self, name: bytes, number: int, damage: str) -> None:
        # Leave the other slots unset, so that reading one of them calls `__getattr__`.
        self.number = number
        self.name = name
        self.entries_read = UNKNOWN
        self.damage = damage

    def __getattr__(self, attribute: str) -> NoReturn:
        raise CorruptBlock(
            f"{self.damage}: the group {echo(self.name)!r} cannot be read, but the entries and the other groups of "
            "its stream can. XGROUP DESTROY deletes the group"
        )

    def set_position(self, last_id: int, entries_read: int) -> NoReturn:
        """Raise CorruptBlock, for an XGROUP_SETID in the log too: a position alone does not restore the group."""
        raise CorruptBlock(self.damage)

    def evict(self, cold: ColdStore, stream: int) -> None:
        """Do nothing: a lost group has nothing in memory."""


def load_group(cold: ColdStore, stream: int, number: int) -> Group:
    """Load a group by the numbers of stream and group, without its chunks. Raises CorruptBlock."""
    where = f"stream number {stream}, group number {number}"
    payload = cold.get(group_row(stream, number))
    if payload is None:
        raise CorruptBlock(f"{where}: the row of the group is missing")
    try:
        row = unpack_group(payload)
        group = Group(row.name, row.last_id, row.entries_read, number)
        group.pending = pending = Pending.restored(row.directory, cold, stream, number, row.name)
        group.owners = [None] * pending.orders.owner_numbers()
        for consumer_name, index, seen_time, active_time in row.consumers:
            consumer = Consumer(consumer_name, index, seen_time, active_time)
            group.consumers[consumer_name] = group.owners[index] = consumer
    except (ValueError, TypeError, IndexError, OverflowError, msgpack.UnpackException) as error:
        raise CorruptBlock(f"{where}: the row of the group cannot be read: {error}") from error
    return group


assert NOBODY == 0
