"""Chunks of one order of the pending entries, and which of them a checkpoint holds.

An order is a list of chunks. A chunk is a tuple of columns of equal length, its IDs first, of about LOAD entries.
Two lists with one item per chunk are always in memory:

    tops      the last value of each chunk in the column that orders the chunks
    serials   0: changed since it was last handed to a checkpoint; else the serial of the CHUNK row that has
              exactly this content

A chunk with a serial never changes, since a frozen copy may hold it. To change it, `own` first replaces it with a copy
and adds its serial to the shelf's `dropped`, so that the next checkpoint deletes the row. A chunk that is not in memory
is None; it has a serial, and `load` reads it. `find_run` and `reopen` load nothing: they treat such a chunk as one that
does not match, or has no room.

No chunk is empty.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, repeat
from typing import ClassVar, Final

from tidelog.engine.cold import ColdStore
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.groups.chunk_rows import Chunk, Column, new_column, unpack_chunk
from tidelog.engine.idlist import id_of
from tidelog.engine.ids import text
from tidelog.engine.rowkeys import chunk_row

Part = tuple[int, int, int]  # chunk, from, to

LOAD: Final = 64  # target number of entries in a chunk; a chunk of twice as many is split


class Shelf:
    """The data that the orders of one group share: serials, and where chunks that are not in memory lie.

    next_serial  of the next chunk handed to a checkpoint, never used twice in a group
    dropped      serials that chunks lost since the last freeze: the next checkpoint deletes their rows
    unstored     serials handed to a checkpoint that failed: to be handed again, and not to be evicted
    missing      number of chunks that are not in memory
    """

    __slots__ = ("next_serial", "dropped", "unstored", "missing", "cold", "stream", "group", "name")

    def __init__(self) -> None:
        self.next_serial = 1
        self.dropped: list[int] = []
        self.unstored: set[int] = set()
        self.missing = 0
        self.cold: ColdStore | None = None
        self.stream = 0  # numbers, as row keys have them
        self.group = 0
        self.name = b""  # of the group, for errors

    def place_at(self, cold: ColdStore, stream: int, group: int, name: bytes) -> None:
        """Set where the rows lie: the store and the numbers of stream and group."""
        self.cold, self.stream, self.group, self.name = cold, stream, group, name

    def read(self, serial: int, codes: str, wide: bool) -> Chunk:
        """Read the chunk with this serial. Raises CorruptBlock or ValueError if its row is damaged or missing."""
        assert self.cold is not None
        payload = self.cold.get(chunk_row(self.stream, self.group, serial))
        if payload is None:
            raise ValueError("its row is missing")
        return unpack_chunk(payload, codes, wide)


class FrozenOrder:
    """A copy of one order at a freeze. It owns its lists and shares the chunks, which never change."""

    __slots__ = ("chunks", "tops", "serials", "fresh")

    def __init__(
        self, chunks: list[Chunk | None], tops: Column, serials: list[int], fresh: Sequence[int]
    ) -> None:
        self.chunks = chunks
        self.tops = tops
        self.serials = serials
        self.fresh = fresh  # positions of the chunks whose rows the checkpoint has to write

    def new_chunks(self) -> Iterator[tuple[int, Chunk]]:
        """(serial, chunk) of the chunks to be written."""
        for i in self.fresh:
            chunk = self.chunks[i]
            assert chunk is not None
            yield self.serials[i], chunk


class Order:
    """The chunks of one order: the base of all three, each of which adds how to find an entry's place."""

    __slots__ = ("chunks", "tops", "serials", "shelf", "new")

    CODES: ClassVar[str] = "q"  # typecodes of the columns
    TOP: ClassVar[int] = 0  # the column whose last value is the top

    def __init__(self, shelf: Shelf, new: Callable[[Iterable[int]], Column]) -> None:
        self.chunks: list[Chunk | None] = []
        self.serials: list[int] = []
        self.shelf = shelf
        # Makes a column of IDs: an array of their keys or, if an ID has no key, a list of the IDs (the wide form).
        self.new = new
        self.tops = self.new_tops(())

    def new_tops(self, values: Iterable[int]) -> Column:
        """A column of tops."""
        return self.new(values) if self.TOP == 0 else new_column(values)

    # --- chunks that are not in memory

    def peek(self, i: int) -> Chunk:
        """Chunk i. If it is not in memory, it is read and not kept. May raise CorruptBlock."""
        chunk = self.chunks[i]
        if chunk is not None:
            return chunk
        try:
            chunk = self.shelf.read(self.serials[i], self.CODES, self.new is list)
            self.fits(i, chunk)
        except (CorruptBlock, ValueError, TypeError, OverflowError) as error:
            raise CorruptBlock(f"{self.describe(i)}: {error}") from error
        return chunk

    def load(self, i: int) -> Chunk:
        """Load chunk i into memory. May raise CorruptBlock; then nothing has changed."""
        chunk = self.peek(i)
        if self.chunks[i] is None:
            self.chunks[i] = chunk
            self.shelf.missing -= 1
        return chunk

    def load_some(self, start: int, stop: int) -> None:
        """Load the chunks start..stop-1 into memory. May raise CorruptBlock."""
        if None in self.chunks[start:stop]:
            for i in range(max(start, 0), min(stop, len(self.chunks))):
                if self.chunks[i] is None:
                    self.load(i)

    def load_all(self) -> None:
        """Load all chunks into memory. May raise CorruptBlock."""
        self.load_some(0, len(self.chunks))

    def warm(self, want: Column) -> None:
        """Load the chunks that hold the IDs of `want`, ascending. For the orders by ID. May raise CorruptBlock."""
        tops = self.tops
        first = bisect_left(tops, want[0])
        last = bisect_left(tops, want[-1], first)
        if last - first <= len(want):
            self.load_some(first, last + 1)
        else:  # they are far apart
            for key in want:
                i = bisect_left(tops, key)
                self.load_some(i, i + 1)

    def warm_new(self, want: Column, gone: set[int]) -> None:
        """Load every chunk into which the IDs of `want`, ascending, may be inserted while those of `gone` are removed
        one by one. For the orders by ID. May raise CorruptBlock.
        """
        chunks, tops, high = self.chunks, self.tops, want[-1]
        first = bisect_left(tops, want[0])
        last = bisect_left(tops, high, first)
        if last - first > len(want) > 1:
            for at in range(len(want)):
                self.warm_new(want[at : at + 1], gone)
            return
        self.load_some(first, last)
        for i in range(last, len(chunks)):
            ids = (chunks[i] or self.load(i))[0]
            stays = next((each for each in reversed(ids) if each not in gone), None)
            if stays is not None and stays > high:
                return

    def leave(self) -> None:
        """Drop the order with all its entries: the next checkpoint deletes its rows."""
        self.shelf.dropped += filter(None, self.serials)
        self.shelf.missing -= self.chunks.count(None)

    def fits(self, i: int, chunk: Chunk) -> None:
        """Raise ValueError if `chunk`, as read from its row, cannot be chunk i."""
        if chunk[self.TOP][-1] != self.tops[i]:
            raise ValueError("its row has other entries")

    def describe(self, i: int) -> str:
        """Chunk i in words, for an error."""
        after = f"after {self.id_text(self.tops[i - 1])} " if i else ""
        return self.described(f"with IDs {after}up to {self.id_text(self.tops[i])}", i)

    def described(self, entries: str, i: int) -> str:
        shelf = self.shelf
        name = shelf.name.decode("utf-8", "backslashreplace")
        return (
            f"stream number {shelf.stream}, group {name!r} (number {shelf.group}): pending entries "
            f"{entries} cannot be read (chunk {self.serials[i]})"
        )

    def id_text(self, key: int) -> str:
        return text(key if self.new is list else id_of(key)).decode()

    def evict(self) -> None:
        """Evict the chunks that a checkpoint holds."""
        chunks, unstored = self.chunks, self.shelf.unstored
        missing = chunks.count(None)
        for i, serial in enumerate(self.serials):
            if serial and serial not in unstored:
                chunks[i] = None
        self.shelf.missing += chunks.count(None) - missing

    # --- freezing

    def freeze(self) -> FrozenOrder:
        """Copy the order for a checkpoint, and give each chunk without a serial one. O(chunks) at C speed."""
        serials, unstored = self.serials, self.shelf.unstored
        changed = serials.count(0)
        first = self.shelf.next_serial
        self.shelf.next_serial = first + changed
        fresh: Sequence[int]
        if changed == len(serials):
            serials[:] = range(first, first + changed)
            fresh = range(changed)
        else:
            fresh = (
                [i for i, serial in enumerate(serials) if serial in unstored] if unstored else []
            )
            at = 0
            for serial in range(first, first + changed):
                at = serials.index(0, at)
                serials[at] = serial
                fresh.append(at)
        return FrozenOrder(self.chunks[:], self.tops[:], serials[:], fresh)

    def restore(self, tops: Column, serials: list[int]) -> None:
        """Become the order that a checkpoint holds, with no chunk in memory."""
        self.tops, self.serials = tops, serials
        self.chunks = list(repeat(None, len(serials)))
        self.shelf.missing += len(serials)

    # --- changing

    def own(self, i: int) -> Chunk:
        """Make chunk i, which has a serial, changeable: replace it with a copy without a serial, and return that."""
        chunk = self.chunks[i] or self.load(i)
        self.shelf.dropped.append(self.serials[i])
        self.serials[i] = 0
        chunk = self.chunks[i] = tuple([column[:] for column in chunk])
        return chunk

    def reopen(self) -> bool:
        """Make the last chunk, which has a serial, changeable for appends. False if it is full or not in memory."""
        chunk = self.chunks[-1]
        if chunk is None or len(chunk[0]) >= LOAD:
            return False
        self.own(-1)
        return True

    def append(self, run: Chunk, n: int) -> None:
        """Append n entries, all above the existing ones, to the last chunk or as new chunks. Takes over the columns."""
        tops = self.tops
        if tops and (not self.serials[-1] or self.reopen()):
            chunk = self.chunks[-1] or self.load(-1)
            size = len(chunk[0])
            if size < LOAD and size + n < 2 * LOAD:
                for column, more in zip(chunk, run):
                    column.extend(more)
                tops[-1] = run[self.TOP][-1]
                return
        if n < 2 * LOAD:
            self.chunks.append(run)
            self.serials.append(0)
            tops.append(run[self.TOP][-1])
            return
        for at in range(0, n, LOAD):
            part = tuple([column[at : at + LOAD] for column in run])
            self.chunks.append(part)
            self.serials.append(0)
            tops.append(part[self.TOP][-1])

    def insert(self, i: int, j: int, run: Chunk) -> None:
        """Insert entries into chunk i, which is in memory, before its entry j. Copies the columns."""
        if not j and LOAD <= len(run[0]) < 2 * LOAD:
            self.chunks.insert(i, tuple([column[:] for column in run]))
            self.serials.insert(i, 0)
            self.tops.insert(i, run[self.TOP][-1])
            return
        chunk = self.own(i) if self.serials[i] else self.chunks[i] or self.load(i)
        for column, more in zip(chunk, run):
            column[j:j] = more
        if len(chunk[0]) >= 2 * LOAD:
            self.split(i)

    def split(self, i: int) -> None:
        """Split chunk i, which has no serial and 2 * LOAD entries or more."""
        chunk = self.chunks[i] or self.load(i)
        size = len(chunk[0])
        parts = [tuple([c[at : at + LOAD] for c in chunk]) for at in range(0, size, LOAD)]
        self.chunks[i : i + 1] = parts
        self.serials[i : i + 1] = [0] * len(parts)
        self.tops[i : i + 1] = self.new_tops([part[self.TOP][-1] for part in parts])

    def cut(self, parts: list[Part]) -> None:
        """Remove the entries of these parts, ascending; their chunks are in memory."""
        chunks, tops, serials, top = self.chunks, self.tops, self.serials, self.TOP
        for i, j, k in reversed(parts):
            chunk = chunks[i] or self.load(i)
            if k - j == len(chunk[0]):
                if serials[i]:
                    self.shelf.dropped.append(serials[i])
                del chunks[i], tops[i], serials[i]
            else:
                if serials[i]:
                    chunk = self.own(i)
                for column in chunk:
                    del column[j:k]
                tops[i] = chunk[top][-1]

    def sweep(self, gone: Callable[[Chunk], list[bool] | None]) -> None:
        """Remove many entries: gone(chunk) returns which entries to keep, or None to keep all. All chunks are in
        memory. O(n), at C speed.
        """
        old = zip(list(self.chunks), self.tops[:], self.serials[:])
        self.chunks.clear()
        self.serials.clear()
        del self.tops[:]
        for chunk, top, serial in old:
            assert chunk is not None
            keep = gone(chunk)
            if keep is not None:
                if serial:
                    self.shelf.dropped.append(serial)
                    serial = 0
                chunk = tuple(
                    [
                        array(column.typecode, compress(column, keep))
                        if isinstance(column, array)
                        else list(compress(column, keep))
                        for column in chunk
                    ]
                )
                if not chunk[0]:
                    continue
                top = chunk[self.TOP][-1]
            self.chunks.append(chunk)
            self.tops.append(top)
            self.serials.append(serial)

    def widen(self) -> None:
        """Convert to the wide form. Every chunk is in memory."""
        self.shelf.dropped += filter(None, self.serials)
        self.serials = [0] * len(self.serials)
        self.new = list
        for i, chunk in enumerate(self.chunks):
            assert chunk is not None
            ids = [id_of(key) for key in chunk[0]]
            self.chunks[i] = (ids, *[column[:] for column in chunk[1:]])
        if self.TOP == 0:
            self.tops = [id_of(key) for key in self.tops]

    # --- looking

    def find_run(self, i: int, j: int, want: Column) -> list[Part] | None:
        """The parts that hold exactly `want`, contiguously from chunk i, position j on. None if the entries there
        differ, or if one of the chunks is not in memory.
        """
        chunks = self.chunks
        n = len(want)
        if i < len(chunks):
            chunk = chunks[i]
            if chunk is not None and len(chunk[0]) - j >= n:
                return [(i, j, j + n)] if chunk[0][j : j + n] == want else None
        parts = []
        at = 0
        while at < n:
            chunk = chunks[i] if i < len(chunks) else None
            if chunk is None:
                return None
            column = chunk[0]
            k = min(len(column), j + n - at)
            if column[j:k] != want[at : at + k - j]:
                return None
            parts.append((i, j, k))
            at += k - j
            i += 1
            j = 0
        return parts

    def place_run(self, want: Column) -> list[Part] | None:
        """`find_run` from the place of the first ID. For the orders by ID. May raise CorruptBlock."""
        i = bisect_left(self.tops, want[0])
        if i == len(self.tops):
            return None
        ids = (self.chunks[i] or self.load(i))[0]
        j = bisect_left(ids, want[0])
        k = j + len(want)
        if k <= len(ids):  # the first case of `find_run` inlined
            return [(i, j, k)] if ids[j:k] == want else None
        return self.find_run(i, j, want)

    def copy_to(self, other: Order) -> None:
        """Copy all entries to `other`, which is empty. May raise CorruptBlock."""
        other.chunks = [
            tuple([column[:] for column in self.peek(i)]) for i in range(len(self.chunks))
        ]
        other.tops = self.tops[:]
        other.serials = [0] * len(self.chunks)

    def check(self) -> None:
        """Assert the invariants of an order. Keeps nothing in memory."""
        assert len(self.chunks) == len(self.tops) == len(self.serials)
        for i, (top, serial) in enumerate(zip(self.tops, self.serials)):
            assert serial or self.chunks[i] is not None
            assert serial < self.shelf.next_serial
            chunk = self.peek(i)
            assert 0 < len(chunk[0]) < 2 * LOAD
            assert {len(column) for column in chunk} == {len(chunk[0])}
            assert len(chunk) == len(self.CODES)
            assert chunk[self.TOP][-1] == top
        held = [serial for serial in self.serials if serial]
        assert len(held) == len(set(held))
