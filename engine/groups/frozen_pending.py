"""The pending entries of one group at a freeze, and the rows written from them.

The copy is made under the store's lock in O(chunks) at C speed, and packed later without the lock, since its chunks
never change. The directory, part of the GROUP row, is what stays in memory of a group whose chunks are not:

    [n, wide, nack time, next serial, free owner numbers, by ID, by time, by owner]
    by ID     [tops, serials]
    by time   [tops, serials, last IDs]
    by owner  for each owner number [n, tops, serials], or nil
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from tidelog.engine.groups.by_id import IdOrder
from tidelog.engine.groups.by_owner import Owned
from tidelog.engine.groups.by_time import TimeOrder
from tidelog.engine.groups.chunk_rows import column_bytes, column_of, ids_of, pack_chunk
from tidelog.engine.groups.chunks import FrozenOrder, Order, Shelf
from tidelog.engine.rowkeys import REST, Operation, chunk_row

# `thaw` takes this after a failed checkpoint: the serials of the rows to delete, and those of the rows to write. It
# holds only numbers, so the garbage collector need not visit it when many groups wait to be packed.
Given = tuple[tuple[int, ...], tuple[int, ...]]

# A group with at most this many chunks by ID, and at most this many owner numbers, is packed as soon as it is frozen.
SMALL_CHUNKS: Final = 4
SMALL_OWNERS: Final = 16
OWNERS_AT_ONCE: Final = 64  # owners packed between two RESTs


class FrozenPending:
    """The copy that `Pending.freeze` hands to a checkpoint."""

    __slots__ = (
        *("n", "wide", "nack_time", "next_serial", "free", "dropped"),
        *("by_id", "by_time", "lasts", "owned"),
    )

    def __init__(
        self,
        n: int,
        wide: bool,
        nack_time: int,
        free: list[int],
        by_id: IdOrder,
        by_time: TimeOrder,
        owned: list[Owned | None],
        shelf: Shelf,
    ) -> None:
        self.n = n
        self.wide = wide
        self.nack_time = nack_time
        self.free = free[:]
        self.by_id = by_id.freeze()
        self.by_time = by_time.freeze()
        self.lasts = by_time.lasts.copy()
        self.owned = [None if each is None else (each.n, each.freeze()) for each in owned]
        self.dropped = shelf.dropped
        self.next_serial = shelf.next_serial
        shelf.dropped = []
        shelf.unstored = set()

    def orders(self) -> Iterator[FrozenOrder]:
        """All orders."""
        yield self.by_id
        yield self.by_time
        for each in self.owned:
            if each is not None:
                yield each[1]

    def is_small(self) -> bool:
        """Whether packing it takes no longer than freezing another group."""
        return len(self.by_id.serials) <= SMALL_CHUNKS and len(self.owned) <= SMALL_OWNERS

    def given(self) -> Given:
        """The part of it that `thaw` needs."""
        return tuple(self.dropped), tuple(self.handed())

    def facts(self) -> tuple[Any, ...]:
        """The fields of the directory that can change without a changed chunk."""
        return self.n, self.wide, self.nack_time, self.free

    def changed(self) -> bool:
        """Whether there is any row to write or delete."""
        return bool(self.dropped) or any(order.fresh for order in self.orders())

    def handed(self) -> Iterator[int]:
        """Serials of the chunks whose rows are to be written."""
        for order in self.orders():
            yield from [order.serials[i] for i in order.fresh]

    def rows(self, number: int, group: int) -> Iterator[Operation]:
        """The operations on the CHUNK rows; number, group: the numbers of stream and group."""
        for order in self.orders():
            for serial, chunk in order.new_chunks():
                yield "put", chunk_row(number, group, serial), pack_chunk(chunk)
        for serial in self.dropped:
            yield "delete", chunk_row(number, group, serial)

    def directory(self) -> Generator[Operation, None, list[Any]]:
        """The directory, as the generator's return value. Yields RESTs, since each part takes milliseconds for a large
        group.
        """
        yield REST
        by_id = _packed(self.by_id)
        yield REST
        by_time = self.by_time
        lasts: Any = [
            self.lasts[serial] if chunk is None else chunk[0][-1]
            for chunk, serial in zip(by_time.chunks, by_time.serials)
        ]
        if not self.wide:
            lasts = array("q", lasts)
        yield REST
        in_time = [*_packed(by_time), column_bytes(lasts)]
        owned: list[Any] = []
        for at, each in enumerate(self.owned):
            if at % OWNERS_AT_ONCE == 0:
                yield REST
            owned.append(None if each is None else [each[0], *_packed(each[1])])
        yield REST
        facts = self.n, self.wide, self.nack_time, self.next_serial, self.free
        return [*facts, by_id, in_time, owned]


class Handed(FrozenPending):
    """The rest of a FrozenPending after it was packed. Only good for `thaw`."""

    __slots__ = ("_serials",)

    def __init__(self, dropped: Sequence[int], serials: Sequence[int]) -> None:
        self.dropped = list(dropped)
        self._serials = serials

    def handed(self) -> Iterator[int]:
        return iter(self._serials)


def _packed(order: FrozenOrder) -> list[bytes]:
    return [column_bytes(order.tops), column_bytes(array("q", order.serials))]


def restore_order(order: Order, tops: bytes, serials: bytes) -> None:
    """Restore an empty order from its part of a directory. Raises ValueError if the lengths differ."""
    wide = order.new is list and order.TOP == 0
    order.restore(ids_of(tops, wide), column_of(serials).tolist())
    if len(order.tops) != len(order.serials):
        raise ValueError("the lists of chunks in the row have different lengths")


def restore_lasts(order: TimeOrder, lasts: bytes) -> None:
    """Restore the last IDs of the time order's chunks. Raises ValueError if the lengths differ."""
    column = ids_of(lasts, order.new is list)
    if len(column) != len(order.serials):
        raise ValueError("the lists of chunks in the row have different lengths")
    order.lasts = dict(zip(order.serials, column))
