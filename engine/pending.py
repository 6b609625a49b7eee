"""Pending entries of one group, in three orders: by ID, by delivery time, and by consumer.

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
4. The consumers' sizes and the number of entries without owner add up to `len`.

Inside, an ID is a key of `engine.idlist`. The first ID that has no key turns the group for good into the
wide form, the same code over lists of 128-bit ints. Keys leave this module only through `to_id`.

Entries released by XNACK have no owner and lie in the NACK zone (spec 7.5): their time is `NACK_TIME` and
ascending, so they come before all others, in the order of their release. Shown as 0. Entries of equal
time are in ID order: that follows from the entries alone, so replay and live agree. How entries lie in
chunks follows from nothing, and shows nowhere.

After `evict` or `restore` chunks lie in a checkpoint until they are needed, so almost every method can raise
CorruptBlock. One that changes must not do that half way: decide calls `prepare_...` before it logs an effect.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from tidelog.engine.by_id import IdOrder, Row, columns_of
from tidelog.engine.by_owner import Owned
from tidelog.engine.by_time import TimeOrder
from tidelog.engine.chunk_rows import Chunk, Column, new_column
from tidelog.engine.chunks import LOAD, Order, Part, Shelf
from tidelog.engine.cold import ColdStore
from tidelog.engine.frozen_pending import FrozenPending, restore_lasts, restore_order
from tidelog.engine.idlist import (
    IdList,
    from_keys,
    id_of,
    is_narrow,
    key_of,
    keys,
    pack,
    unpack,
    unpack_key,
)

FEW: Final = 3  # up to here entries are handled one by one rather than as a stretch
NOBODY: Final = 0  # owner of an entry that XNACK released
# The first delivery time of the NACK zone; every time below 0 is in it.
NACK_TIME: Final = -(1 << 62)


class Pending:
    """The pending entries of one group.

    Methods that change are called by apply alone and trust what they are told; lists of IDs given to
    `deliver` ascend and name no ID twice. The others change nothing but what is in memory.
    """

    __slots__ = ("n", "wide", "_by_id", "_by_time", "_owned", "_free", "_nack_time", "_shelf")

    def __init__(self) -> None:
        self.n = 0
        self.wide = False
        self._shelf = Shelf()
        self._by_id = IdOrder(self._shelf, new_column)
        self._by_time = TimeOrder(self._shelf, new_column)
        self._owned: list[Owned | None] = [None]  # by owner number
        self._free: list[int] = []  # owner numbers to use again
        self._nack_time = NACK_TIME  # of the next entry in the NACK zone

    def __len__(self) -> int:
        return self.n

    def _orders(self) -> Iterator[Order]:
        yield self._by_id
        yield self._by_time
        for owned in self._owned:
            if owned is not None:
                yield owned

    # --- owners

    def add_owner(self) -> int:
        """A number for a new consumer."""
        owned = Owned(self._shelf, self._by_id.new)
        if self._free:
            owner = self._free.pop()
            self._owned[owner] = owned
        else:
            owner = len(self._owned)
            self._owned.append(owned)
        return owner

    def drop_owner(self, owner: int) -> None:
        """Forget a consumer and its pending entries."""
        owned = self._owner(owner)
        if owned.n * LOAD < self.n:
            for key in self._held(owned):
                self._remove_key(key)
        elif owned.n:
            self._filter_out(owner, set(self._held(owned)))
        self._shelf.dropped += filter(None, owned.serials)
        self._owned[owner] = None
        self._free.append(owner)

    def held_by(self, owner: int) -> int:
        """How many entries a consumer has pending."""
        return self._owner(owner).n

    def nacked(self) -> int:
        """How many entries are in the NACK zone."""
        return self.n - sum(owned.n for owned in self._owned if owned is not None)

    def owner_numbers(self) -> int:
        """How many owner numbers there are, NOBODY and those to use again among them."""
        return len(self._owned)

    def _owner(self, owner: int) -> Owned:
        owned = self._owned[owner]
        assert owned is not None
        return owned

    def _held(self, owned: Owned) -> list[int]:
        return [key for i in range(len(owned.chunks)) for key in owned.peek(i)[0]]

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

    # --- IDs and keys

    def to_id(self, key: int) -> int:
        """The entry ID of a key handed out by `slices`."""
        return key if self.wide else id_of(key)

    def _widen(self) -> None:
        """Turn to the wide form: an ID came that has no key. O(n), once in a group's life."""
        self.load_all()
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

    # --- changing

    def deliver(self, ids: IdList, owner: int, time: int, counts: int | Sequence[int]) -> None:
        """Each ID of an ascending list is pending for `owner` from now on, whether it was before or not.

        time: unix ms of the delivery. counts: deliveries of all, or of each.
        """
        if len(ids) == 8 and not self.wide and ids.__class__ is bytes and isinstance(counts, int):
            self._put(unpack_key(ids)[0], owner, time, counts)
            return
        want = self._want(ids)
        if want:
            self._deliver(want, owner, time, counts)

    def _deliver(self, want: Column, owner: int, time: int, counts: int | Sequence[int]) -> None:
        n = len(want)
        tops = self._by_id.tops
        if not tops or want[0] > tops[-1]:
            self._by_id.append((want[:], *columns_of(n, owner, time, counts)), n)
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
        if ids.__class__ is bytes and not self.wide:
            if len(ids) == 8:
                self._remove_key(unpack_key(ids)[0])
                return
            want: Column = keys(ids)
        else:
            want = self._those_with_keys(ids)
        if want:
            self._remove(want)

    def _those_with_keys(self, ids: IdList) -> Column:
        """The column of those IDs that can be pending."""
        if self.wide:
            return unpack(ids)
        return array("q", [key_of(id) for id in unpack(ids) if is_narrow(id)])

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
        if isinstance(counts, int):
            counts = [counts] * len(want)
        for key, count in zip(want, counts):
            self._put(key, NOBODY, self._nack_time, count)
            self._nack_time += 1

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

    # --- asking

    def contains(self, id: int) -> bool:
        """Whether an entry is pending."""
        key = self._by_id.key(id)
        return key is not None and self._by_id.holds(key)

    def get(self, id: int) -> tuple[int, int, int] | None:
        """(delivery time, owner, delivery count) of a pending entry, or None."""
        return self._by_id.get(id)

    def are_held(self, ids: IdList, owner: int, count: int) -> bool:
        """Whether all of an ascending ID list are pending for one owner with one delivery count, as one stretch.

        False also where it would take looking at each to know.
        """
        if not ids or self.wide or not isinstance(ids, bytes):
            return False
        return self._by_id.are_held(keys(ids), owner, count)

    def among(self, ids: Iterable[int]) -> list[int]:
        """Those of `ids` that are pending, ascending, each once."""
        if not self.n:
            return []
        return [id for id in sorted(set(ids)) if self.get(id) is not None]

    def present(self, ids: IdList) -> IdList:
        """Those of an ID list that are pending, ascending, each once."""
        if not ids or not self.n:
            return b""
        if ids.__class__ is bytes and not self.wide:
            if len(ids) == 8:
                return ids if self._by_id.holds(unpack_key(ids)[0]) else b""
            want = keys(ids)
            if self._by_id.place_run(want) is not None:
                return ids
            return from_keys(self._by_id.those_of(want))
        return pack(self.among(unpack(ids)))

    def first(self) -> int:
        """The smallest pending ID. There is one."""
        by_id = self._by_id
        return self.to_id((by_id.chunks[0] or by_id.load(0))[0][0])

    def last(self) -> int:
        """The greatest pending ID. There is one."""
        return self.to_id(self._by_id.tops[-1])

    def slices(self, start: int) -> Iterator[Chunk]:
        """The entries from ID `start` on, ascending, as columns: keys, times, owners, counts."""
        return self._by_id.slices(self._by_id.key_from(start))

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
        if count <= 0 or not self.n:
            return []
        if time_max is not None and self._by_time.first_time() > time_max:
            return []
        by_id = self._by_id
        low, high = by_id.key_from(start), by_id.key_to(end)
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

    def entries(self) -> Iterator[Row]:
        """(id, time, owner, delivery count) of all entries, ascending. Leaves in memory what is there."""
        return self._by_id.entries()

    # --- chunks that are not in memory

    @property
    def away(self) -> bool:
        """Whether chunks may be missing from memory, so that `prepare_...` is called for."""
        return self._shelf.away

    def resident(self) -> int:
        """About how many entries are in memory. O(chunks) at C speed."""
        chunks = self._by_id.chunks
        if not self._shelf.away or not chunks:
            return self.n
        return self.n * (len(chunks) - chunks.count(None)) // len(chunks)

    def load_all(self) -> None:
        """Bring everything into memory. May raise CorruptBlock."""
        if self._shelf.away:
            for order in self._orders():
                order.load_all()
            self._shelf.away = False

    def prepare_deliver(self, ids: IdList, owner: int | None, time: int) -> None:
        """Bring into memory what `deliver` of these will change. May raise CorruptBlock.

        owner: None for a consumer to be created, NOBODY for `nack`, where `time` is of no matter.
        """
        if not self._shelf.away:
            return
        if not self.wide and not isinstance(ids, bytes):
            self.load_all()  # the group will turn to the wide form
            return
        if owner == NOBODY:
            time = self._nack_time
        heir = None if owner is None else self._owned[owner]
        tops = self._by_id.tops
        for key in self._those_with_keys(ids):
            if tops and key <= tops[-1]:
                self._warm(key)
            self._by_time.warm(time, key)
            if heir is not None:
                heir.warm(key)

    def prepare_remove(self, ids: IdList) -> None:
        """Bring into memory what `remove` of these will change. May raise CorruptBlock."""
        if self._shelf.away:
            for key in self._those_with_keys(ids):
                self._warm(key)

    def prepare_drop(self, owner: int) -> None:
        """Bring into memory what `drop_owner` will change. May raise CorruptBlock."""
        if not self._shelf.away:
            return
        owned = self._owner(owner)
        owned.load_all()
        if owned.n * LOAD < self.n:
            for key in self._held(owned):
                self._warm(key)
        elif owned.n:
            self._by_id.load_all()
            self._by_time.load_all()

    def _warm(self, key: int) -> None:
        """Bring into memory where an entry lies in all three orders, if it is pending."""
        row = self.get(self.to_id(key))
        if row is not None:
            self._by_time.warm(row[0], key)
            owned = self._owned[row[1]]
            if owned is not None:
                owned.warm(key)

    def evict(self, cold: ColdStore, stream: int, group: int, name: bytes) -> None:
        """Forget the chunks that have rows in `cold`: all that were handed over, but for those of a freeze that
        failed. No freeze may be in flight.

        stream, group: the numbers in the keys of the rows. name: of the group, for errors.
        """
        self._shelf.place_at(cold, stream, group, name)
        for order in self._orders():
            order.evict()
        self._shelf.away = True

    def freeze(self) -> FrozenPending:
        """What a checkpoint is to hold. O(chunks) at C speed."""
        return FrozenPending(
            *(self.n, self.wide, self._nack_time, self._free),
            *(self._by_id, self._by_time, self._owned, self._shelf),
        )

    def thaw(self, frozen: FrozenPending) -> None:
        """The checkpoint that got `frozen` failed: what it had to write is to be written by the next."""
        shelf = self._shelf
        shelf.dropped = frozen.dropped + shelf.dropped
        shelf.unstored.update(frozen.handed())

    @classmethod
    def restored(
        cls, directory: Sequence[Any], cold: ColdStore, stream: int, group: int, name: bytes
    ) -> Pending:
        """The pending entries of a directory, none of them in memory. ValueError if it cannot be one."""
        self = cls()
        n, wide, nack_time, next_serial, free, by_id, by_time, owners = directory
        self.n, self.wide, self._nack_time, self._free = n, wide, nack_time, list(free)
        shelf = self._shelf
        shelf.place_at(cold, stream, group, name)
        shelf.next_serial, shelf.away = next_serial, True
        new: Callable[[Iterable[int]], Column] = list if wide else new_column
        self._by_id.new = self._by_time.new = new
        restore_order(self._by_id, *by_id)
        restore_order(self._by_time, *by_time[:2])
        restore_lasts(self._by_time, by_time[2])
        for row in owners[1:]:
            owned = None
            if row is not None:
                owned = Owned(shelf, new)
                owned.n = row[0]
                restore_order(owned, *row[1:])
            self._owned.append(owned)
        return self

    # --- whole

    def copy(self) -> Pending:
        """An independent copy, all in memory; owners keep their numbers. May raise CorruptBlock."""
        other = Pending()
        other.n, other.wide, other._nack_time = self.n, self.wide, self._nack_time
        other._free = self._free[:]
        other._by_id.new = other._by_time.new = self._by_id.new
        self._by_id.copy_to(other._by_id)
        self._by_time.copy_to(other._by_time)
        for owned in self._owned[1:]:
            twin = None
            if owned is not None:
                twin = Owned(other._shelf, owned.new)
                twin.n = owned.n
                owned.copy_to(twin)
            other._owned.append(twin)
        return other

    def check(self) -> None:
        """Assert the rules of this module. O(n); tests call it after every step. Leaves in memory what is there."""
        for order in self._orders():
            order.check()
            assert order.shelf is self._shelf
        serials = [serial for order in self._orders() for serial in order.serials if serial]
        assert len(serials) == len(set(serials))
        assert not set(serials) & set(self._shelf.dropped)
        rows = list(self.entries())
        ids = [row[0] for row in rows]
        assert ids == sorted(set(ids))
        assert len(rows) == self.n
        by_time = self._by_time
        by_age = [
            (time, id)
            for i in range(len(by_time.chunks))
            for id, time in zip(self._by_id.ids_of(by_time.peek(i)[0]), by_time.peek(i)[1])
        ]
        assert by_age == sorted((row[1], row[0]) for row in rows)
        assert all(time < self._nack_time for time, _ in by_age[: self.nacked()])
        for owner, owned in enumerate(self._owned):
            held = [row[0] for row in rows if row[2] == owner]
            if owned is None:
                assert owner == NOBODY or (not held and owner in self._free)
            else:
                assert list(self._by_id.ids_of(self._held(owned))) == held
                assert owned.n == len(held)
        for _, time, owner, _ in rows:
            assert (time < 0) == (owner == NOBODY)
