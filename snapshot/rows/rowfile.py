"""RowFile: read the rows of one commit of data.mdb with plain, bounded reads and without LMDB.

LMDB trusts its file: a wrong pointer in it kills the process, or silently skips rows. This reader trusts nothing. Every
page number, pointer, flag and length is checked before it is used (snapshot/rows/treepage.py), each page's keys must
lie within the bounds that its parent gives, and every row must match its checksum. Any violation raises a
CorruptBlock that names the file, the page, the byte and the row that was looked for; the other rows stay readable.

It needs only a Head and a function `read_at(offset, nbytes)`, which may return fewer bytes at the end of the file. So
it could also read from an object store. It caches the last 128 pages, parsed. A look-up costs about 50 microseconds for
each page that is not cached. LMDB needs two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidelog.engine.crc32c import crc32c_of
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.rows.datafile import PAGE_HEADER, Head
from tidelog.snapshot.rows.rownames import row_name
from tidelog.snapshot.rows.seal import CRC_BYTES, opened
from tidelog.snapshot.rows.sums import part_name, parts_of
from tidelog.snapshot.rows.treepage import (
    BadPage,
    Branch,
    Leaf,
    check_bounds,
    run_pages,
    tree_page,
)

PAGES_KEPT: Final = 128
BATCH_ROWS: Final = 64  # `rows` reads this many at a time
BATCH_BYTES: Final = 256 << 10
# If a row is missing, the rows beside its place are checked, except rows larger than this.
NEIGHBOUR_BYTES_MAX: Final = 64 << 10

from_bytes: Final = int.from_bytes

ReadAt = Callable[[int, int], bytes]
Row = tuple[bytes, bytes]
_Kept = tuple[Branch | Leaf, bytes, bytes | None]


class _Cursor:
    """A position in the tree: the branches passed, each with the child taken and its bounds, and a row of a leaf.

    `index` may be one past the last row of the leaf.
    """

    __slots__ = ("passed", "leaf", "index")

    def __init__(self) -> None:
        self.passed: list[tuple[Branch, int, bytes, bytes | None]] = []
        self.leaf: Leaf | None = None
        self.index = 0


class RowFile:
    """The rows of the commit that `head` describes: an `engine.cold.ColdStore`.

    path        of the file, or its URL, for errors
    suspects    parts of the rows (snapshot/rows/sums.py) known to differ from the commit; reading them is refused
    well_keyed  keys of damaged rows that were found by key: the payload is damaged, the key is right
    peek        reads a few bytes of a large value, without reading ahead; None: as `read_at`
    sparing     little of the file will be read, so pages of the tree are read by `peek`, too
    """

    def __init__(
        self,
        path: Path | str,
        read_at: ReadAt,
        head: Head,
        *,
        suspects: Collection[int] = (),
        well_keyed: set[bytes] | None = None,
        peek: ReadAt | None = None,
        sparing: bool = False,
    ) -> None:
        self.path, self.head, self.suspects = path, head, suspects
        self.well_keyed = set() if well_keyed is None else well_keyed
        self._read_at = read_at
        self._peek = peek or read_at
        self._page_at = self._peek if sparing else read_at
        self._kept: OrderedDict[int, _Kept] = OrderedDict()

    def number(self) -> int:
        """The number of the commit."""
        return self.head.transaction

    # --- looking up

    def get(self, key: bytes) -> bytes | None:
        """The payload of a row, or None if there is no such row. Raises CorruptBlock."""
        with self._looking_for(key, key):
            place = self._seek(key)
            found = self._row(place)
            if found is not None and found[0] == key:
                value = self._value(place)
                try:
                    return opened(self.path, key, value)
                except CorruptBlock:
                    self.well_keyed.add(key)
                    raise
            self._check_neighbours(key, place)
            return None

    def pieces(self, key: bytes, spans: Iterable[tuple[int, int]]) -> list[bytes] | None:
        """Parts of a row's payload, each (offset, bytes); None if there is no such row.

        No more of the value is read than these, so the checksum of the row is not verified. Raises CorruptBlock.
        """
        with self._looking_for(key, key):
            place = self._seek(key)
            found = self._row(place)
            if found is None or found[0] != key:
                return None
            return self._parts(place, found[1] - CRC_BYTES, spans)

    def before(self, key: bytes, prefix: bytes) -> Row | None:
        """The row with the greatest key that begins with `prefix` and is at most `key`, or None.

        Raises CorruptBlock.
        """
        with self._looking_for(key, prefix):
            place = self._seek(key)
            found = self._row(place)
            if found is None or found[0] != key:
                self._check_neighbour(place)
                if not self._step_back(place):
                    return None
                found = self._row(place)
            return self._answer(place, found, prefix)

    def after(self, key: bytes, prefix: bytes) -> Row | None:
        """The row with the least key that begins with `prefix` and is at least `key`, or None.

        Raises CorruptBlock.
        """
        key = max(key, prefix)
        with self._looking_for(key, prefix):
            place = self._seek(key)
            found = self._row(place)
            if found is None or found[0] != key:
                behind = self._seek(key)
                if self._step_back(behind):
                    self._check_neighbour(behind)
            return self._answer(place, found, prefix)

    def rows(self, prefix: bytes, start: bytes = b"") -> Iterator[Row]:
        """Iterate over the rows whose keys begin with `prefix`, ascending, from `start` on. Raises CorruptBlock."""
        at = max(prefix, start)
        while True:
            batch, more = self.batch(prefix, at)
            yield from batch
            if not more:
                return
            at = batch[-1][0] + b"\0"

    def batch(self, prefix: bytes, start: bytes) -> tuple[list[Row], bool]:
        """The next batch of rows whose keys begin with `prefix`, from `start` on, and whether there may be more.

        Raises CorruptBlock.
        """
        batch: list[Row] = []
        nbytes = 0
        with self._looking_for(start, prefix):
            place = self._seek(start)
            while (leaf := self._leaf(place)) is not None:
                data = leaf.data
                for index in range(place.index, len(leaf.keys)):
                    key = leaf.keys[index]
                    if not key.startswith(prefix):
                        return batch, False
                    first, at, size = leaf.values[index]
                    end = at + size - CRC_BYTES
                    # In a leaf the payload lies right behind its key, so one call makes the checksum of both.
                    if not first and crc32c_of(data[at - len(key) : end]) == from_bytes(
                        data[end : end + CRC_BYTES], "little"
                    ):
                        batch.append((key, data[at:end]))
                    else:
                        place.index = index
                        batch.append((key, opened(self.path, key, self._value(place))))
                    nbytes += size
                    if len(batch) == BATCH_ROWS or nbytes >= BATCH_BYTES:
                        return batch, True
                place.index = len(leaf.keys)
        return batch, False

    def sizes(self, prefix: bytes, start: bytes = b"") -> Iterator[tuple[bytes, int]]:
        """Iterate over the keys that begin with `prefix`, ascending, from `start` on, each with the bytes of its value.

        Values are not read, so a key whose row is damaged appears, too. Raises CorruptBlock.
        """
        with self._looking_for(start, prefix):
            place = self._seek(max(prefix, start))
            while (found := self._row(place)) is not None and found[0].startswith(prefix):
                yield found
                place.index += 1

    def leaves(self, prefix: bytes) -> Iterator[tuple[bytes, int]]:
        """Iterate over the leaves that may have keys that begin with `prefix`: the lower bound of each one's keys,
        ascending, and about the bytes of the leaf with its values. Raises CorruptBlock.

        No leaf and no value is read: LMDB's compact copy writes the values of a leaf right before the leaf, so their
        size is the distance to the leaf before. The leaf itself counts as half full, as after a split.
        """
        psize = self.head.psize
        with self._looking_for(prefix, prefix):
            before = 0
            for low, number in self._leaves(prefix):
                pages = number - before if 0 < before < number else 1
                before = number
                yield low, pages * psize - psize // 2

    def _leaves(self, prefix: bytes) -> Iterator[tuple[bytes, int]]:
        """The lower bounds and page numbers of these leaves."""
        root, depth = self.head.rows.root, self.head.rows.depth
        waiting: list[tuple[int, bytes, bytes | None, int]] = []
        if root is not None:
            waiting.append((root, b"", None, 1))
        while waiting:
            number, low, high, level = waiting.pop()
            if level == depth:
                yield low, number
                continue
            page = self._page(number, low, high, level)
            assert isinstance(page, Branch)
            last = bisect_left(page.keys, True, key=lambda key: key[: len(prefix)] > prefix)
            first = max(bisect_right(page.keys, prefix, hi=last) - 1, 0)
            for at in range(last - 1, first - 1, -1):
                waiting.append((*_child(page, at, low, high), level + 1))

    def values(self, start: bytes) -> Iterator[Row]:
        """Iterate over all rows from `start` on with their values, those in `suspects` too. Checksums are not verified.

        Raises CorruptBlock.
        """
        with self._telling(start):
            place = self._seek(start)
            while (found := self._row(place)) is not None:
                yield found[0], self._value(place)
                place.index += 1

    @contextmanager
    def _looking_for(self, key: bytes, prefix: bytes) -> Iterator[None]:
        if self.suspects:
            for part in parts_of(prefix):
                if part in self.suspects:
                    raise CorruptBlock(
                        f"{self.path}: {row_name(key)} cannot be trusted, because the rows of {part_name(part)} are "
                        "not those of the last commit"
                    )
        with self._telling(key):
            yield

    @contextmanager
    def _telling(self, key: bytes) -> Iterator[None]:
        try:
            yield
        except BadPage as bad:
            at = bad.number * self.head.psize + bad.offset
            raise CorruptBlock(
                f"{self.path}: {row_name(key)} cannot be read: page {bad.number}, byte {at}: {bad.reason}"
            ) from bad
        except OSError as error:
            raise CorruptBlock(f"{self.path}: {row_name(key)} cannot be read: {error}") from error

    # --- neighbours

    def _check_neighbours(self, key: bytes, place: _Cursor) -> None:
        """Check that a row that was not found is really missing. Raises CorruptBlock if damage may hide it.

        A row with a damaged key fails its checksum, and may still lie in order next to where the search ended.
        """
        self._check_neighbour(place)
        behind = self._seek(key)
        if self._step_back(behind):
            self._check_neighbour(behind)

    def _check_neighbour(self, place: _Cursor) -> None:
        found = self._row(place)
        if (
            found is not None
            and found[1] <= NEIGHBOUR_BYTES_MAX
            and found[0] not in self.well_keyed
        ):
            opened(self.path, found[0], self._value(place))

    def _answer(self, place: _Cursor, found: tuple[bytes, int] | None, prefix: bytes) -> Row | None:
        if found is None:
            return None
        if not found[0].startswith(prefix):
            self._check_neighbour(place)
            return None
        return found[0], opened(self.path, found[0], self._value(place))

    # --- pages

    def _seek(self, key: bytes) -> _Cursor:
        """The place of the first row whose key is at least `key`."""
        place = _Cursor()
        if self.head.rows.root is not None:
            self._descend(place, self.head.rows.root, b"", None, key)
            assert place.leaf is not None
            place.index = bisect_left(place.leaf.keys, key)
        return place

    def _descend(
        self, place: _Cursor, number: int, low: bytes, high: bytes | None, key: bytes | None
    ) -> None:
        """Descend to the leaf that would contain `key`; None: to the last leaf."""
        while True:
            depth = len(place.passed) + 1
            page = self._page(number, low, high, depth)
            if isinstance(page, Leaf):
                place.leaf = page
                return
            at = len(page.keys) if key is None else bisect_right(page.keys, key)
            at = max(at - 1, 0)
            place.passed.append((page, at, low, high))
            number, low, high = _child(page, at, low, high)

    def _page(self, number: int, low: bytes, high: bytes | None, depth: int) -> Branch | Leaf:
        kept = self._kept.get(number)
        if kept is not None and kept[1] == low and kept[2] == high:
            self._kept.move_to_end(number)
            page = kept[0]
        else:
            psize = self.head.psize
            data = self._page_at(number * psize, psize)
            page = tree_page(data, number, psize, self.head.last_page)
            check_bounds(page, number, low, high)
            self._kept[number] = page, low, high
            if len(self._kept) > PAGES_KEPT:
                self._kept.popitem(last=False)
        if isinstance(page, Leaf) != (depth == self.head.rows.depth):
            kind = "leaf" if isinstance(page, Leaf) else "branch"
            tree = self.head.rows.depth
            raise BadPage(
                number, 10, f"a {kind} page cannot be at depth {depth} of a tree of depth {tree}"
            )
        return page

    def _row(self, place: _Cursor) -> tuple[bytes, int] | None:
        """The key and value size of the row at a place, or None at the end. Moves to the next leaf if needed."""
        leaf = self._leaf(place)
        return None if leaf is None else (leaf.keys[place.index], leaf.values[place.index][2])

    def _leaf(self, place: _Cursor) -> Leaf | None:
        """The leaf of the row at a place, or None at the end. Moves to the next leaf if needed."""
        leaf = place.leaf
        while leaf is not None and place.index >= len(leaf.keys):
            leaf = self._next_leaf(place)
        return leaf

    def _next_leaf(self, place: _Cursor) -> Leaf | None:
        while place.passed:
            page, at, low, high = place.passed.pop()
            if at + 1 < len(page.children):
                place.passed.append((page, at + 1, low, high))
                number, low, high = _child(page, at + 1, low, high)
                self._descend(place, number, low, high, b"")
                place.index = 0
                return place.leaf
        place.leaf = None
        return None

    def _step_back(self, place: _Cursor) -> bool:
        """Move a place that `_seek` returned to the row before. Return False if there is none."""
        if place.leaf is None and self.head.rows.root is not None:
            self._descend(place, self.head.rows.root, b"", None, None)
            assert place.leaf is not None
            place.index = len(place.leaf.keys)
        if place.leaf is None:
            return False
        if place.index > 0:
            place.index -= 1
            return True
        while place.passed:
            page, at, low, high = place.passed.pop()
            if at > 0:
                place.passed.append((page, at - 1, low, high))
                number, low, high = _child(page, at - 1, low, high)
                self._descend(place, number, low, high, None)
                place.index = len(place.leaf.keys) - 1
                return True
        return False

    def _value(self, place: _Cursor) -> bytes:
        leaf = place.leaf
        assert leaf is not None
        first, at, nbytes = leaf.values[place.index]
        if not first:
            return leaf.data[at : at + nbytes]
        start = self._run(first, nbytes, self._read_at)
        value = self._read_at(start, nbytes)
        if len(value) != nbytes:
            raise BadPage(first, PAGE_HEADER + len(value), "the file ends within this value")
        return value

    def _parts(self, place: _Cursor, end: int, spans: Iterable[tuple[int, int]]) -> list[bytes]:
        """Parts of the value at a place, up to `end`."""
        leaf = place.leaf
        assert leaf is not None
        first, at, nbytes = leaf.values[place.index]
        if not first:
            value = leaf.data[at : at + end]
            return [value[offset : offset + length] for offset, length in spans]
        start = self._run(first, nbytes, self._peek)
        return [self._peek(start + offset, min(length, end - offset)) for offset, length in spans]

    def _run(self, first: int, nbytes: int, read_at: ReadAt) -> int:
        """Check the header of a run of pages that holds a value. Returns where the value begins in the file."""
        head = self.head
        if not 1 < first <= head.last_page:
            raise BadPage(
                first,
                0,
                f"the value of a row should begin here, but the last page is {head.last_page}",
            )
        offset = first * head.psize
        run_pages(read_at(offset, PAGE_HEADER), first, nbytes, head.psize, head.last_page)
        return offset + PAGE_HEADER


def _child(
    page: Branch, at: int, low: bytes, high: bytes | None
) -> tuple[int, bytes, bytes | None]:
    """The page number and key bounds of a child."""
    keys = page.keys
    return (
        page.children[at],
        keys[at] if at else low,
        keys[at + 1] if at + 1 < len(keys) else high,
    )
