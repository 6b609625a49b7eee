"""The orders of one group's pending entries: by ID, by delivery time and by consumer, changed together.

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

An ID is a key of `engine.idlist` here. The first ID that has no key converts the group permanently to the wide form:
the same code over lists of 128-bit ints. Keys leave the orders only through `to_id`.

Entries released by XNACK have no owner and are in the NACK zone (spec 7.5). Their times ascend from `NACK_TIME`, so
they come before all others, in the order of release; commands show the time as 0. Entries of equal time are in ID
order. That order depends only on the entries, so replay and live execution agree. How entries are split into chunks
depends on history, and is not observable.

After `evict` or `restored`, chunks are cold until they are needed, so almost every method can raise CorruptBlock. A
method that changes state must not raise half way: the caller first calls `prepare_...` (engine.effects.prepare).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Self

from tidelog.engine.cold import ColdStore
from tidelog.engine.groups.by_id import IdOrder, PendingEntry, columns_of
from tidelog.engine.groups.by_owner import Owned
from tidelog.engine.groups.by_time import TimeOrder
from tidelog.engine.groups.chunk_rows import Chunk, Column, new_column
from tidelog.engine.groups.chunks import LOAD, Order, Part, Shelf
from tidelog.engine.groups.frozen_pending import FrozenPending, restore_lasts, restore_order
from tidelog.engine.idlist import IdList, id_of, is_narrow, key_of, keys, unpack

NOBODY: Final = 0  # owner of an entry that XNACK released
# Time of the first entry in the NACK zone. Every entry with a time below 0 is in the zone.
NACK_TIME: Final = -(1 << 62)
FEW: Final = 3  # up to this many entries are changed one by one; more of them are changed as slices


class Orders:
    """The pending entries of one group, except the young ones (engine.groups.pending).

    n       number of entries
    wide    whether keys are IDs

    Only apply calls the methods that change entries; they do not validate arguments. Columns of keys passed to them
    ascend and have no duplicates. All other methods change nothing, except that they may load chunks into memory.
    """

    __slots__ = (
        *("n", "wide", "by_id", "by_time"),
        *("_owned", "_free", "_nack_time", "_shelf"),
    )

    def __init__(self) -> None:
        self.n = 0
        self.wide = False
        self._shelf = Shelf()
        self.by_id = IdOrder(self._shelf, new_column)
        self.by_time = TimeOrder(self._shelf, new_column)
        self._owned: list[Owned | None] = [None]  # by owner number
        self._free: list[int] = []  # owner numbers to use again
        self._nack_time = NACK_TIME  # of the next entry in the NACK zone

    def all(self) -> Iterator[Order]:
        yield self.by_id
        yield self.by_time
        for owned in self._owned:
            if owned is not None:
                yield owned

    # --- owners

    def add_owner(self) -> int:
        """Allocate the owner number of a new consumer."""
        owned = Owned(self._shelf, self.by_id.new)
        if self._free:
            owner = self._free.pop()
            self._owned[owner] = owned
        else:
            owner = len(self._owned)
            self._owned.append(owned)
        return owner

    def owner_numbers(self) -> int:
        """The number of owner numbers, including NOBODY and free ones."""
        return len(self._owned)

    def nacked(self) -> int:
        """The number of entries in the NACK zone."""
        return self.n - sum(owned.n for owned in self._owned if owned is not None)

    def owner(self, owner: int) -> Owned:
        owned = self._owned[owner]
        assert owned is not None
        return owned

    def _keys_of(self, owned: Owned) -> list[int]:
        return [key for i in range(len(owned.chunks)) for key in owned.peek(i)[0]]

    # --- IDs and keys

    def to_id(self, key: int) -> int:
        """The entry ID of a key that `slices` returned."""
        return key if self.wide else id_of(key)

    def those_with_keys(self, ids: IdList) -> Column:
        """The column of those IDs that can be pending: in the narrow form, those that have a key."""
        if self.wide:
            return unpack(ids)
        if isinstance(ids, bytes):
            return keys(ids)
        return array("q", [key_of(id) for id in unpack(ids) if is_narrow(id)])

    def widen(self) -> None:
        """Convert to the wide form. All chunks must be in memory. O(n), at most once for a group."""
        for order in self.all():
            order.widen()
        self.wide = True

    # --- changing

    def append(self, run: Chunk) -> None:
        """Add entries that come after all others by ID and by (time, ID). Reads nothing, so it cannot fail."""
        ids, times, owners, _ = run
        held: dict[int, Column] = {}
        for key, owner in zip(ids, owners):
            if owner in held:
                held[owner].append(key)
            else:
                held[owner] = new_column((key,))
        for owner, column in held.items():
            self.owner(owner).add(column, len(column))
        n = len(ids)
        self.by_time.append((ids[:], times[:]), n)
        self.by_id.append(run, n)
        self.n += n

    def fill(self, run: Chunk, nacked: Sequence[int], wide: bool) -> None:
        """Add the entries of a whole group to orders that have owners and no entries. Takes over the columns.

        run      (IDs, times, owners, delivery counts), ascending by ID. Times are 0 or more
        nacked   IDs of the entries without owner, in the order of their release; they get times of the NACK zone
        wide     the IDs are IDs, not keys
        """
        if wide:
            self.widen()
        ids, times, owners, _ = run
        n = len(ids)
        for key in nacked:
            times[bisect_left(ids, key)] = self._nack_time
            self._nack_time += 1
        aged = sorted(range(n), key=times.__getitem__)
        columns = (
            self.by_id.new(map(ids.__getitem__, aged)),
            new_column(map(times.__getitem__, aged)),
        )
        self.by_time.append(columns, n)
        held = [self.by_id.new(()) for _ in self._owned]
        for key, owner in zip(ids, owners):
            held[owner].append(key)
        for owned, column in zip(self._owned, held):
            if owned is not None and column:
                owned.add(column, len(column))
        self.by_id.append(run, n)
        self.n = n

    def deliver(self, want: Column, owner: int, time: int, counts: int | Sequence[int]) -> None:
        """Make each key pending for `owner`, whether it was pending before or not. See `Pending.deliver`."""
        n = len(want)
        tops = self.by_id.tops
        if not tops or want[0] > tops[-1]:
            times, owners, tally = columns_of(n, owner, time, counts)
            self.by_id.append((want[:], times, owners, tally), n)
            self.by_time.add(want, n, time)
            self.owner(owner).add(want, n)
            self.n += n
        elif n <= FEW:
            each = [counts] * n if isinstance(counts, int) else counts
            for key, count in zip(want, each):
                self._put(key, owner, time, count)
        elif not self._redeliver_run(want, n, owner, time, counts):
            # The IDs come from several deliveries, or only some of them are already pending. So halve the list until
            # each part is uniform or small.
            half = n // 2
            low = high = counts
            if not isinstance(counts, int):
                low, high = counts[:half], counts[half:]
            self.deliver(want[:half], owner, time, low)
            self.deliver(want[half:], owner, time, high)

    def remove(self, want: Column) -> None:
        """Remove the entries of a column of keys. Keys that are not pending are ignored."""
        if len(want) <= FEW:
            for key in want:
                self.remove_key(key)
        elif not self._remove_run(want):
            # The IDs come from several deliveries. Halve the list until each part comes from one delivery or is small.
            half = len(want) // 2
            self.remove(want[:half])
            self.remove(want[half:])

    def remove_key(self, key: int) -> None:
        """`remove` of one key."""
        old = self.by_id.take(key)
        if old is not None:
            self.n -= 1
            self.by_time.remove(old[0], key)
            holder = self._owned[old[1]]
            if holder is not None:
                holder.discard(key)

    def nack(self, want: Sequence[int], counts: int | Sequence[int]) -> None:
        """Make each key pending without owner, at the end of the NACK zone in the given order."""
        if isinstance(counts, int):
            counts = [counts] * len(want)
        for key, count in zip(want, counts):
            self._put(key, NOBODY, self._nack_time, count)
            self._nack_time += 1

    def drop_owner(self, owner: int, one_by_one: bool) -> None:
        """Delete a consumer and its pending entries. one_by_one: `holds_few` as it was when they were prepared."""
        owned = self.owner(owner)
        if one_by_one:
            for key in self._keys_of(owned):
                self.remove_key(key)
        else:
            self._filter_out(owner, set(self._keys_of(owned)))
        owned.leave()
        self._owned[owner] = None
        self._free.append(owner)

    def holds_few(self, owner: int) -> bool:
        """Whether to remove a consumer's entries one by one when it is dropped."""
        held = self.owner(owner).n
        return not held or held * LOAD < self.n

    def _remove_run(self, want: Column) -> bool:
        """Remove entries that are contiguous by ID and by time, perhaps of one consumer. False: they are not.

        Comparing IDs is enough in each order, since an ID is in it only once.
        """
        by_id, by_time = self.by_id, self.by_time
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
            ids, _, owners, _ = self.by_id.chunks[i] or self.by_id.load(i)
            for key, owner in zip(ids[j:k], owners[j:k]):
                owned = self._owned[owner]
                if owned is not None:
                    owned.discard(key)

    def _redeliver_run(
        self, want: Column, n: int, owner: int, time: int, counts: int | Sequence[int]
    ) -> bool:
        """Redeliver entries that are contiguous in all three orders. False, and nothing done, if they are not."""
        by_id, by_time = self.by_id, self.by_time
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
        heir = self.owner(owner)
        if heir is not owned:
            owned.cut(owned_parts)
            owned.n -= n
            heir.add(want, n)
        by_id.rewrite(parts, owner, time, counts)
        return True

    def _put(self, key: int, owner: int, time: int, count: int) -> None:
        """Insert or change one entry in all three orders."""
        old = self.by_id.put(key, time, owner, count)
        if old is None:
            self.n += 1
        else:
            self.by_time.remove(old[0], key)
            holder = self._owned[old[1]]
            if holder is not None:
                holder.discard(key)
        self.by_time.add_one(key, time)
        heir = self._owned[owner]
        if heir is not None:
            heir.add_one(key)

    def _filter_out(self, owner: int, gone: set[int]) -> None:
        """Drop all entries (keys `gone`) of an owner that has many, in one pass over the chunks."""

        def kept_by_id(chunk: Chunk) -> list[bool] | None:
            owners = chunk[2]
            return [other != owner for other in owners] if owner in owners else None

        def kept_by_time(chunk: Chunk) -> list[bool] | None:
            return None if gone.isdisjoint(chunk[0]) else [key not in gone for key in chunk[0]]

        self.by_id.load_all()
        self.by_time.load_all()
        self.by_id.sweep(kept_by_id)
        self.by_time.sweep(kept_by_time)
        self.n -= len(gone)

    # --- reading

    def page(
        self, low: int, high: int, count: int, owner: int | None, time_max: int | None
    ) -> list[PendingEntry]:
        """`Pending.page` of the keys low..high. There must be an entry."""
        if time_max is not None and self.by_time.first_time() > time_max:
            return []
        by_id = self.by_id
        if owner is None:
            return by_id.page(low, high, count, time_max)
        page: list[PendingEntry] = []
        for column in self.owner(owner).slices(low, high):
            if time_max is None:
                page += by_id.rows_at(column[: count - len(page)])
            else:
                page += [row for row in by_id.rows_at(column) if row[1] <= time_max]
            if len(page) >= count:
                break
        return page[:count]

    # --- chunks that are not in memory

    @property
    def away(self) -> bool:
        """Whether any chunk is cold."""
        return self._shelf.missing > 0

    def resident(self) -> int:
        """Approximate number of entries in memory. O(chunks) at C speed."""
        chunks = self.by_id.chunks
        if not self.away or not chunks:
            return self.n
        return self.n * (len(chunks) - chunks.count(None)) // len(chunks)

    def load_all(self) -> None:
        """Load all chunks into memory. May raise CorruptBlock."""
        if self.away:
            for order in self.all():
                order.load_all()

    def prepare_deliver(
        self, ids: IdList, owner: int | None, time: int, removed: Sequence[IdList] = ()
    ) -> None:
        """Load the chunks that `deliver` or `nack` of these IDs will change. May raise CorruptBlock.

        That call may also flush young deliveries; `append` adds them to resident chunks, after all cold ones.

        owner: None for a consumer not created yet; NOBODY for `nack`, which ignores `time`.
        removed: IDs that earlier calls of the unit remove or move; they are prepared already.
        """
        if not self.away:
            return
        if not self.wide and not isinstance(ids, bytes):
            # loads all chunks, because `deliver` will convert the group to the wide form
            self.load_all()
            return
        want = self.those_with_keys(ids)
        if owner == NOBODY:
            time = self._nack_time
            want = self.by_id.new(sorted(want))
        if not want:
            return
        # Entries that come after all others go into new chunks, or into the last chunk if it is resident. So no chunk
        # needs to be loaded for them.
        first = want[0]
        by_id, by_time = self.by_id, self.by_time
        heir = None if owner is None else self._owned[owner]
        new = not by_id.tops or first > by_id.tops[-1]
        above = by_time.is_above(time, first)
        if new and above and (heir is None or not heir.tops or first > heir.tops[-1]):
            return
        gone = {*want}
        for each in removed:
            gone.update(self.those_with_keys(each))
        if not new:
            self._warm(want)
            # Also load the chunks next to which the new IDs will go once `gone` is removed.
            if removed:
                by_id.warm_new(want, gone)
        if not above:
            by_time.warm_new_at(time, want, gone)
        if heir is not None:
            heir.warm_new(want, gone)

    def prepare_remove(self, ids: IdList) -> None:
        """Load the chunks that `remove` of these IDs, pending and ascending, will change. May raise CorruptBlock."""
        if self.away:
            self._warm(self.those_with_keys(ids))

    def prepare_drop(self, owner: int) -> None:
        """Load the chunks that `drop_owner` will change. May raise CorruptBlock."""
        if not self.away:
            return
        owned = self.owner(owner)
        owned.load_all()
        if self.holds_few(owner):
            self._warm(owned.new(self._keys_of(owned)))
        else:
            self.by_id.load_all()
            self.by_time.load_all()

    def _warm(self, want: Column) -> None:
        """Load the chunks of all three orders that hold these entries (ascending; those not pending are ignored).

        Goes chunk by chunk by ID, since neighbours there are mostly from one delivery to one consumer.
        """
        by_id = self.by_id
        tops, end, at = by_id.tops, len(want), 0
        while at < end:
            first = want[at]
            i = bisect_left(tops, first)
            if i == len(tops):
                return
            to = bisect_right(want, tops[i], at)
            ids, times, owners, _ = by_id.chunks[i] or by_id.load(i)
            j = bisect_left(ids, first)
            n = to - at
            if n > 1 and ids[j : j + n] == (run := want[at:to]):
                time, owner = times[j], owners[j]
                if times[j : j + n].count(time) == n and owners[j : j + n].count(owner) == n:
                    self.by_time.warm_at(time, run)
                    owned = self._owned[owner]
                    if owned is not None:
                        owned.warm(run)
                    at = to
                    continue
            for key in want[at:to]:
                j = bisect_left(ids, key, j)
                if ids[j] == key:
                    one = want[at : at + 1]
                    self.by_time.warm_at(times[j], one)
                    owned = self._owned[owners[j]]
                    if owned is not None:
                        owned.warm(one)
                at += 1

    def evict(self, cold: ColdStore, stream: int, group: int, name: bytes) -> None:
        """Evict the chunks that have rows in `cold`: all that were handed to a checkpoint, except one that failed.

        No freeze may be in flight. stream, group: the numbers in the row keys. name: the group's name, for errors.
        """
        self._shelf.place_at(cold, stream, group, name)
        for order in self.all():
            order.evict()

    def freeze(self) -> FrozenPending:
        """Copy what the next checkpoint has to hold. O(chunks) at C speed."""
        return FrozenPending(
            *(self.n, self.wide, self._nack_time, self._free),
            *(self.by_id, self.by_time, self._owned, self._shelf),
        )

    def thaw(self, frozen: FrozenPending) -> None:
        """Undo `freeze` after its checkpoint failed: the next checkpoint writes the same rows."""
        shelf = self._shelf
        shelf.dropped = frozen.dropped + shelf.dropped
        shelf.unstored.update(frozen.handed())

    @classmethod
    def restored(
        cls, directory: Sequence[Any], cold: ColdStore, stream: int, group: int, name: bytes
    ) -> Self:
        """Restore orders from a directory, all chunks cold. Raises ValueError if it is malformed."""
        self = cls()
        n, wide, nack_time, next_serial, free, by_id, by_time, owners = directory
        self.n, self.wide, self._nack_time, self._free = n, wide, nack_time, list(free)
        shelf = self._shelf
        shelf.place_at(cold, stream, group, name)
        shelf.next_serial = next_serial
        new: Callable[[Iterable[int]], Column] = list if wide else new_column
        self.by_id.new = self.by_time.new = new
        restore_order(self.by_id, *by_id)
        restore_order(self.by_time, *by_time[:2])
        restore_lasts(self.by_time, by_time[2])
        for row in owners[1:]:
            owned = None
            if row is not None:
                owned = Owned(shelf, new)
                owned.n = row[0]
                restore_order(owned, *row[1:])
            self._owned.append(owned)
        return self

    # --- copy and check

    def copy(self) -> Self:
        """An independent copy, all in memory. Owners keep their numbers. May raise CorruptBlock."""
        other = type(self)()
        other.n, other.wide, other._nack_time = self.n, self.wide, self._nack_time
        other._free = self._free[:]
        other.by_id.new = other.by_time.new = self.by_id.new
        self.by_id.copy_to(other.by_id)
        self.by_time.copy_to(other.by_time)
        for owned in self._owned[1:]:
            twin = None
            if owned is not None:
                twin = Owned(other._shelf, owned.new)
                twin.n = owned.n
                owned.copy_to(twin)
            other._owned.append(twin)
        return other

    def check(self) -> None:
        """Assert the invariants . O(n); tests call it after every step. Cold chunks stay cold."""
        for order in self.all():
            order.check()
            assert order.shelf is self._shelf
        serials = [serial for order in self.all() for serial in order.serials if serial]
        assert len(serials) == len(set(serials))
        assert not set(serials) & set(self._shelf.dropped)
        missing = [chunk for order in self.all() for chunk in order.chunks if chunk is None]
        assert len(missing) == self._shelf.missing
        rows = list(self.by_id.entries())
        ids = [row[0] for row in rows]
        assert ids == sorted(set(ids))
        assert len(rows) == self.n
        by_time = self.by_time
        by_age = [
            (time, id)
            for i in range(len(by_time.chunks))
            for id, time in zip(self.by_id.ids_of(by_time.peek(i)[0]), by_time.peek(i)[1])
        ]
        assert by_age == sorted((row[1], row[0]) for row in rows)
        assert all(time < self._nack_time for time, _ in by_age[: self.nacked()])
        for owner, owned in enumerate(self._owned):
            held = [row[0] for row in rows if row[2] == owner]
            if owned is None:
                assert owner == NOBODY or (not held and owner in self._free)
            else:
                assert list(self.by_id.ids_of(self._keys_of(owned))) == held
                assert owned.n == len(held)
        for _, time, owner, _ in rows:
            assert (time < 0) == (owner == NOBODY)
