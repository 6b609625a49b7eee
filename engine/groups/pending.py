"""The pending entries of one group, in three orders: by ID, by delivery time and by consumer.

    by ID        engine.groups.by_id      IDs, times, owners, counts            tops: last ID of each chunk
    by time      engine.groups.by_time    IDs, times, ordered by (time, ID)     tops: last time of each chunk
    by consumer  engine.groups.by_owner   per owner: IDs                        tops: last ID of each chunk

Each order is a list of chunks of about 64 entries (engine.groups.chunks). A chunk is a few columns; a column is an
`array` of 8 bytes per entry (owners: 4). So a pending entry costs about 60 bytes and the garbage collector visits
none of them. A change of k entries costs O(k * (log n + chunk)). A delivery that is acknowledged or claimed as a
whole is found, compared and cut as slices. Invariants between any two calls, verified by `check()`:

1. No chunk is empty; IDs ascend strictly within and across chunks; a top is its chunk's last value; all columns of a
   chunk have the same length.
2. Each entry's (time, ID) is in the time order exactly once, ascending.
3. An ID is in the chunks of exactly one consumer, the one in its owner column. Owner 0 is nobody.
4. The consumers' sizes plus the number of entries without owner equal the number of entries in the orders.

Small new deliveries first go to a dict of *young* deliveries, outside the orders: most are acknowledged a moment later
and then never enter an order. Its invariants:

5. A young entry has an owner and a key. It comes after all entries of the orders, by ID and by (time, ID); the dict
   ascends by both. So a reader treats the dict as one more chunk at the end of every order, without moving it there.
6. Only small deliveries above all other entries become young (`deliver`). Every other change except an
   acknowledgement first flushes the young entries into the orders, and so does a freeze. A flush only appends, so it
   reads nothing and cannot fail. There are always fewer than `YOUNG`.

Internally an ID is a key of `engine.idlist`. The first ID that has no key converts the group permanently to the wide
form: the same code over lists of 128-bit ints. Keys leave this module only through `to_id`.

Entries released by XNACK have no owner and are in the NACK zone (spec 7.5). Their times ascend from `NACK_TIME`, so
they come before all others, in the order of release; commands show the time as 0. Entries of equal time are in ID
order. That order depends only on the entries, so replay and live execution agree. How entries are split into chunks
depends on history, and is not observable.

After `evict` or `restored`, chunks are cold until they are needed, so almost every method can raise CorruptBlock. A
method that changes state must not raise half way: the caller first calls `prepare_...` (engine.effects.prepare).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from tidelog.engine.groups.by_id import Row, columns_of
from tidelog.engine.groups.chunk_rows import Chunk, Column
from tidelog.engine.groups.chunks import Part
from tidelog.engine.groups.pending_orders import NACK_TIME as NACK_TIME
from tidelog.engine.groups.pending_orders import NOBODY as NOBODY
from tidelog.engine.groups.pending_orders import YOUNG, PendingOrders
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

FEW: Final = 3  # up to this many entries are changed one by one rather than as slices
YOUNG_BYTES: Final = 16 * 8  # longest ID list that becomes young; longer ones are cheaper as slices


class Pending(PendingOrders):
    """The pending entries of one group.

    Only apply calls the methods that change state; they do not validate arguments. ID lists passed to `deliver` ascend
    and have no duplicates. All other methods change nothing, except that they may load chunks into memory.
    """

    __slots__ = ()

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
            self._deliver(want, owner, time, counts)
            self._find_max()

    def _deliver(self, want: Column, owner: int, time: int, counts: int | Sequence[int]) -> None:
        n = len(want)
        tops = self._by_id.tops
        if not tops or want[0] > tops[-1]:
            times, owners, tally = columns_of(n, owner, time, counts)
            self._by_id.append((want[:], times, owners, tally), n)
            self._by_time.add(want, n, time)
            self._owner(owner).add(want, n)
            self.n += n
        elif n <= FEW:
            each = [counts] * n if isinstance(counts, int) else counts
            for key, count in zip(want, each):
                self._put(key, owner, time, count)
        elif not self._redeliver_run(want, n, owner, time, counts):
            # The IDs are from several deliveries, or only some are new: halve until a part is uniform or small.
            half = n // 2
            low = high = counts
            if not isinstance(counts, int):
                low, high = counts[:half], counts[half:]
            self._deliver(want[:half], owner, time, low)
            self._deliver(want[half:], owner, time, high)

    def remove(self, ids: IdList) -> None:
        """Remove pending entries. IDs that are not pending are ignored."""
        if len(ids) == 8 and ids.__class__ is bytes and not self.wide:
            if self.young.pop(ids, None) is None:
                self._remove_key(unpack_key(ids)[0])
            return
        if self.young:
            ids = self._remove_young(ids)
            if not ids:
                return
        want = self._those_with_keys(ids)
        if want:
            self._remove(want)

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

    def _remove(self, want: Column) -> None:
        if len(want) <= FEW:
            for key in want:
                self._remove_key(key)
        elif not self._remove_run(want):
            half = len(want) // 2  # from several deliveries: halve until a part is uniform or small
            self._remove(want[:half])
            self._remove(want[half:])

    def nack(self, ids: IdList, counts: int | Sequence[int]) -> None:
        """Make each ID pending without owner, at the end of the NACK zone in the given order."""
        want = self._want(ids)
        self._flush()
        if isinstance(counts, int):
            counts = [counts] * len(want)
        for key, count in zip(want, counts):
            self._put(key, NOBODY, self._nack_time, count)
            self._nack_time += 1
        self._find_max()

    def _remove_run(self, want: Column) -> bool:
        """Remove entries that are contiguous by ID and by time, perhaps of one consumer. False: they are not.

        Comparing IDs is enough in each order, since an ID is in it only once.
        """
        by_id, by_time = self._by_id, self._by_time
        parts = by_id.place_run(want)
        if parts is None:
            return False
        i, j, _ = parts[0]
        _, times, owners, _ = by_id.chunks[i] or by_id.load(i)
        place, at = by_time.place(times[j], want[0])
        time_parts = by_time.find_run(place, at, want)
        if time_parts is None:
            return False
        owned = self._owned[owners[j]]
        owned_parts = None if owned is None else owned.place_run(want)
        if owned is not None and owned_parts is not None:
            owned.cut(owned_parts)
            owned.n -= len(want)
        else:
            self._disown(parts)
        by_time.cut(time_parts)
        by_id.cut(parts)
        self.n -= len(want)
        return True

    def _disown(self, parts: list[Part]) -> None:
        """Remove the entries of these parts (by ID) from their consumers."""
        for i, j, k in parts:
            ids, _, owners, _ = self._by_id.chunks[i] or self._by_id.load(i)
            for key, owner in zip(ids[j:k], owners[j:k]):
                owned = self._owned[owner]
                if owned is not None:
                    owned.discard(key)

    def _redeliver_run(
        self, want: Column, n: int, owner: int, time: int, counts: int | Sequence[int]
    ) -> bool:
        """Redeliver entries that are contiguous in all three orders. False, and nothing done, if they are not."""
        by_id, by_time = self._by_id, self._by_time
        parts = by_id.place_run(want)
        if parts is None:
            return False
        i, j, _ = parts[0]
        _, times, owners, _ = by_id.chunks[i] or by_id.load(i)
        place, at = by_time.place(times[j], want[0])
        time_parts = by_time.find_run(place, at, want)
        owned = self._owned[owners[j]]
        owned_parts = None if owned is None else owned.place_run(want)
        if time_parts is None or owned is None or owned_parts is None:
            return False
        by_time.cut(time_parts)
        by_time.add(want, n, time)
        heir = self._owner(owner)
        if heir is not owned:
            owned.cut(owned_parts)
            owned.n -= n
            heir.add(want, n)
        by_id.rewrite(parts, owner, time, counts)
        return True

    def _put(self, key: int, owner: int, time: int, count: int) -> None:
        """Insert or change one entry in all three orders."""
        old = self._by_id.put(key, time, owner, count)
        if old is None:
            self.n += 1
        else:
            self._by_time.remove(old[0], key)
            holder = self._owned[old[1]]
            if holder is not None:
                holder.discard(key)
        self._by_time.add_one(key, time)
        heir = self._owned[owner]
        if heir is not None:
            heir.add_one(key)

    def _remove_key(self, key: int) -> None:
        old = self._by_id.take(key)
        if old is not None:
            self.n -= 1
            self._by_time.remove(old[0], key)
            holder = self._owned[old[1]]
            if holder is not None:
                holder.discard(key)

    def drop_owner(self, owner: int) -> None:
        """Delete a consumer and its pending entries."""
        owned = self._owner(owner)
        few = self._holds_few(owner)
        self._flush()
        if few:
            for key in self._held(owned):
                self._remove_key(key)
        else:
            self._filter_out(owner, set(self._held(owned)))
        owned.leave()
        self._owned[owner] = None
        self._free.append(owner)

    def _filter_out(self, owner: int, gone: set[int]) -> None:
        """Drop all entries (keys `gone`) of an owner that has many, in one pass over the chunks."""

        def kept_by_id(chunk: Chunk) -> list[bool] | None:
            owners = chunk[2]
            return [other != owner for other in owners] if owner in owners else None

        def kept_by_time(chunk: Chunk) -> list[bool] | None:
            return None if gone.isdisjoint(chunk[0]) else [key not in gone for key in chunk[0]]

        self._by_id.load_all()
        self._by_time.load_all()
        self._by_id.sweep(kept_by_id)
        self._by_time.sweep(kept_by_time)
        self.n -= len(gone)

    def _widen(self) -> None:
        """Convert to the wide form: an ID has no key. O(n), at most once for a group."""
        self.load_all()
        self._flush()
        for order in self._orders():
            order.widen()
        self.wide = True

    def _want(self, ids: IdList) -> Column:
        """The column of an ID list that becomes pending. Converts to the wide form if an ID has no key."""
        if not self.wide:
            if ids.__class__ is bytes:
                return keys(ids)
            self._widen()
        return unpack(ids)

    # --- reading

    def contains(self, id: int) -> bool:
        """Whether an entry is pending."""
        return self.get(id) is not None

    def get(self, id: int) -> tuple[int, int, int] | None:
        """(delivery time, owner, delivery count) of a pending entry, or None."""
        if self.wide:
            return self._by_id.get(id)
        if id & WIDE_BITS:
            return None
        key = (id >> ID_SHIFT | id & KEY_SEQ_MASK) - KEY_BASE  # key_of without the call
        return self.young.get(pack_key(key)) or self._by_id.get(key)

    def are_held(self, ids: IdList, owner: int, count: int) -> bool:
        """Whether all of an ascending ID list are pending for one owner with one delivery count.

        May be False although they are, where only a look at each entry could tell.
        """
        if not ids or self.wide or not isinstance(ids, bytes):
            return False
        if ids[-8:] not in self.young:
            return self._by_id.are_held(keys(ids), owner, count)
        found = set(map(self.young.get, singles(ids)))
        return all(each is not None and each[1:] == (owner, count) for each in found)

    def among(self, ids: Iterable[int]) -> list[int]:
        """Those of `ids` that are pending, ascending, without duplicates."""
        if not len(self):
            return []
        return [id for id in sorted(set(ids)) if self.get(id) is not None]

    def present(self, ids: IdList) -> IdList:
        """Those of an ID list that are pending, ascending, without duplicates."""
        if ids.__class__ is bytes and not self.wide:
            young = self.young
            if len(ids) == 8:
                return ids if ids in young or self._by_id.holds(unpack_key(ids)[0]) else b""
            if not ids:
                return b""
            want = keys(ids)
            if ids[-8:] not in young and self._by_id.place_run(want) is not None:
                return ids
            here = list(filter(young.__contains__, singles(ids))) if young else []
            if len(here) == len(want):
                return from_keys(array("q", sorted({*want})))
            held = self._by_id.those_of(want)
            held.extend(sorted({*keys(b"".join(here))}))
            return from_keys(held)
        return pack(self.among(unpack(ids)))

    def first(self) -> int:
        """The smallest pending ID. At least one entry must be pending."""
        by_id = self._by_id
        if not by_id.chunks:
            return id_of(unpack_key(next(iter(self.young)))[0])
        return self.to_id((by_id.chunks[0] or by_id.load(0))[0][0])

    def last(self) -> int:
        """The greatest pending ID. At least one entry must be pending."""
        if self.young:
            return id_of(unpack_key(next(reversed(self.young)))[0])
        return self.to_id(self._by_id.tops[-1])

    def slices(self, start: int) -> Iterator[Chunk]:
        """Yield the entries from ID `start` on, ascending, as columns: keys, times, owners, counts."""
        low = self._by_id.key_from(start)
        yield from self._by_id.slices(low)
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
    ) -> list[Row]:
        """(id, time, owner, delivery count) of up to `count` entries with start <= ID <= end, ascending.

        owner: only entries of this consumer. time_max: only entries delivered at or before this time, unix ms.
        """
        if count <= 0:
            return []
        low, high = self._by_id.key_from(start), self._by_id.key_to(end)
        page = self._page(low, high, count, owner, time_max) if self.n else []
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

    def _page(
        self, low: int, high: int, count: int, owner: int | None, time_max: int | None
    ) -> list[Row]:
        """`page` of the entries in the orders, for keys low..high. The orders must not be empty."""
        if time_max is not None and self._by_time.first_time() > time_max:
            return []
        by_id = self._by_id
        if owner is None:
            return by_id.page(low, high, count, time_max)
        page: list[Row] = []
        for column in self._owner(owner).slices(low, high):
            if time_max is None:
                page += by_id.rows_at(column[: count - len(page)])
            else:
                page += [row for row in by_id.rows_at(column) if row[1] <= time_max]
            if len(page) >= count:
                break
        return page[:count]

    def by_age(self, start: int = NACK_TIME) -> Iterator[tuple[int, int]]:
        """Yield (time, id) of the entries delivered at `start` (unix ms) or later, oldest first.

        By default all entries; those of the NACK zone come first.
        """
        for ids, times in self._by_time.slices(start):
            yield from zip(times, self._by_id.ids_of(ids))
        for key, (time, _, _) in zip(self._young_keys(), self.young.values()):
            if time >= start:
                yield time, id_of(key)

    def oldest(self) -> int | None:
        """Time of the oldest delivery to a consumer, unix ms; None if there is none. Reads no cold chunk.

        If the oldest entry's chunk is cold, returns the time of the chunk's youngest entry instead.
        """
        by_time = self._by_time
        i = bisect_left(by_time.tops, 0)
        if i < len(by_time.tops):
            chunk = by_time.chunks[i]
            return by_time.tops[i] if chunk is None else chunk[1][bisect_left(chunk[1], 0)]
        return next(iter(self.young.values()))[0] if self.young else None

    def entries(self) -> Iterator[Row]:
        """Yield (id, time, owner, delivery count) of all entries, ascending. Cold chunks stay cold."""
        yield from self._by_id.entries()
        for key, delivery in zip(self._young_keys(), self.young.values()):
            yield id_of(key), *delivery
