"""Pending entries of one group, in three orders: by ID, by delivery time, and by consumer; young ones in none yet.

    by ID        engine.by_id      IDs, times, owners, counts            tops: last ID of each chunk
    by time      engine.by_time    IDs, times, ordered by (time, ID)     tops: last time of each chunk
    by consumer  engine.by_owner   for each owner IDs                    tops: last ID of each chunk

Each is a list of chunks of about 64 entries (engine.chunks), a chunk a few columns. A column is an `array`, 8
bytes an entry (owners: 4), so a pending entry costs about 60 bytes and the collector walks nothing.
Whatever a command does to k entries costs O(k * (log n + chunk)), and a whole delivery that is acknowledged or
claimed together is found, compared and cut as slices. Rules that hold between any two calls, and that `check()` walks:

1. No chunk is empty; IDs ascend strictly within and across chunks; a top is its chunk's last value; the
   columns of a chunk are equally long.
2. (time, ID) is in the time order exactly once for each entry, ascending.
3. An ID is in exactly the one consumer's chunks that its owner column names. Owner 0 is nobody.
4. The consumers' sizes and the number of entries without owner add up to the entries in the orders.

Before the orders lies a dict of *young* deliveries, as most are acknowledged a moment later, and then were never in
any order. It has rules of its own:

5. What is young has an owner and a key, is above all in the orders by ID and by time, and ascends by both, as the dict
   has it. So it is one more chunk at the end of every order, for who looks; and looking changes nothing.
6. Only small deliveries of what is above all get there (`deliver`). Any other change but an acknowledgement first
   puts all that is young into the orders, and so does a freeze; that appends, so it reads nothing and cannot fail.
   There are always fewer than `YOUNG`.

Inside, an ID is a key of `engine.idlist`. The first ID that has no key turns the group for good into the
wide form, the same code over lists of 128-bit ints. Keys leave this module only through `to_id`.

Entries released by XNACK have no owner and lie in the NACK zone (spec 7.5): their time is `NACK_TIME` and
ascending, so they come before all others, in the order of their release. Shown as 0. Entries of equal
time are in ID order: that follows from the entries alone, so replay and live agree. How entries lie in
chunks follows from nothing, and shows nowhere.

After `evict` or `restore` chunks lie in a checkpoint until they are needed, so almost every method can raise
CorruptBlock. One that changes must not do that half way: `prepare_...` is called before (engine.prepare).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from tidelog.engine.by_id import Row, columns_of
from tidelog.engine.chunk_rows import Chunk, Column
from tidelog.engine.chunks import Part
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
from tidelog.engine.pending_orders import NACK_TIME as NACK_TIME
from tidelog.engine.pending_orders import NOBODY as NOBODY
from tidelog.engine.pending_orders import YOUNG, PendingOrders

FEW: Final = 3  # up to here entries are handled one by one rather than as a stretch
YOUNG_BYTES: Final = 16 * 8  # of an ID list that can be young; longer ones are cheaper as stretches


class Pending(PendingOrders):
    """The pending entries of one group.

    Methods that change are called by apply alone and trust what they are told; lists of IDs given to
    `deliver` ascend and name no ID twice. The others change nothing but what is in memory.
    """

    __slots__ = ()

    # --- changing

    def deliver(self, ids: IdList, owner: int, time: int, counts: int | Sequence[int]) -> None:
        """Each ID of an ascending list is pending for `owner` from now on, whether it was before or not.

        time: unix ms of the delivery. counts: deliveries of all, or of each.
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
            # What was several deliveries, or is partly new: in stretches, if it has any.
            half = n // 2
            low = high = counts
            if not isinstance(counts, int):
                low, high = counts[:half], counts[half:]
            self._deliver(want[:half], owner, time, low)
            self._deliver(want[half:], owner, time, high)

    def remove(self, ids: IdList) -> None:
        """Take pending entries out. IDs that are not pending are passed over."""
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
        """Take out what is young. What is left to do."""
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
            half = len(want) // 2  # what was several deliveries: in stretches, if it has any
            self._remove(want[:half])
            self._remove(want[half:])

    def nack(self, ids: IdList, counts: int | Sequence[int]) -> None:
        """Each ID is pending without owner, at the end of the NACK zone in this order."""
        want = self._want(ids)
        self._flush()
        if isinstance(counts, int):
            counts = [counts] * len(want)
        for key, count in zip(want, counts):
            self._put(key, NOBODY, self._nack_time, count)
            self._nack_time += 1
        self._find_max()

    def _remove_run(self, want: Column) -> bool:
        """Remove what lies together by ID and by time, and perhaps belongs to one consumer.

        Comparing the IDs of a stretch is enough in each order: an ID is in it only once.
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
        """Take entries of these parts by ID from whoever holds each."""
        for i, j, k in parts:
            ids, _, owners, _ = self._by_id.chunks[i] or self._by_id.load(i)
            for key, owner in zip(ids[j:k], owners[j:k]):
                owned = self._owned[owner]
                if owned is not None:
                    owned.discard(key)

    def _redeliver_run(
        self, want: Column, n: int, owner: int, time: int, counts: int | Sequence[int]
    ) -> bool:
        """Hand over what was delivered together, if it still lies together in all three orders."""
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
        """One entry as `deliver` and `nack` leave it."""
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
        """Forget a consumer and its pending entries."""
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
        """Drop all entries of an owner that has many."""

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
        """Turn to the wide form: an ID came that has no key. O(n), once in a group's life."""
        self.load_all()
        self._flush()
        for order in self._orders():
            order.widen()
        self.wide = True

    def _want(self, ids: IdList) -> Column:
        """The column of an ID list that is about to be pending."""
        if not self.wide:
            if ids.__class__ is bytes:
                return keys(ids)
            self._widen()
        return unpack(ids)

    # --- asking

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
        """Whether all of an ascending ID list are pending for one owner with one delivery count, as one stretch.

        False also where it would take looking at each to know.
        """
        if not ids or self.wide or not isinstance(ids, bytes):
            return False
        if ids[-8:] not in self.young:
            return self._by_id.are_held(keys(ids), owner, count)
        found = set(map(self.young.get, singles(ids)))
        return all(each is not None and each[1:] == (owner, count) for each in found)

    def among(self, ids: Iterable[int]) -> list[int]:
        """Those of `ids` that are pending, ascending, each once."""
        if not len(self):
            return []
        return [id for id in sorted(set(ids)) if self.get(id) is not None]

    def present(self, ids: IdList) -> IdList:
        """Those of an ID list that are pending, ascending, each once."""
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
        """The smallest pending ID. There is one."""
        by_id = self._by_id
        if not by_id.chunks:
            return id_of(unpack_key(next(iter(self.young)))[0])
        return self.to_id((by_id.chunks[0] or by_id.load(0))[0][0])

    def last(self) -> int:
        """The greatest pending ID. There is one."""
        if self.young:
            return id_of(unpack_key(next(reversed(self.young)))[0])
        return self.to_id(self._by_id.tops[-1])

    def slices(self, start: int) -> Iterator[Chunk]:
        """The entries from ID `start` on, ascending, as columns: keys, times, owners, counts."""
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
        """(id, time, owner, delivery count) of up to `count` entries from start to end, ascending.

        owner: only those of this consumer. time_max: only those delivered then or before, unix ms.
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
        """`page` from key to key of what is in the orders. There is something."""
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
        """(time, id) of the entries delivered at `start`, unix ms, or later; the oldest first. By default all of
        them: the NACK zone comes before those that have an owner.
        """
        for ids, times in self._by_time.slices(start):
            yield from zip(times, self._by_id.ids_of(ids))
        for key, (time, _, _) in zip(self._young_keys(), self.young.values()):
            if time >= start:
                yield time, id_of(key)

    def oldest(self) -> int | None:
        """When the oldest delivery to a consumer was, unix ms; None if there is none. Reads nothing.

        The chunk where it lies need not be in memory; then its youngest entry stands for it.
        """
        by_time = self._by_time
        i = bisect_left(by_time.tops, 0)
        if i < len(by_time.tops):
            chunk = by_time.chunks[i]
            return by_time.tops[i] if chunk is None else chunk[1][bisect_left(chunk[1], 0)]
        return next(iter(self.young.values()))[0] if self.young else None

    def entries(self) -> Iterator[Row]:
        """(id, time, owner, delivery count) of all entries, ascending. Leaves in memory what is there."""
        yield from self._by_id.entries()
        for key, delivery in zip(self._young_keys(), self.young.values()):
            yield id_of(key), *delivery
