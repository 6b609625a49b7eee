"""Structure: the check that a commit must pass before LMDB may read its pages.

The check walks both trees from their roots, pages of values included. It verifies that every page is one that LMDB
writes (snapshot/rows/treepage.py); that each page is used once and is not also listed as free; that depth, pages of
each kind and rows match the meta page; that the list of free pages is valid; and that the rows are those of the commit
(snapshot/rows/sums.py). Of each value only the last four bytes are read.

It works in steps, because other threads need the interpreter: `run` yields after each page, at most about 0.1 ms of
work, and the caller decides when to sleep.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from operator import gt
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.engine.errors import CorruptBlock
from tidelog.engine.rowkeys import META
from tidelog.snapshot.rows.datafile import PAGE_HEADER, Head, Tree
from tidelog.snapshot.rows.rowfile import ReadAt, RowFile
from tidelog.snapshot.rows.seal import CRC_BYTES, opened
from tidelog.snapshot.rows.sums import Sums, part_name, part_of, sums_in
from tidelog.snapshot.rows.treepage import (
    BadPage,
    Branch,
    Leaf,
    check_bounds,
    run_pages,
    tree_page,
)

FAULTS_MAX: Final = 20
# an overflow run up to this long is read together with its header, in one call
_RUN_BYTES_MAX: Final = 32 << 10
_SOME: Final = 1000  # free pages checked in one step
_AT_ONCE: Final = 1 << 16  # one piece of the map of used pages covers this many pages


class Fault(NamedTuple):
    """One fault: the byte offset in the file, and what is wrong there."""

    offset: int
    reason: str


class _Used:
    """The set of used pages, allocated in pieces so that a damaged last page number cannot take all memory."""

    def __init__(self) -> None:
        self._pieces: dict[int, bytearray] = {}

    def take(self, number: int) -> bool:
        """Mark a page as used. Return whether it was unused."""
        piece = self._pieces.get(number // _AT_ONCE)
        if piece is None:
            piece = self._pieces[number // _AT_ONCE] = bytearray(_AT_ONCE)
        at = number % _AT_ONCE
        if piece[at]:
            return False
        piece[at] = 1
        return True


class Structure:
    """The check of one commit. Iterate over `run`, then read the results.

    faults     what is wrong, at most FAULTS_MAX page faults and a few of the counts; empty: the commit is sound
    sums       of the rows that were found
    suspects   parts whose rows differ from the commit's. Empty if the only faults are unreadable pages
    """

    def __init__(self, path: Path | str, read_at: ReadAt, head: Head) -> None:
        self.path, self.head = path, head
        self.faults: list[Fault] = []
        self.sums = Sums()
        self.suspects: frozenset[int] = frozenset()
        self._read_at = read_at
        self._used = _Used()
        self._doubtful = False  # a readable page may belong to another commit
        self._unread = False  # True if a page of the rows or of the free list could not be read
        self._meta: bytes | None = None

    def run(self) -> Iterator[None]:
        """Run the whole check in steps. Raises OSError."""
        yield from self._tree(self.head.rows, free=False)
        yield from self._tree(self.head.free, free=True)
        yield from self._compare_sums()

    def _fault(self, number: int, offset: int, reason: str) -> None:
        at = number * self.head.psize + offset
        if len(self.faults) < FAULTS_MAX:
            self.faults.append(Fault(at, f"page {number}: {reason}"))

    def _take(self, number: int, count: int = 1) -> bool:
        used = self._used
        for page in range(number, number + count):
            if not used.take(page):
                self._doubtful = True
                self._fault(page, 0, "it is used in two places")
                return False
        return True

    def _tree(self, tree: Tree, *, free: bool) -> Iterator[None]:
        name = "the tree of free pages" if free else "the tree of rows"
        head = self.head
        psize, last_page = head.psize, head.last_page
        branches = leaves = overflows = entries = 0
        unread = False
        todo: list[tuple[int, int, bytes, bytes | None]] = []
        if tree.root is not None:
            todo.append((tree.root, 1, b"", None))
        while todo:
            number, depth, low, high = todo.pop()
            try:
                if not self._take(number):
                    unread = True
                    continue
                data = self._read_at(number * psize, psize)
                page = tree_page(data, number, psize, last_page, numbers=free)
                check_bounds(page, number, low, high)
                if isinstance(page, Leaf) != (depth == tree.depth):
                    raise BadPage(
                        number,
                        10,
                        f"a page of this kind cannot be at depth {depth} of a tree of depth {tree.depth}",
                    )
                if isinstance(page, Branch):
                    if len(page.keys) < 2 and not free:
                        raise BadPage(number, 12, "the page is a branch page with only one child")
                    branches += 1
                    keys = page.keys
                    bounds: list[bytes | None] = [*keys[1:], high]
                    lows = [low, *keys[1:]]
                    todo += reversed(
                        [
                            (child, depth + 1, a, b)
                            for child, a, b in zip(page.children, lows, bounds)
                        ]
                    )
                else:
                    leaves += 1
                    entries += len(page.keys)
                    for at, (key, (first, _, nbytes)) in enumerate(zip(page.keys, page.values)):
                        try:
                            if free:
                                overflows += yield from self._free_list(page, at, number)
                            elif first:
                                overflows += self._run(key, first, nbytes, number)
                                if at & 15 == 15:
                                    yield
                        except BadPage as bad:  # only this value is bad; go on with the others
                            unread = self._unread = True
                            self._fault(bad.number, bad.offset, bad.reason)
                    if not free:
                        self._inline(page, number)
            except BadPage as bad:
                unread = self._unread = True
                self._fault(bad.number, bad.offset, bad.reason)
            yield
        if not unread:  # with unread pages the counts cannot match
            for what, there, told in (
                ("branches", branches, tree.branches),
                ("leaves", leaves, tree.leaves),
                ("pages of values", overflows, tree.overflows),
                ("rows", entries, tree.entries),
            ):
                if there != told:
                    at = (head.transaction & 1) * head.psize
                    text = f"{name} has {there} {what}, but the meta page says {told}"
                    self.faults.append(Fault(at, text))

    def _inline(self, page: Leaf, number: int) -> None:
        """Add the rows of a leaf whose values lie in the leaf to the sums."""
        data, add = page.data, self.sums.parts
        for key, (first, start, nbytes) in zip(page.keys, page.values):
            if first:
                continue
            if nbytes < CRC_BYTES:
                raise BadPage(
                    number, start, f"a value has {nbytes} bytes, too few to hold its checksum"
                )
            if key == META:
                self._meta = data[start : start + nbytes - CRC_BYTES]
                continue
            end = start + nbytes
            add[part_of(key)] += int.from_bytes(data[end - CRC_BYTES : end], "little")

    def _run(self, key: bytes, first: int, nbytes: int, number: int) -> int:
        """Add a row whose value has overflow pages to the sums. Return the number of those pages."""
        pages, value = self._overflow(first, nbytes, number, whole=key == META)
        if key == META:
            self._meta = value[:-CRC_BYTES]
        else:
            self.sums.parts[part_of(key)] += int.from_bytes(value[-CRC_BYTES:], "little")
        return pages

    def _overflow(self, first: int, nbytes: int, number: int, *, whole: bool) -> tuple[int, bytes]:
        """Take the overflow pages of a value. Return their number, and the end of the value, or all of it if `whole`.

        The end is at least the last four bytes. Raises BadPage.
        """
        head = self.head
        psize = head.psize
        if not 1 < first <= head.last_page:
            raise BadPage(
                number, 0, f"a row refers to a value in page {first}, which does not exist"
            )
        if nbytes < CRC_BYTES:
            raise BadPage(
                number,
                0,
                f"the value in page {first} has {nbytes} bytes, too few to hold its checksum",
            )
        offset = first * psize
        if PAGE_HEADER + nbytes <= _RUN_BYTES_MAX:  # one call instead of two
            data = self._read_at(offset, PAGE_HEADER + nbytes)
            pages = run_pages(data[:PAGE_HEADER], first, nbytes, psize, head.last_page)
            value = data[PAGE_HEADER:]
        else:
            header = self._read_at(offset, PAGE_HEADER)
            pages = run_pages(header, first, nbytes, psize, head.last_page)
            left = 0 if whole else nbytes - CRC_BYTES
            value = self._read_at(offset + PAGE_HEADER + left, nbytes - left)
            nbytes -= left
        if len(value) != nbytes:
            raise BadPage(first, PAGE_HEADER, "the file ends within this value")
        if not self._take(first, pages):
            raise BadPage(first, 0, "a page of this value is used in two places")
        return pages, value

    def _free_list(self, page: Leaf, at: int, number: int) -> Generator[None, None, int]:
        """Check the list of pages that one commit freed: their count, then their numbers in descending order.

        Return the number of overflow pages of the list itself.
        """
        last_page = self.head.last_page
        commit = int.from_bytes(page.keys[at], "big")
        first, start, nbytes = page.values[at]
        if not 0 < commit <= self.head.transaction:
            raise BadPage(
                number,
                start,
                f"a list of free pages is for commit {commit}, which does not exist",
            )
        pages = 0
        if first:
            pages, data = self._overflow(first, nbytes, number, whole=True)
        else:
            data = page.data[start : start + nbytes]
        listed = array("Q", data[: nbytes & ~7])
        if nbytes & 7 or not listed or listed[0] >= len(listed):
            raise BadPage(number, start, f"a list of free pages cannot have {nbytes} bytes")
        count, listed = listed[0], listed[1 : listed[0] + 1]
        if count and not 1 < listed[-1] <= listed[0] <= last_page:
            raise BadPage(
                number,
                start,
                f"the list of free pages goes from {listed[-1]} to {listed[0]}, outside the file",
            )
        if not all(map(gt, listed, listed[1:])):
            raise BadPage(number, start, "the list of free pages is not in descending order")
        take = self._used.take
        for some in range(0, count, _SOME):
            for free in listed[some : some + _SOME]:
                if not take(free):
                    self._doubtful = True
                    self._fault(free, 0, "it is listed as free, but is in use or listed twice")
            yield
        return pages

    def _compare_sums(self) -> Iterator[None]:
        packed = sums_in(self._meta)
        if packed is None:
            return
        differing = self.sums.differing(packed)
        if differing and not self._unread:
            torn: set[int] = set()
            yield from self._torn_rows(set(differing), torn)
            differing = [part for part in differing if part not in torn]
        if differing and not self._unread:
            more = f" and of {len(differing) - 1} more parts" if len(differing) > 1 else ""
            self.faults.append(
                Fault(
                    0,
                    f"the rows of {part_name(differing[0])}{more} are not those of the last commit; perhaps a page of "
                    "an earlier commit took their place",
                )
            )
        if not self._unread or self._doubtful:
            self.suspects = frozenset(differing)

    def _torn_rows(self, parts: set[int], torn: set[int]) -> Iterator[None]:
        """Add to `torn` those of `parts` that contain a row that fails its checksum.

        Such a row explains why the sum of its part differs. It is reported when it is read, like any damaged row.
        """
        rows = RowFile(self.path, self._read_at, self.head)
        try:
            for key, value in rows.values(b""):
                if key != META and part_of(key) in parts:
                    try:
                        opened(self.path, key, value)
                    except CorruptBlock:
                        torn.add(part_of(key))
                yield
        except CorruptBlock:
            pass  # a page became unreadable after it was checked; the next check will report it
