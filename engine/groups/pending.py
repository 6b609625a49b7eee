"""The pending entries of one group: the latest deliveries, and the others in three orders (engine.groups.orders).

Small new deliveries first go to a dict of *young* deliveries, in front of the orders: most are acknowledged a moment
later and then never enter an order. Invariants between any two calls, verified by `check()`:

1. A young entry has an owner and a key. It comes after all entries of the orders, by ID and by (time, ID); the dict
   ascends by both. So a reader treats the dict as one more chunk at the end of every order, without moving it there.
2. Only small deliveries above all other entries become young (`deliver`). Every other change except an
   acknowledgement first flushes the young entries into the orders, and so does a freeze. A flush only appends, so it
   reads nothing and cannot fail. There are always fewer than `YOUNG`. In the wide form nothing is young.

Chunks of the orders may be cold, so almost every method can raise CorruptBlock. Before a method that changes state,
the caller calls `prepare_...` of the orders.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Self

from tidelog.engine.cold import ColdStore
from tidelog.engine.groups.by_id import KEY_END, PendingEntry
from tidelog.engine.groups.chunk_rows import Chunk, Column, new_column
from tidelog.engine.groups.chunks import LOAD
from tidelog.engine.groups.frozen_pending import FrozenPending
from tidelog.engine.groups.orders import NACK_TIME as NACK_TIME
from tidelog.engine.groups.orders import NOBODY as NOBODY
from tidelog.engine.groups.orders import Orders
from tidelog.engine.idlist import (
    ID_SHIFT,
    KEY_BASE,
    KEY_SEQ_MASK,
    WIDE_BITS,
    IdList,
    from_keys,
    id_of,
    is_narrow,
    keys,
    pack,
    pack_key,
    singles,
    unpack,
    unpack_key,
)

# A delivery whose packed IDs are at most this long stays young. A longer one goes into the orders by ID and by time
# at once.
YOUNG_BYTES: Final = 16 * 8
# When a group has this many young entries, all of them are flushed into the orders. The last delivery can add up to
# YOUNG_BYTES of IDs, which are 16 entries. Even then they are fewer than 2 * LOAD, so they become a single chunk.
YOUNG: Final = 2 * LOAD - 16

# (delivery time, owner, delivery count)
Delivery = tuple[int, int, int]


class Pending:
    """The pending entries of one group.

    Only apply calls the methods that change state; they do not validate arguments. ID lists passed to `deliver` ascend
    and have no duplicates. All other methods change nothing, except that they may load chunks into memory.

    young       ID list of one ID -> delivery: the latest deliveries, which are in no order yet
    orders      all other entries, and the numbers of the owners
    _key_max    upper bound of all keys, not necessarily tight
    _time_max   upper bound of all delivery times, not necessarily tight
    """

    __slots__ = ("young", "orders", "_key_max", "_time_max")

    def __init__(self) -> None:
        self.young: dict[bytes, Delivery] = {}
        self.orders = Orders()
        self._key_max = -KEY_END - 1  # below every key
        self._time_max = 0

    def __len__(self) -> int:
        return self.orders.n + len(self.young)

    # --- changing

    def deliver(self, ids: IdList, owner: int, time: int, counts: int | Sequence[int]) -> None:
        """Make each ID of an ascending list pending for `owner`, whether it was pending before or not.

        time: delivery time, unix ms. counts: the delivery count, one for all or one for each.
        """
        if time >= self._time_max and ids.__class__ is bytes and counts.__class__ is int:
            young = self.young
            if len(ids) == 8:
                key = unpack_key(ids)[0]
                if key > self._key_max:
                    young[ids] = time, owner, counts
                    self._key_max = key
                    self._time_max = time
                    if len(young) >= YOUNG:
                        self._flush()
                    return
            elif 0 < len(ids) <= YOUNG_BYTES:
                if unpack_key(ids[:8])[0] > self._key_max:
                    young.update(dict.fromkeys(singles(ids), (time, owner, counts)))
                    self._key_max = unpack_key(ids[-8:])[0]
                    self._time_max = time
                    if len(young) >= YOUNG:
                        self._flush()
                    return
        want = self._want(ids)
        if want:
            if self.young:
                self._flush()
            self.orders.deliver(want, owner, time, counts)
            self._find_max()

    def fill(self, run: Chunk, nacked: Sequence[int], wide: bool) -> None:
        """Add the entries of a whole group, from another system's dump. Nothing may be pending. See `Orders.fill`."""
        if len(run[0]):
            self.orders.fill(run, nacked, wide)
            self._find_max()

    def remove(self, ids: IdList) -> None:
        """Remove pending entries. IDs that are not pending are ignored."""
        if len(ids) == 8 and ids.__class__ is bytes:
            if self.young.pop(ids, None) is not None:
                return
            if not self.orders.wide:
                self.orders.remove_key(unpack_key(ids)[0])
                return
        if self.young:
            ids = self._remove_young(ids)
            if not ids:
                return
        want = self.orders.those_with_keys(ids)
        if want:
            self.orders.remove(want)

    def _remove_young(self, ids: IdList) -> IdList:
        """Remove those of the IDs that are young. Returns the others."""
        young = self.young
        if not isinstance(ids, bytes):
            ids = pack([id for id in unpack(ids) if is_narrow(id)])
            assert isinstance(ids, bytes)
        some = singles(ids)
        if len(ids) > YOUNG_BYTES and young.keys().isdisjoint(some):
            return ids
        return b"".join([one for one in some if young.pop(one, None) is None])

    def nack(self, ids: IdList, counts: int | Sequence[int]) -> None:
        """Make each ID pending without owner, at the end of the NACK zone in the given order."""
        want = self._want(ids)
        self._flush()
        self.orders.nack(want, counts)
        self._find_max()

    def drop_owner(self, owner: int) -> None:
        """Delete a consumer and its pending entries."""
        few = self.orders.holds_few(owner)  # before the flush, as `prepare_drop` saw it
        self._flush()
        self.orders.drop_owner(owner, few)

    def _want(self, ids: IdList) -> Column:
        """The column of an ID list that becomes pending. Converts to the wide form if an ID has no key."""
        orders = self.orders
        if not orders.wide:
            if ids.__class__ is bytes:
                return keys(ids)
            orders.load_all()
            self._flush()
            orders.widen()
        return unpack(ids)

    def _flush(self) -> None:
        """Append the young deliveries to the orders. Reads nothing, so it cannot fail."""
        if self.young:
            self.orders.append(self._young_chunk())
            self.young.clear()

    def _young_chunk(self) -> Chunk:
        """The young deliveries as a chunk of the order by ID. There must be some."""
        times, owners, counts = zip(*self.young.values())
        return self._young_keys(), new_column(times), array("I", owners), new_column(counts)

    def _young_keys(self) -> Column:
        return keys(b"".join(self.young))

    def _find_max(self) -> None:
        """Update the bounds after entries went into the orders. Nothing may be young."""
        orders = self.orders
        if orders.wide:
            self._key_max = KEY_END  # in the wide form, no delivery becomes young
        elif orders.by_id.tops:
            self._key_max, self._time_max = orders.by_id.tops[-1], orders.by_time.tops[-1]

    # --- reading

    def contains(self, id: int) -> bool:
        """Whether an entry is pending."""
        return self.get(id) is not None

    def get(self, id: int) -> tuple[int, int, int] | None:
        """(delivery time, owner, delivery count) of a pending entry, or None."""
        orders = self.orders
        if orders.wide:
            return orders.by_id.get(id)
        if id & WIDE_BITS:
            return None
        key = (id >> ID_SHIFT | id & KEY_SEQ_MASK) - KEY_BASE  # key_of without the call
        return self.young.get(pack_key(key)) or orders.by_id.get(key)

    def are_held(self, ids: IdList, owner: int, count: int) -> bool:
        """Whether all of an ascending ID list are pending for one owner with one delivery count.

        May be False although they are, where only a look at each entry could tell.
        """
        if not ids or self.orders.wide or not isinstance(ids, bytes):
            return False
        if ids[-8:] not in self.young:
            return self.orders.by_id.are_held(keys(ids), owner, count)
        found = set(map(self.young.get, singles(ids)))
        return all(each is not None and each[1:] == (owner, count) for each in found)

    def among(self, ids: Iterable[int]) -> list[int]:
        """Those of `ids` that are pending, ascending, without duplicates."""
        if not len(self):
            return []
        return [id for id in sorted(set(ids)) if self.get(id) is not None]

    def present(self, ids: IdList) -> IdList:
        """Those of an ID list that are pending, ascending, without duplicates."""
        if ids.__class__ is bytes and not self.orders.wide:
            young, by_id = self.young, self.orders.by_id
            if len(ids) == 8:
                return ids if ids in young or by_id.holds(unpack_key(ids)[0]) else b""
            if not ids:
                return b""
            want = keys(ids)
            if ids[-8:] not in young and by_id.place_run(want) is not None:
                return ids
            here = list(filter(young.__contains__, singles(ids))) if young else []
            if len(here) == len(want):
                return from_keys(array("q", sorted({*want})))
            held = by_id.those_of(want)
            held.extend(sorted({*keys(b"".join(here))}))
            return from_keys(held)
        return pack(self.among(unpack(ids)))

    def first(self) -> int:
        """The smallest pending ID. At least one entry must be pending."""
        by_id = self.orders.by_id
        if not by_id.chunks:
            return id_of(unpack_key(next(iter(self.young)))[0])
        return self.orders.to_id((by_id.chunks[0] or by_id.load(0))[0][0])

    def last(self) -> int:
        """The greatest pending ID. At least one entry must be pending."""
        if self.young:
            return id_of(unpack_key(next(reversed(self.young)))[0])
        return self.orders.to_id(self.orders.by_id.tops[-1])

    def to_id(self, key: int) -> int:
        """The entry ID of a key that `slices` returned."""
        return self.orders.to_id(key)

    def slices(self, start: int) -> Iterator[Chunk]:
        """Yield the entries from ID `start` on, ascending, as columns: keys, times, owners, counts."""
        low = self.orders.by_id.key_from(start)
        yield from self.orders.by_id.slices(low)
        if self.young:
            chunk = self._young_chunk()
            j = bisect_left(chunk[0], low)
            if j < len(chunk[0]):
                yield tuple([column[j:] for column in chunk])

    def page(
        self,
        start: int,
        end: int,
        count: int,
        owner: int | None = None,
        time_max: int | None = None,
    ) -> list[PendingEntry]:
        """(id, time, owner, delivery count) of up to `count` entries with start <= ID <= end, ascending.

        owner: only entries of this consumer. time_max: only entries delivered at or before this time, unix ms.
        """
        if count <= 0:
            return []
        low, high = self.orders.by_id.key_from(start), self.orders.by_id.key_to(end)
        page = self.orders.page(low, high, count, owner, time_max) if self.orders.n else []
        if self.young and len(page) < count:
            rows = (
                (id_of(key), *delivery)
                for key, delivery in zip(self._young_keys(), self.young.values())
                if low <= key <= high
                and (owner is None or delivery[1] == owner)
                and (time_max is None or delivery[0] <= time_max)
            )
            page += islice(rows, count - len(page))
        return page

    def by_age(self, start: int = NACK_TIME) -> Iterator[tuple[int, int]]:
        """Yield (time, id) of the entries delivered at `start` (unix ms) or later, oldest first.

        By default all entries; those of the NACK zone come first.
        """
        for ids, times in self.orders.by_time.slices(start):
            yield from zip(times, self.orders.by_id.ids_of(ids))
        for key, (time, _, _) in zip(self._young_keys(), self.young.values()):
            if time >= start:
                yield time, id_of(key)

    def until(self, time: int) -> int:
        """The number of entries that were delivered to a consumer at `time` (unix ms) or earlier."""
        count = 0
        for ids, times in self.orders.by_time.slices(0):
            if times[-1] > time:
                return count + bisect_right(times, time)
            count += len(ids)
        return count + sum(at <= time for at, _, _ in self.young.values())

    def oldest(self) -> int | None:
        """Time of the oldest delivery to a consumer, unix ms; None if there is none. Reads no cold chunk.

        If the oldest entry's chunk is cold, returns the time of the chunk's youngest entry instead.
        """
        by_time = self.orders.by_time
        i = bisect_left(by_time.tops, 0)
        if i < len(by_time.tops):
            chunk = by_time.chunks[i]
            return by_time.tops[i] if chunk is None else chunk[1][bisect_left(chunk[1], 0)]
        return next(iter(self.young.values()))[0] if self.young else None

    def entries(self) -> Iterator[PendingEntry]:
        """Yield (id, time, owner, delivery count) of all entries, ascending. Cold chunks stay cold."""
        yield from self.orders.by_id.entries()
        for key, delivery in zip(self._young_keys(), self.young.values()):
            yield id_of(key), *delivery

    def held_by(self, owner: int) -> int:
        """The number of entries that a consumer has pending."""
        held = self.orders.owner(owner).n
        if self.young:
            held += [of for _, of, _ in self.young.values()].count(owner)
        return held

    def nacked(self) -> int:
        """The number of entries in the NACK zone."""
        return self.orders.nacked()

    def resident(self) -> int:
        """Approximate number of entries in memory. O(chunks) at C speed."""
        return self.orders.resident() + len(self.young)

    # --- checkpoints, copy and check

    def freeze(self) -> FrozenPending:
        """Copy what the next checkpoint has to hold. O(chunks) at C speed."""
        self._flush()
        return self.orders.freeze()

    @classmethod
    def restored(
        cls, directory: Sequence[Any], cold: ColdStore, stream: int, group: int, name: bytes
    ) -> Self:
        """Restore pending entries from a directory, all chunks cold. Raises ValueError if it is malformed."""
        self = cls()
        self.orders = Orders.restored(directory, cold, stream, group, name)
        self._find_max()
        return self

    def copy(self) -> Self:
        """An independent copy, all in memory. Owners keep their numbers. May raise CorruptBlock."""
        other = type(self)()
        other.orders = self.orders.copy()
        other.young = self.young.copy()
        other._key_max, other._time_max = self._key_max, self._time_max
        return other

    def check(self) -> None:
        """Assert the invariants. O(n); tests call it after every step. Cold chunks stay cold."""
        orders = self.orders
        orders.check()
        keys, times = [*self._young_keys()], [time for time, _, _ in self.young.values()]
        by_id, by_time = orders.by_id.tops, orders.by_time.tops
        assert len(keys) < YOUNG
        assert not keys or not orders.wide
        assert keys == sorted({*keys, *by_id[-1:]})[len(by_id[-1:]) :]
        assert times == sorted([0, *by_time[-1:], *times])[1 + len(by_time[-1:]) :]
        assert all(orders.owner(owner) for _, owner, _ in self.young.values())
        assert orders.wide or all(key <= self._key_max for key in [*by_id[-1:], *keys])
        assert orders.wide or all(time <= self._time_max for time in [*by_time[-1:], *times])
