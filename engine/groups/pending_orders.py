"""The three orders of one group's pending entries: owner numbers, memory, checkpoints.

`engine.groups.pending` has the commands on top of it, and describes the orders and their invariants.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Self

from tidelog.engine.cold import ColdStore
from tidelog.engine.groups.by_id import KEY_END, IdOrder
from tidelog.engine.groups.by_owner import Owned
from tidelog.engine.groups.by_time import TimeOrder
from tidelog.engine.groups.chunk_rows import Chunk, Column, new_column
from tidelog.engine.groups.chunks import LOAD, Order, Shelf
from tidelog.engine.groups.frozen_pending import FrozenPending, restore_lasts, restore_order
from tidelog.engine.idlist import IdList, id_of, is_narrow, key_of, keys, unpack

NOBODY: Final = 0  # owner of an entry that XNACK released
# The first delivery time of the NACK zone. All times below 0 belong to the zone.
NACK_TIME: Final = -(1 << 62)

# At this many young deliveries, all of them are flushed into the orders. With one more delivery (YOUNG_BYTES) they are
# still fewer than two chunks, so they make one.
YOUNG: Final = 2 * LOAD - 16

# (delivery time, owner, delivery count)
Delivery = tuple[int, int, int]


class PendingOrders:
    """The pending entries of one group, in all three orders.

    n           number of entries in the orders
    wide        whether keys are IDs (engine.groups.pending)
    young       ID list of one ID -> delivery: the latest deliveries, which are in no order yet (engine.groups.pending)
    _key_max    upper bound of all keys, not necessarily tight
    _time_max   upper bound of all delivery times, not necessarily tight
    """

    __slots__ = (
        "n",
        "wide",
        "young",
        "_key_max",
        "_time_max",
        "_by_id",
        "_by_time",
        "_owned",
        "_free",
        "_nack_time",
        "_shelf",
    )

    def __init__(self) -> None:
        self.n = 0
        self.wide = False
        self.young: dict[bytes, Delivery] = {}
        self._key_max = -KEY_END - 1  # below every key
        self._time_max = 0
        self._shelf = Shelf()
        self._by_id = IdOrder(self._shelf, new_column)
        self._by_time = TimeOrder(self._shelf, new_column)
        self._owned: list[Owned | None] = [None]  # by owner number
        self._free: list[int] = []  # owner numbers to use again
        self._nack_time = NACK_TIME  # of the next entry in the NACK zone

    def __len__(self) -> int:
        return self.n + len(self.young)

    def _orders(self) -> Iterator[Order]:
        yield self._by_id
        yield self._by_time
        for owned in self._owned:
            if owned is not None:
                yield owned

    # --- young deliveries

    def _flush(self) -> None:
        """Append the young deliveries to the orders. Reads nothing, so it cannot fail."""
        young = self.young
        if not young:
            return
        run = ids, times, owners, _ = self._young_chunk()
        held: dict[int, Column] = {}
        for key, owner in zip(ids, owners):
            if owner in held:
                held[owner].append(key)
            else:
                held[owner] = new_column((key,))
        for owner, column in held.items():
            self._owner(owner).add(column, len(column))
        n = len(young)
        self._by_time.append((ids[:], times[:]), n)
        self._by_id.append(run, n)
        self.n += n
        young.clear()

    def _young_chunk(self) -> Chunk:
        """The young deliveries as a chunk of the order by ID. There must be some."""
        times, owners, counts = zip(*self.young.values())
        return self._young_keys(), new_column(times), array("I", owners), new_column(counts)

    def _young_keys(self) -> Column:
        return keys(b"".join(self.young))

    def _find_max(self) -> None:
        """Update the bounds after entries went into the orders. Nothing may be young."""
        if self.wide:
            self._key_max = KEY_END  # so that nothing becomes young in the wide form
        elif self._by_id.tops:
            self._key_max, self._time_max = self._by_id.tops[-1], self._by_time.tops[-1]

    # --- owners

    def add_owner(self) -> int:
        """Allocate the owner number of a new consumer."""
        owned = Owned(self._shelf, self._by_id.new)
        if self._free:
            owner = self._free.pop()
            self._owned[owner] = owned
        else:
            owner = len(self._owned)
            self._owned.append(owned)
        return owner

    def held_by(self, owner: int) -> int:
        """The number of entries that a consumer has pending."""
        held = self._owner(owner).n
        if self.young:
            held += [of for _, of, _ in self.young.values()].count(owner)
        return held

    def nacked(self) -> int:
        """The number of entries in the NACK zone."""
        return self.n - sum(owned.n for owned in self._owned if owned is not None)

    def owner_numbers(self) -> int:
        """The number of owner numbers, including NOBODY and free ones."""
        return len(self._owned)

    def _owner(self, owner: int) -> Owned:
        owned = self._owned[owner]
        assert owned is not None
        return owned

    def _held(self, owned: Owned) -> list[int]:
        return [key for i in range(len(owned.chunks)) for key in owned.peek(i)[0]]

    # --- IDs and keys

    def to_id(self, key: int) -> int:
        """The entry ID of a key that `slices` returned."""
        return key if self.wide else id_of(key)

    def _those_with_keys(self, ids: IdList) -> Column:
        """The column of those IDs that can be pending: in the narrow form, those that have a key."""
        if self.wide:
            return unpack(ids)
        if isinstance(ids, bytes):
            return keys(ids)
        return array("q", [key_of(id) for id in unpack(ids) if is_narrow(id)])

    # --- chunks that are not in memory

    @property
    def away(self) -> bool:
        """Whether any chunk is cold."""
        return self._shelf.missing > 0

    def resident(self) -> int:
        """Approximate number of entries in memory. O(chunks) at C speed."""
        chunks = self._by_id.chunks
        if not self.away or not chunks:
            return len(self)
        return self.n * (len(chunks) - chunks.count(None)) // len(chunks) + len(self.young)

    def load_all(self) -> None:
        """Load all chunks into memory. May raise CorruptBlock."""
        if self.away:
            for order in self._orders():
                order.load_all()

    def prepare_deliver(
        self, ids: IdList, owner: int | None, time: int, removed: Sequence[IdList] = ()
    ) -> None:
        """Load the chunks that `deliver` or `nack` of these IDs will change. May raise CorruptBlock.

        That call may also flush young deliveries; the flush appends to resident chunks after all cold ones.

        owner: None for a consumer not created yet; NOBODY for `nack`, which ignores `time`.
        removed: IDs that earlier calls of the unit remove or move; they are prepared already.
        """
        if not self.away:
            return
        if not self.wide and not isinstance(ids, bytes):
            self.load_all()  # `deliver` will convert the group to the wide form
            return
        want = self._those_with_keys(ids)
        if owner == NOBODY:
            time = self._nack_time
            want = self._by_id.new(sorted(want))
        if not want:
            return
        # Entries above all others go into new chunks, or into a last chunk that is resident.
        first = want[0]
        by_id, by_time = self._by_id, self._by_time
        heir = None if owner is None else self._owned[owner]
        new = not by_id.tops or first > by_id.tops[-1]
        above = by_time.is_above(time, first)
        if new and above and (heir is None or not heir.tops or first > heir.tops[-1]):
            return
        gone = {*want}
        for each in removed:
            gone.update(self._those_with_keys(each))
        if not new:
            self._warm(want)
            if removed:  # an ID that is not pending goes next to what remains after the removals
                by_id.warm_new(want, gone)
        if not above:
            by_time.warm_new_at(time, want, gone)
        if heir is not None:
            heir.warm_new(want, gone)

    def prepare_remove(self, ids: IdList) -> None:
        """Load the chunks that `remove` of these IDs, pending and ascending, will change. May raise CorruptBlock."""
        if self.away:
            self._warm(self._those_with_keys(ids))

    def prepare_drop(self, owner: int) -> None:
        """Load the chunks that `drop_owner` will change. May raise CorruptBlock."""
        if not self.away:
            return
        owned = self._owner(owner)
        owned.load_all()
        if self._holds_few(owner):
            self._warm(owned.new(self._held(owned)))
        else:
            self._by_id.load_all()
            self._by_time.load_all()

    def _holds_few(self, owner: int) -> bool:
        """Whether `drop_owner` removes a consumer's entries one by one. Ignores young entries, which are few."""
        held = self._owner(owner).n
        return not held or held * LOAD < self.n

    def _warm(self, want: Column) -> None:
        """Load the chunks of all three orders that hold these entries (ascending; those not pending are ignored).

        Goes chunk by chunk by ID, since neighbours there are mostly from one delivery to one consumer.
        """
        by_id = self._by_id
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
                    self._by_time.warm_at(time, run)
                    owned = self._owned[owner]
                    if owned is not None:
                        owned.warm(run)
                    at = to
                    continue
            for key in want[at:to]:
                j = bisect_left(ids, key, j)
                if ids[j] == key:
                    one = want[at : at + 1]
                    self._by_time.warm_at(times[j], one)
                    owned = self._owned[owners[j]]
                    if owned is not None:
                        owned.warm(one)
                at += 1

    def evict(self, cold: ColdStore, stream: int, group: int, name: bytes) -> None:
        """Evict the chunks that have rows in `cold`: all that were handed to a checkpoint, except one that failed.

        No freeze may be in flight. stream, group: the numbers in the row keys. name: the group's name, for errors.
        """
        self._shelf.place_at(cold, stream, group, name)
        for order in self._orders():
            order.evict()

    def freeze(self) -> FrozenPending:
        """Copy what the next checkpoint has to hold. O(chunks) at C speed."""
        self._flush()
        return FrozenPending(
            *(self.n, self.wide, self._nack_time, self._free),
            *(self._by_id, self._by_time, self._owned, self._shelf),
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
        """Restore pending entries from a directory, all chunks cold. Raises ValueError if it is malformed."""
        self = cls()
        n, wide, nack_time, next_serial, free, by_id, by_time, owners = directory
        self.n, self.wide, self._nack_time, self._free = n, wide, nack_time, list(free)
        shelf = self._shelf
        shelf.place_at(cold, stream, group, name)
        shelf.next_serial = next_serial
        new: Callable[[Iterable[int]], Column] = list if wide else new_column
        self._by_id.new = self._by_time.new = new
        restore_order(self._by_id, *by_id)
        restore_order(self._by_time, *by_time[:2])
        restore_lasts(self._by_time, by_time[2])
        self._find_max()
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
        other.young = self.young.copy()
        other._key_max, other._time_max = self._key_max, self._time_max
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
        """Assert the invariants (see `pending.py`). O(n); tests call it after every step. Cold chunks stay cold."""
        for order in self._orders():
            order.check()
            assert order.shelf is self._shelf
        serials = [serial for order in self._orders() for serial in order.serials if serial]
        assert len(serials) == len(set(serials))
        assert not set(serials) & set(self._shelf.dropped)
        missing = [chunk for order in self._orders() for chunk in order.chunks if chunk is None]
        assert len(missing) == self._shelf.missing
        rows = list(self._by_id.entries())
        ids = [row[0] for row in rows]
        assert ids == sorted(set(ids))
        assert len(rows) == self.n
        self._check_young()
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

    def _check_young(self) -> None:
        """Assert that the young entries belong at the end of every order and have owners."""
        keys, times = [*self._young_keys()], [time for time, _, _ in self.young.values()]
        by_id, by_time = self._by_id.tops, self._by_time.tops
        assert len(keys) < YOUNG
        assert not keys or not self.wide
        assert keys == sorted({*keys, *by_id[-1:]})[len(by_id[-1:]) :]
        assert times == sorted([0, *by_time[-1:], *times])[1 + len(by_time[-1:]) :]
        assert all(self._owned[owner] is not None for _, owner, _ in self.young.values())
        assert self.wide or all(key <= self._key_max for key in [*by_id[-1:], *keys])
        assert self.wide or all(time <= self._time_max for time in [*by_time[-1:], *times])
