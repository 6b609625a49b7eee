"""Pending entries of one group, in three orders: by ID, by delivery time, and by consumer.

    by ID        chunks of columns: ids, and (times, owners, counts)     tops: last ID of each chunk
    by time      chunks of columns: ids, times, ordered by (time, ID)    tops: last time of each chunk
    by consumer  for each owner chunks of ids                            tops: last ID of each chunk

A column is an `array`, 8 bytes an entry (owners: 4), so a pending entry costs about 60 bytes and the
collector walks nothing. A chunk holds about 64 entries. Whatever a command does to k entries costs
O(k * (log n + chunk)), and a whole delivery that is acknowledged or claimed together is found, compared
and cut as slices. Rules that hold between any two calls, and that `check()` walks:

1. No chunk is empty; IDs ascend strictly within and across chunks; a top is its chunk's last value; the
   columns of a chunk are equally long.
2. (time, ID) is in the time order exactly once for each entry, ascending.
3. An ID is in exactly the one consumer's chunks that its owner column names. Owner 0 is nobody.
4. The consumers' sizes and the number of entries without owner add up to `len`.

Inside, an ID is a key of `engine.idlist`. The first ID that has no key turns the group for good into the
wide form, the same code over lists of 128-bit ints. Keys leave this module only through `to_id`.

Entries released by XNACK have no owner and lie in the NACK zone (spec 7.5): their time is `NACK_TIME` and
ascending, so they come before all others, in the order of their release. Shown as 0. Entries of equal
time are in ID order: that follows from the entries alone, so replay and live agree.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from functools import partial
from itertools import compress, islice
from operator import itemgetter
from typing import Final

from tidelog.engine.idlist import (
    KEY_BASE,
    KEY_SEQ_MASK,
    MS_BITS,
    SEQ_BITS,
    WIDE_BITS,
    IdList,
    from_keys,
    id_of,
    is_narrow,
    key_of,
    keys,
    only_key,
    pack,
    unpack,
)

Column = MutableSequence[int]
Rest = tuple["array[int]", "array[int]", "array[int]"]  # times, owners, counts
Part = tuple[int, int, int]  # chunk, from, to

LOAD: Final = 64  # entries of a chunk; at twice as many it is cut up again
FEW: Final = 3  # up to here entries are handled one by one rather than as a stretch
NOBODY: Final = 0  # owner of an entry that XNACK released
NACK_TIME: Final = -(
    1 << 62
)  # the first delivery time of the NACK zone; every time below 0 is in it
KEY_END: Final = KEY_BASE  # above every key

_last = itemgetter(-1)
_column: Callable[[Iterable[int]], Column] = partial(array, "q")


def _find_run(columns: list[Column], i: int, j: int, want: Column) -> list[Part] | None:
    """Where `want` lies as one stretch from chunk i, position j on, or None if it does not."""
    n = len(want)
    if i < len(columns):
        column = columns[i]
        if len(column) - j >= n:
            return [(i, j, j + n)] if column[j : j + n] == want else None
    parts = []
    at = 0
    while at < n:
        if i == len(columns):
            return None
        column = columns[i]
        k = min(len(column), j + n - at)
        if column[j:k] != want[at : at + k - j]:
            return None
        parts.append((i, j, k))
        at += k - j
        i += 1
        j = 0
    return parts


class _Owned:
    """The IDs one consumer holds, ascending."""

    __slots__ = ("columns", "maxes", "n", "new")

    def __init__(self, new: Callable[[Iterable[int]], Column]) -> None:
        self.columns: list[Column] = []
        self.maxes = new(())
        self.n = 0
        self.new = new

    def find_run(self, want: Column) -> list[Part] | None:
        i = bisect_left(self.maxes, want[0])
        if i == len(self.maxes):
            return None
        return _find_run(self.columns, i, bisect_left(self.columns[i], want[0]), want)

    def cut(self, parts: list[Part]) -> None:
        for i, j, k in reversed(parts):
            column = self.columns[i]
            self.n -= k - j
            if k - j == len(column):
                del self.columns[i], self.maxes[i]
            else:
                del column[j:k]
                self.maxes[i] = column[-1]

    def discard(self, key: int) -> None:
        i = bisect_left(self.maxes, key)
        column = self.columns[i]
        j = bisect_left(column, key)
        self.n -= 1
        if len(column) == 1:
            del self.columns[i], self.maxes[i]
        else:
            del column[j]
            self.maxes[i] = column[-1]

    def add(self, want: Column) -> None:
        """Add ascending IDs that are not there yet."""
        n = len(want)
        maxes = self.maxes
        if not maxes or want[0] > maxes[-1]:
            self.n += n
            if maxes and len(self.columns[-1]) < LOAD and len(self.columns[-1]) + n < 2 * LOAD:
                self.columns[-1].extend(want)
                maxes[-1] = want[-1]
            else:
                step = n if n < 2 * LOAD else LOAD
                for at in range(0, n, step):
                    column = want[at : at + step]
                    self.columns.append(column)
                    maxes.append(column[-1])
            return
        i = bisect_left(maxes, want[0])
        column = self.columns[i]
        j = bisect_left(column, want[0])
        if n > 1 and column[j] < want[-1]:
            for at in range(n):
                self.add(want[at : at + 1])
            return
        self.n += n
        column[j:j] = want
        if len(column) >= 2 * LOAD:
            cut = [column[at : at + LOAD] for at in range(0, len(column), LOAD)]
            self.columns[i : i + 1] = cut
            maxes[i : i + 1] = self.new(map(_last, cut))

    def add_one(self, key: int) -> None:
        """`add` of one ID, directly where it goes to the end."""
        maxes = self.maxes
        if maxes and key < maxes[-1]:
            self.add(self.new((key,)))
            return
        self.n += 1
        if maxes and len(self.columns[-1]) < LOAD:
            self.columns[-1].append(key)
            maxes[-1] = key
        else:
            self.columns.append(self.new((key,)))
            maxes.append(key)

    def copy(self) -> _Owned:
        other = _Owned(self.new)
        other.columns = [column[:] for column in self.columns]
        other.maxes = self.maxes[:]
        other.n = self.n
        return other


class Pending:
    """The pending entries of one group.

    Methods that change are called by apply alone and trust what they are told; lists of IDs given to
    `deliver` ascend and name no ID twice. The others change nothing.
    """

    __slots__ = (
        "n", "wide", "_new", "_ids", "_rest", "_maxes", "_time_ids", "_times", "_time_maxes",
        "_owned", "_free", "_nack_time",
    )  # fmt: skip

    def __init__(self) -> None:
        self.n = 0
        self.wide = False
        self._new: Callable[[Iterable[int]], Column] = _column
        self._ids: list[Column] = []
        self._rest: list[Rest] = []
        self._maxes: Column = _column(())
        self._time_ids: list[Column] = []
        self._times: list[array[int]] = []
        self._time_maxes: array[int] = array("q")
        self._owned: list[_Owned | None] = [None]  # by owner number
        self._free: list[int] = []  # owner numbers to use again
        self._nack_time = NACK_TIME  # of the next entry in the NACK zone

    def __len__(self) -> int:
        return self.n

    # --- owners

    def add_owner(self) -> int:
        """A number for a new consumer."""
        if self._free:
            owner = self._free.pop()
            self._owned[owner] = _Owned(self._new)
        else:
            owner = len(self._owned)
            self._owned.append(_Owned(self._new))
        return owner

    def drop_owner(self, owner: int) -> None:
        """Forget a consumer and its pending entries."""
        owned = self._owner(owner)
        if owned.n * LOAD < self.n:
            for column in list(owned.columns):
                for key in list(column):
                    self._remove_key(key)
        elif owned.n:
            self._filter_out(owner, {key for column in owned.columns for key in column})
        self._owned[owner] = None
        self._free.append(owner)

    def held_by(self, owner: int) -> int:
        """How many entries a consumer has pending."""
        return self._owner(owner).n

    def nacked(self) -> int:
        """How many entries are in the NACK zone."""
        return self.n - sum(owned.n for owned in self._owned if owned is not None)

    def _owner(self, owner: int) -> _Owned:
        owned = self._owned[owner]
        assert owned is not None
        return owned

    def _filter_out(self, owner: int, gone: set[int]) -> None:
        """Drop all entries of an owner that has many, chunk by chunk: O(n), but at C speed."""
        ids, rests = self._ids, self._rest
        self._ids, self._rest, self._maxes = [], [], self._new(())
        for column, rest in zip(ids, rests):
            times, owners, counts = rest
            if owners.count(owner):
                keep = [other != owner for other in owners]
                column = self._new(compress(column, keep))
                rest = (
                    array("q", compress(times, keep)),
                    array("I", compress(owners, keep)),
                    array("q", compress(counts, keep)),
                )
            if column:
                self._ids.append(column)
                self._rest.append(rest)
                self._maxes.append(column[-1])
        time_ids, all_times = self._time_ids, self._times
        self._time_ids, self._times, self._time_maxes = [], [], array("q")
        for column, times in zip(time_ids, all_times):
            if not gone.isdisjoint(column):
                keep = [key not in gone for key in column]
                column = self._new(compress(column, keep))
                times = array("q", compress(times, keep))
            if column:
                self._time_ids.append(column)
                self._times.append(times)
                self._time_maxes.append(times[-1])
        self.n -= len(gone)

    # --- IDs and keys

    def to_id(self, key: int) -> int:
        """The entry ID of a key handed out by `slices`."""
        return key if self.wide else id_of(key)

    def _key(self, id: int) -> int | None:
        """The key of an ID, or None if it has none, so that it cannot be pending."""
        if self.wide:
            return id
        return None if id & WIDE_BITS else key_of(id)

    def _key_from(self, id: int) -> int:
        """The smallest key whose ID is at least `id`."""
        if self.wide or is_narrow(id):
            return id if self.wide else key_of(id)
        ms = (id >> 64) + 1  # either seq has no place in a key, or ms is beyond them all
        return KEY_END if ms >> MS_BITS else key_of(ms << 64)

    def _key_to(self, id: int) -> int:
        """The greatest key whose ID is at most `id`."""
        if self.wide or is_narrow(id):
            return id if self.wide else key_of(id)
        ms = id >> 64
        return KEY_END - 1 if ms >> MS_BITS else (ms << SEQ_BITS | KEY_SEQ_MASK) - KEY_BASE

    def _widen(self) -> None:
        """Turn to the wide form: an ID came that has no key. O(n), once in a group's life."""

        def ids_of(column: Iterable[int]) -> Column:
            return [id_of(key) for key in column]

        self.wide = True
        self._new = list
        self._ids = [ids_of(column) for column in self._ids]
        self._maxes = ids_of(self._maxes)
        self._time_ids = [ids_of(column) for column in self._time_ids]
        for owned in self._owned:
            if owned is not None:
                owned.columns = [ids_of(column) for column in owned.columns]
                owned.maxes = ids_of(owned.maxes)
                owned.new = list

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
            self._put(only_key(ids), owner, time, counts)
            return
        want = self._want(ids)
        if want:
            self._deliver(want, owner, time, counts)

    def _deliver(self, want: Column, owner: int, time: int, counts: int | Sequence[int]) -> None:
        n = len(want)
        maxes = self._maxes
        if not maxes or want[0] > maxes[-1]:
            self._append(want, n, owner, time, counts)
            self._time_add(want, n, time)
            self._owner(owner).add(want)
            self.n += n
        elif n <= FEW:
            each = [counts] * n if isinstance(counts, int) else counts
            for key, count in zip(want, each):
                self._put(key, owner, time, count)
        elif not self._redeliver_run(want, n, owner, time, counts):
            half = (
                n // 2
            )  # what was several deliveries, or is partly new: in stretches, if it has any
            low = high = counts
            if not isinstance(counts, int):
                low, high = counts[:half], counts[half:]
            self._deliver(want[:half], owner, time, low)
            self._deliver(want[half:], owner, time, high)

    def remove(self, ids: IdList) -> None:
        """Take pending entries out. IDs that are not pending are passed over."""
        if ids.__class__ is bytes and not self.wide:
            if len(ids) == 8:
                self._remove_key(only_key(ids))
                return
            want: Column = keys(ids)
        elif self.wide:
            want = unpack(ids)
        else:
            want = array("q", [key_of(id) for id in unpack(ids) if is_narrow(id)])
        if want:
            self._remove(want)

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

    def _append(
        self, want: Column, n: int, owner: int, time: int, counts: int | Sequence[int]
    ) -> None:
        """Ascending IDs above all pending ones: into the last chunk, or into new ones."""
        times = array("q", [time]) * n
        owners = array("I", [owner]) * n
        tally = array("q", [counts]) * n if isinstance(counts, int) else array("q", counts)
        maxes = self._maxes
        if maxes and len(self._ids[-1]) < LOAD and len(self._ids[-1]) + n < 2 * LOAD:
            self._ids[-1].extend(want)
            rest = self._rest[-1]
            rest[0].extend(times)
            rest[1].extend(owners)
            rest[2].extend(tally)
            maxes[-1] = want[-1]
        elif n < 2 * LOAD:
            self._ids.append(want[:])
            self._rest.append((times, owners, tally))
            maxes.append(want[-1])
        else:
            for at in range(0, n, LOAD):
                column = want[at : at + LOAD]
                to = at + LOAD
                self._ids.append(column)
                self._rest.append((times[at:to], owners[at:to], tally[at:to]))
                maxes.append(column[-1])

    def _time_add(self, want: Column, n: int, time: int) -> None:
        """Ascending IDs of one delivery time, into the time order."""
        maxes = self._time_maxes
        if not maxes or (maxes[-1], self._time_ids[-1][-1]) < (time, want[0]):
            tail = self._time_ids[-1] if maxes else want
            if maxes and len(tail) < LOAD and len(tail) + n < 2 * LOAD:
                tail.extend(want)
                self._times[-1].extend(array("q", [time]) * n)
                maxes[-1] = time
                return
            step = n if n < 2 * LOAD else LOAD
            for at in range(0, n, step):
                column = want[at : at + step]
                self._time_ids.append(column)
                self._times.append(array("q", [time]) * len(column))
                maxes.append(time)
            return
        i, j = self._time_place(time, want[0])
        column, times = self._time_ids[i], self._times[i]
        if n > 1 and (times[j], column[j]) < (time, want[-1]):
            for at in range(n):
                self._time_add(want[at : at + 1], 1, time)
            return
        column[j:j] = want
        times[j:j] = array("q", [time]) * n
        if len(column) >= 2 * LOAD:
            cuts = range(0, len(column), LOAD)
            self._time_ids[i : i + 1] = [column[at : at + LOAD] for at in cuts]
            cut_times = [times[at : at + LOAD] for at in cuts]
            self._times[i : i + 1] = cut_times
            maxes[i : i + 1] = array("q", map(_last, cut_times))

    def _time_place(self, time: int, key: int) -> tuple[int, int]:
        """Where (time, key) is in the time order, or where it would go. It is not above all."""
        i = bisect_left(self._time_maxes, time)
        if self._time_maxes[i] == time and self._time_ids[i][-1] < key:
            i = bisect_left(
                self._time_ids, key, i + 1, bisect_right(self._time_maxes, time, i), key=_last
            )
        times = self._times[i]
        low = bisect_left(times, time)
        return i, bisect_left(self._time_ids[i], key, low, bisect_right(times, time, low))

    def _time_cut(self, parts: list[Part]) -> None:
        for i, j, k in reversed(parts):
            times = self._times[i]
            if k - j == len(times):
                del self._time_ids[i], self._times[i], self._time_maxes[i]
            else:
                del self._time_ids[i][j:k], times[j:k]
                self._time_maxes[i] = times[-1]

    def _place_run(self, want: Column) -> list[Part] | None:
        """Where all of `want` lies as one stretch by ID, or None."""
        i = bisect_left(self._maxes, want[0])
        if i == len(self._maxes):
            return None
        return _find_run(self._ids, i, bisect_left(self._ids[i], want[0]), want)

    def _remove_run(self, want: Column) -> bool:
        """Remove what lies together by ID and by time, and perhaps belongs to one consumer.

        Comparing the IDs of a stretch is enough in each order: an ID is in it only once.
        """
        parts = self._place_run(want)
        if parts is None:
            return False
        i, j, _ = parts[0]
        rest = self._rest[i]
        place, at = self._time_place(rest[0][j], want[0])
        time_parts = _find_run(self._time_ids, place, at, want)
        if time_parts is None:
            return False
        owned = self._owned[rest[1][j]]
        owned_parts = None if owned is None else owned.find_run(want)
        if owned is not None and owned_parts is not None:
            owned.cut(owned_parts)
        else:
            for i, j, k in parts:
                for key, owner in zip(self._ids[i][j:k], self._rest[i][1][j:k]):
                    owned = self._owned[owner]
                    if owned is not None:
                        owned.discard(key)
        self._time_cut(time_parts)
        for i, j, k in reversed(parts):
            column = self._ids[i]
            if k - j == len(column):
                del self._ids[i], self._rest[i], self._maxes[i]
            else:
                times, owners, counts = self._rest[i]
                del column[j:k], times[j:k], owners[j:k], counts[j:k]
                self._maxes[i] = column[-1]
        self.n -= len(want)
        return True

    def _redeliver_run(
        self, want: Column, n: int, owner: int, time: int, counts: int | Sequence[int]
    ) -> bool:
        """Hand over what was delivered together, if it still lies together in all three orders."""
        parts = self._place_run(want)
        if parts is None:
            return False
        i, j, _ = parts[0]
        place, at = self._time_place(self._rest[i][0][j], want[0])
        time_parts = _find_run(self._time_ids, place, at, want)
        owned = self._owned[self._rest[i][1][j]]
        owned_parts = None if owned is None else owned.find_run(want)
        if time_parts is None or owned is None or owned_parts is None:
            return False
        self._time_cut(time_parts)
        self._time_add(want, n, time)
        heir = self._owner(owner)
        if heir is not owned:
            owned.cut(owned_parts)
            heir.add(want)
        times = array("q", [time]) * n
        owners = array("I", [owner]) * n
        tally = array("q", [counts]) * n if isinstance(counts, int) else array("q", counts)
        at = 0
        for i, j, k in parts:
            rest = self._rest[i]
            to = at + k - j
            rest[0][j:k], rest[1][j:k], rest[2][j:k] = times[at:to], owners[at:to], tally[at:to]
            at = to
        return True

    def _put(self, key: int, owner: int, time: int, count: int) -> None:
        """One entry as `deliver` and `nack` leave it."""
        maxes = self._maxes
        if not maxes or key > maxes[-1]:
            self.n += 1
            if maxes and len(self._ids[-1]) < LOAD:
                times, owners, counts = self._rest[-1]
                self._ids[-1].append(key)
                times.append(time)
                owners.append(owner)
                counts.append(count)
                maxes[-1] = key
            else:
                self._ids.append(self._new((key,)))
                self._rest.append((array("q", (time,)), array("I", (owner,)), array("q", (count,))))
                maxes.append(key)
        else:
            i = bisect_left(maxes, key)
            column = self._ids[i]
            times, owners, counts = self._rest[i]
            j = bisect_left(column, key)
            if column[j] == key:
                self._time_remove(times[j], key)
                old = self._owned[owners[j]]
                times[j], owners[j], counts[j] = time, owner, count
                if old is not None:
                    old.discard(key)
            else:
                column.insert(j, key)
                times.insert(j, time)
                owners.insert(j, owner)
                counts.insert(j, count)
                self.n += 1
                if len(column) >= 2 * LOAD:
                    self._split(i)
        self._time_add_one(key, time)
        owned = self._owned[owner]
        if owned is not None:
            owned.add_one(key)

    def _time_add_one(self, key: int, time: int) -> None:
        """`_time_add` of one ID, directly where it goes to the end."""
        maxes = self._time_maxes
        if maxes:
            column = self._time_ids[-1]
            last = maxes[-1]
            if time < last or (time == last and key < column[-1]):
                self._time_add(self._new((key,)), 1, time)
                return
            if len(column) < LOAD:
                column.append(key)
                self._times[-1].append(time)
                maxes[-1] = time
                return
        self._time_ids.append(self._new((key,)))
        self._times.append(array("q", (time,)))
        maxes.append(time)

    def _split(self, i: int) -> None:
        """Cut a chunk of twice the load into halves."""
        column = self._ids[i]
        times, owners, counts = self._rest[i]
        self._ids.insert(i + 1, column[LOAD:])
        self._rest.insert(i + 1, (times[LOAD:], owners[LOAD:], counts[LOAD:]))
        del column[LOAD:], times[LOAD:], owners[LOAD:], counts[LOAD:]
        self._maxes.insert(i, column[-1])

    def _time_remove(self, time: int, key: int) -> None:
        i, j = self._time_place(time, key)
        times = self._times[i]
        if len(times) == 1:
            del self._time_ids[i], self._times[i], self._time_maxes[i]
        else:
            del self._time_ids[i][j], times[j]
            self._time_maxes[i] = times[-1]

    def _remove_key(self, key: int) -> None:
        i = bisect_left(self._maxes, key)
        if i == len(self._maxes):
            return
        column = self._ids[i]
        j = bisect_left(column, key)
        if column[j] != key:
            return
        times, owners, counts = self._rest[i]
        self._time_remove(times[j], key)
        owned = self._owned[owners[j]]
        if owned is not None:
            owned.discard(key)
        self.n -= 1
        if len(column) == 1:
            del self._ids[i], self._rest[i], self._maxes[i]
        else:
            del column[j], times[j], owners[j], counts[j]
            self._maxes[i] = column[-1]

    # --- asking

    def contains(self, id: int) -> bool:
        """Whether an entry is pending."""
        key = self._key(id)
        return key is not None and self._holds(key)

    def _holds(self, key: int) -> bool:
        i = bisect_left(self._maxes, key)
        if i == len(self._maxes):
            return False
        column = self._ids[i]
        return column[bisect_left(column, key)] == key

    def get(self, id: int) -> tuple[int, int, int] | None:
        """(delivery time, owner, delivery count) of a pending entry, or None."""
        key = self._key(id)
        if key is None:
            return None
        i = bisect_left(self._maxes, key)
        if i == len(self._maxes):
            return None
        column = self._ids[i]
        j = bisect_left(column, key)
        if column[j] != key:
            return None
        times, owners, counts = self._rest[i]
        return times[j], owners[j], counts[j]

    def are_held(self, ids: IdList, owner: int, count: int) -> bool:
        """Whether all of an ascending ID list are pending for one owner with one delivery count, as one stretch.

        False also where it would take looking at each to know.
        """
        if not ids or self.wide or not isinstance(ids, bytes):
            return False
        parts = self._place_run(keys(ids))
        if parts is None:
            return False
        for i, j, k in parts:
            _, owners, counts = self._rest[i]
            if owners[j:k].count(owner) != k - j or counts[j:k].count(count) != k - j:
                return False
        return True

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
                return ids if self._holds(only_key(ids)) else b""
            want = keys(ids)
            if self._place_run(want) is not None:
                return ids
            found = array("q")
            maxes, columns = self._maxes, self._ids
            end = len(maxes)
            for key in sorted(set(want)):
                i = bisect_left(maxes, key)
                if i == end:
                    break
                column = columns[i]
                if column[bisect_left(column, key)] == key:
                    found.append(key)
            return from_keys(found)
        return pack(self.among(unpack(ids)))

    def first(self) -> int:
        """The smallest pending ID. There is one."""
        return self.to_id(self._ids[0][0])

    def last(self) -> int:
        """The greatest pending ID. There is one."""
        return self.to_id(self._maxes[-1])

    def slices(self, start: int) -> Iterator[tuple[Column, Column, Column, Column]]:
        """The entries from ID `start` on, ascending, as columns: keys, times, owners, counts."""
        key = self._key_from(start)
        i = bisect_left(self._maxes, key)
        if i == len(self._maxes):
            return
        j = bisect_left(self._ids[i], key)
        if j:
            times, owners, counts = self._rest[i]
            yield self._ids[i][j:], times[j:], owners[j:], counts[j:]
            i += 1
        for at in range(i, len(self._ids)):
            yield self._ids[at], *self._rest[at]

    def page(
        self,
        start: int,
        end: int,
        count: int,
        owner: int | None = None,
        time_max: int | None = None,
    ) -> list[tuple[int, int, int, int]]:
        """(id, time, owner, delivery count) of up to `count` entries from start to end, ascending.

        owner: only those of this consumer. time_max: only those delivered then or before, unix ms.
        """
        if count <= 0 or not self.n or (time_max is not None and self._times[0][0] > time_max):
            return []
        if owner is not None:
            return self._page_of(start, end, count, owner, time_max)
        high = self._key_to(end)
        page: list[tuple[int, int, int, int]] = []
        for column, times, owners, counts in self.slices(start):
            if column[0] > high:
                break
            if column[-1] > high:
                column = column[: bisect_right(column, high)]
            if time_max is None:
                column = column[: count - len(page)]
            elif min(times) > time_max:
                continue
            rows: Iterable[tuple[int, int, int, int]] = zip(
                self._ids_of(column), times, owners, counts
            )
            if time_max is not None:
                rows = [row for row in rows if row[1] <= time_max]
            page += rows
            if len(page) >= count:
                return page[:count]
        return page

    def _page_of(
        self, start: int, end: int, count: int, owner: int, time_max: int | None
    ) -> list[tuple[int, int, int, int]]:
        owned = self._owner(owner)
        low, high = self._key_from(start), self._key_to(end)
        page: list[tuple[int, int, int, int]] = []
        maxes = self._maxes
        at = 0
        for column in islice(owned.columns, bisect_left(owned.maxes, low), None):
            if column[0] < low:
                column = column[bisect_left(column, low) :]
            if column[-1] > high:
                column = column[: bisect_right(column, high)]
            if time_max is None:
                column = column[: count - len(page)]
            if not column:
                break
            for key, entry_id in zip(column, self._ids_of(column)):
                if key > maxes[at]:
                    at = bisect_left(maxes, key, at)
                j = bisect_left(self._ids[at], key)
                times, _, counts = self._rest[at]
                if time_max is None or times[j] <= time_max:
                    page.append((entry_id, times[j], owner, counts[j]))
            if len(page) >= count:
                break
        return page[:count]

    def _ids_of(self, column: Column) -> Column:
        if self.wide:
            return column
        return [key >> SEQ_BITS << 64 | key & KEY_SEQ_MASK for key in map(KEY_BASE.__add__, column)]

    def by_age(self, start: int = NACK_TIME) -> Iterator[tuple[int, int]]:
        """(time, id) of the entries delivered at `start`, unix ms, or later; the oldest first. By default all of
        them: the NACK zone comes before those that have an owner.
        """
        i = bisect_left(self._time_maxes, start)
        if i == len(self._time_maxes):
            return
        j = bisect_left(self._times[i], start)
        if j:
            yield from zip(self._times[i][j:], self._ids_of(self._time_ids[i][j:]))
            i += 1
        for at in range(i, len(self._times)):
            yield from zip(self._times[at], self._ids_of(self._time_ids[at]))

    def entries(self) -> Iterator[tuple[int, int, int, int]]:
        """(id, time, owner, delivery count) of all entries, ascending."""
        for column, rest in zip(self._ids, self._rest):
            yield from zip(self._ids_of(column), *rest)

    def copy(self) -> Pending:
        """An independent copy; owners keep their numbers."""
        other = Pending()
        other.n, other.wide, other._new = self.n, self.wide, self._new
        other._ids = [column[:] for column in self._ids]
        other._rest = [(a[:], b[:], c[:]) for a, b, c in self._rest]
        other._maxes = self._maxes[:]
        other._time_ids = [column[:] for column in self._time_ids]
        other._times = [column[:] for column in self._times]
        other._time_maxes = self._time_maxes[:]
        other._owned = [owned and owned.copy() for owned in self._owned]
        other._free = self._free[:]
        other._nack_time = self._nack_time
        return other

    def check(self) -> None:
        """Assert the rules of this module. O(n); tests call it after every step."""
        rows = list(self.entries())
        ids = [row[0] for row in rows]
        assert ids == sorted(set(ids))
        assert len(rows) == self.n
        assert len(self._ids) == len(self._rest) == len(self._maxes)
        for column, rest, top in zip(self._ids, self._rest, self._maxes):
            assert 0 < len(column) < 2 * LOAD
            assert column[-1] == top
            assert {len(part) for part in rest} == {len(column)}
        by_age = list(self.by_age())
        assert by_age == sorted((row[1], row[0]) for row in rows)
        assert len(self._time_ids) == len(self._times) == len(self._time_maxes)
        for column, times, top in zip(self._time_ids, self._times, self._time_maxes):
            assert 0 < len(column) == len(times) < 2 * LOAD
            assert times[-1] == top
        assert all(time < self._nack_time for time, _ in by_age[: self.nacked()])
        for owner, owned in enumerate(self._owned):
            held = [row[0] for row in rows if row[2] == owner]
            if owned is None:
                assert owner == NOBODY or (not held and owner in self._free)
            else:
                assert [id for column in owned.columns for id in self._ids_of(column)] == held
                assert owned.n == len(held)
                assert list(owned.maxes) == [column[-1] for column in owned.columns]
                assert all(0 < len(column) < 2 * LOAD for column in owned.columns)
        for _, time, owner, _ in rows:
            assert (time < 0) == (owner == NOBODY)
