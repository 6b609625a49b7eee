"""The file `data.mdb` as LMDB 0.9 writes it, read with plain reads before it is mapped into memory.

If a mapped file is shorter than its pages refer to, reading it kills the process. So every file is checked here first.
All numbers are in the byte order of the machine, pages are `psize` bytes, and page n begins at n * psize:

    page 0, 1     meta pages; the one with the greater transaction number counts
    page          number u64, pad u16, flags u16, lower u16, upper u16, then one u16 per node: where it lies
    overflow      number u64, pad u16, flags u16, how many pages follow each other u32, then one value
    meta          page header 16 B, magic u32, version u32, address u64, map size u64, tree of free pages 48 B,
                  tree of rows 48 B, last page u64, transaction u64
    tree          pad u32 (psize, in the tree of free pages), flags u16, depth u16, pages u64 x 3, rows u64, root u64
    node          low u16, high u16, flags u16, key length u16, key, then
                  in a branch: nothing; the child is low | high << 16 | flags << 32
                  in a leaf: a value of low | high << 16 bytes, or if flags & 1 the u64 number of its overflow page

LMDB has no checksums. The fields of these pages are checked for plausibility; rows have their own checksums.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from tidelog.aof.errors import NewerFormat
from tidelog.snapshot.errors import DamagedCheckpoint

MAGIC: Final = 0xBEEFC0DE
VERSION: Final = 1
PSIZE_MIN: Final = 512
PSIZE_MAX: Final = 32768
# A power cut during the creation of the file can leave two meta pages of zeros.
BLANK_BYTES_MAX: Final = 2 * PSIZE_MAX
NO_PAGE: Final = (1 << 64) - 1
DEPTH_MAX: Final = 32

PAGE_HEADER: Final = 16
BRANCH: Final = 0x01
LEAF: Final = 0x02
OVERFLOW: Final = 0x04
META: Final = 0x08
BIG: Final = 0x01  # a node's flag: its value is in overflow pages
INTEGER_KEYS: Final = 0x08  # the flags of the tree of free pages
NO_SUBDIR: Final = 0x4000  # LMDB sets this flag in every file that it creates with subdir=False

_TREE = "IHHQQQQQ"
_META = struct.Struct("=IIQQ" + _TREE + _TREE + "QQ")
PAGE: Final = struct.Struct("=QHHHH")
NODE: Final = struct.Struct("=HHHH")
assert _META.size == 136 and PAGE.size == PAGE_HEADER and NODE.size == 8


class Readable(Protocol):
    """The part of `disk.interface.File` that this module needs."""

    @property
    def path(self) -> Path: ...

    def size(self) -> int: ...

    def pread(self, length: int, offset: int) -> bytes:
        """Read `length` bytes; fewer only at the end of the file."""
        ...


class Tree(NamedTuple):
    """A tree as its meta page describes it: depth in pages, pages of each kind, rows, root page or None."""

    depth: int
    branches: int
    leaves: int
    overflows: int
    entries: int
    root: int | None


class Head(NamedTuple):
    """The content of one meta page, normally the newer one.

    psize         page size in bytes
    last_page     number of the last page in use
    transaction   number of the last commit; 0: nothing was ever committed
    free, rows    the two trees
    """

    psize: int
    last_page: int
    transaction: int
    free: Tree
    rows: Tree

    @property
    def entries(self) -> int:
        """How many rows there are."""
        return self.rows.entries

    @property
    def bytes(self) -> int:
        """File size in bytes up to the end of the last page. The file may be shorter and may be extended to it."""
        return (self.last_page + 1) * self.psize

    @property
    def used_bytes(self) -> int:
        """Bytes of the two meta pages and of the trees. LMDB may write to all other pages of the file."""
        trees = (self.free, self.rows)
        pages = sum(tree.branches + tree.leaves + tree.overflows for tree in trees)
        return (2 + pages) * self.psize


def read_head(file: Readable, transaction: int | None = None) -> Head | None:
    """Read the newer meta page, or the one of `transaction`.

    Return None if the file is blank (empty, or all zeros after a power cut while it was created), or if neither page
    is of that transaction. Raises DamagedCheckpoint, NewerFormat, OSError.
    """
    size = file.size()
    if size <= BLANK_BYTES_MAX and not file.pread(size, 0).strip(b"\0"):
        return None
    first, wrong = _meta(file, 0, 0)
    second, wrong_too = _meta(file, first.psize, 1)
    if second.psize != first.psize:
        raise DamagedCheckpoint(
            file.path,
            second.psize,
            f"meta page 1 gives a page size of {second.psize} bytes, but meta page 0 gives {first.psize}",
        )
    if transaction not in (None, first.transaction, second.transaction):
        return None
    if transaction is None:
        head = max(first, second, key=lambda head: head.transaction)
    else:
        head = first if first.transaction == transaction else second
    # Ignore damage in the other meta page: nobody reads that page, and a failed commit may have left it half written.
    offset, wrong = (0, wrong) if head is first else (second.psize, wrong_too)
    if wrong:
        page = 0 if head is first else 1
        raise DamagedCheckpoint(
            file.path, offset, f"meta page {page} is damaged: implausible {wrong}"
        )
    return head


def _meta(file: Readable, offset: int, page: int) -> tuple[Head, str]:
    """Read a meta page. Return it and its first implausible field in words, "" if there is none.

    Raises DamagedCheckpoint if it is no meta page or its page size is damaged, since that gives the place of the other
    one. Raises NewerFormat.
    """
    data = file.pread(PAGE_HEADER + _META.size, offset)
    path = file.path
    if len(data) < PAGE_HEADER + _META.size:
        raise DamagedCheckpoint(
            path, file.size(), f"the file ends here, before the end of meta page {page}"
        )
    number, _, flags, _, _ = PAGE.unpack_from(data)
    fields = _META.unpack_from(data, PAGE_HEADER)
    magic, version, _, _ = fields[:4]
    if magic != MAGIC or not flags & META:
        raise DamagedCheckpoint(
            path,
            offset,
            f"page {page} is not a meta page: this is not an LMDB file, or its start is damaged",
        )
    if version != VERSION:
        if version > VERSION:
            raise NewerFormat(path, version, VERSION)
        raise DamagedCheckpoint(path, offset, f"the LMDB data format {version} is unknown")
    psize, free_flags, *free_fields = fields[4:12]
    _, rows_flags, *rows_fields = fields[12:20]
    last_page, transaction = fields[20:]
    free, rows = _tree(*free_fields), _tree(*rows_fields)
    head = Head(psize, last_page, transaction, free, rows)
    lasting = (  # fields that LMDB never writes again
        f"page number {number}"
        if number != page
        else f"page size {psize}"
        if psize & (psize - 1) or not PSIZE_MIN <= psize <= PSIZE_MAX
        else ""
    )
    if lasting:
        raise DamagedCheckpoint(path, offset, f"meta page {page} is damaged: wrong {lasting}")
    senseless = (
        f"last page {last_page}"
        if last_page < 1 or last_page >> 47
        else f"tree flags {free_flags:#x} and {rows_flags:#x}"
        if free_flags & ~(0x8000 | NO_SUBDIR) != INTEGER_KEYS or rows_flags & ~0x8000
        else f"transaction {transaction}, which belongs on the other meta page"
        if transaction and transaction & 1 != page  # LMDB finds the page by the number
        else "trees, although nothing was ever committed"
        if not transaction and (free.root, rows.root) != (None, None)
        else f"trees of depth {free.depth} and {rows.depth}"
        if max(free.depth, rows.depth) > DEPTH_MAX
        else f"root pages {free.root} and {rows.root}, while the last page is {last_page}"
        if any(root is not None and not 1 < root <= last_page for root in (free.root, rows.root))
        else f"{rows.entries} rows without a root page"
        if (rows.root is None) != (rows.entries == 0)
        else ""
    )
    return head, senseless


def _tree(depth: int, branches: int, leaves: int, overflows: int, entries: int, root: int) -> Tree:
    return Tree(depth, branches, leaves, overflows, entries, None if root == NO_PAGE else root)


def check_reach(file: Readable, head: Head) -> None:
    """Raise DamagedCheckpoint if the file was cut, that is, if a tree refers to a page beyond the end of the file, or
    if the number of the last page is damaged.

    A healthy file may end before its last page, if a transaction allocated pages and freed them again. So for a short
    file the trees are walked from their roots, reading all pages except those of values. Other files are not walked.
    The missing pages are then listed as free. If they are too many for that, the number of the last page is wrong:
    the file must not grow to it.
    """
    size = file.size()
    if size >= head.bytes:
        return
    free = 0
    for root in (head.free.root, head.rows.root):
        free += _follow(file, head, size, root, lists=root == head.free.root)
    missing = head.last_page + 1 - size // head.psize
    if missing > free:
        raise DamagedCheckpoint(
            file.path,
            head.transaction % 2 * head.psize,
            f"the meta page gives {head.last_page} as the last page, so {missing} pages are missing from the file, but "
            f"only {free} pages are free",
        )


def _follow(file: Readable, head: Head, size: int, root: int | None, *, lists: bool) -> int:
    """Walk one tree. Return how many pages its rows list as free: `lists` says that it is the tree of free pages."""
    psize, path = head.psize, file.path
    todo = [] if root is None else [(root, 0)]
    seen = free = 0
    while todo:
        number, depth = todo.pop()
        at = number * psize
        _inside(path, head, size, number, 1)
        page = file.pread(psize, at)
        own, _, flags, lower, _ = PAGE.unpack_from(page)
        seen += 1
        if (
            own != number
            or not flags & (BRANCH | LEAF)
            or depth > DEPTH_MAX
            or seen > head.last_page
        ):
            raise DamagedCheckpoint(path, at, f"page {number} is not a tree page")
        nodes = struct.unpack_from(
            f"={max(0, min(lower, psize) - PAGE_HEADER) // 2}H", page, PAGE_HEADER
        )
        for node in nodes:
            if node > psize - NODE.size:
                raise DamagedCheckpoint(
                    path, at, f"a node does not lie wholly within page {number}"
                )
            low, high, bits, key_bytes = NODE.unpack_from(page, node)
            if flags & BRANCH:
                todo.append((low | high << 16 | bits << 32, depth + 1))
            elif bits & BIG:
                value_bytes = low | high << 16
                where = node + NODE.size + key_bytes
                if where > psize - 8:
                    raise DamagedCheckpoint(
                        path, at, f"a node does not lie wholly within page {number}"
                    )
                (first,) = struct.unpack_from("=Q", page, where)
                _inside(path, head, size, first, -(-(PAGE_HEADER + value_bytes) // psize))
                if lists:
                    free += _listed(file.pread(8, first * psize + PAGE_HEADER), value_bytes)
            elif lists:
                where = node + NODE.size + key_bytes
                free += _listed(page[where : where + 8], low | high << 16)
    return free


def _listed(data: bytes, value_bytes: int) -> int:
    """How many pages a row of the tree of free pages lists: its first number says it, its size bounds it."""
    return min(int.from_bytes(data, sys.byteorder), value_bytes // 8)


def _inside(path: Path, head: Head, size: int, number: int, count: int) -> None:
    if number + count > head.last_page + 1:
        raise DamagedCheckpoint(
            path, 0, f"a tree refers to page {number}, but the last page is {head.last_page}"
        )
    end = (number + count) * head.psize
    if end > size:
        raise DamagedCheckpoint(
            path,
            size,
            f"the file ends here, but page {number}, which is in use, ends at byte {end}: the file was cut off or "
            "copied incompletely",
        )
