"""Treepage: parse one page of an LMDB 0.9 tree from the file's bytes. Every field is checked before it is used.

snapshot/rows/datafile.py draws the bytes. A page passes only if LMDB could have written it: it has its own number,
the flags of a branch or of a leaf and no others, nodes that fill it from `upper` to its end without gap or overlap,
and ascending keys. So a changed pointer, length, flag or bound in its header is detected here.
"""

from __future__ import annotations

import struct
import sys
from array import array
from operator import lt
from typing import Final, NamedTuple

from tidelog.snapshot.rows.datafile import BIG, BRANCH, LEAF, NODE, OVERFLOW, PAGE, PAGE_HEADER

KEY_BYTES_MAX: Final = 511
_WIDE: Final = struct.Struct("=Q")
_RUN: Final = struct.Struct("=QHHI")
assert _RUN.size == PAGE_HEADER and array("H").itemsize == 2


class BadPage(Exception):
    """A page is not one that LMDB writes.

    number   of the page
    offset   of the fault in the page, in bytes, approximate
    """

    def __init__(self, number: int, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.number, self.offset, self.reason = number, offset, reason


class Branch(NamedTuple):
    """A branch page. Child i has the keys from keys[i] up to, not including, keys[i + 1]. keys[0] is always empty."""

    keys: list[bytes]
    children: list[int]


class Leaf(NamedTuple):
    """A leaf page. Its rows ascend.

    keys     of the rows
    values   of the rows: (first overflow page or 0, offset in `data` if that is 0, size in bytes)
    data     the bytes of the page
    """

    keys: list[bytes]
    values: list[tuple[int, int, int]]
    data: bytes


def tree_page(
    data: bytes, number: int, psize: int, last_page: int, *, numbers: bool = False
) -> Branch | Leaf:
    """Parse `data`, the bytes of page `number`. Raises BadPage.

    numbers   the keys are u64 in numeric order; they are returned as 8 bytes big-endian
    """
    if len(data) != psize:
        raise BadPage(number, len(data), "the file ends within this page")
    own, _, flags, lower, upper = PAGE.unpack_from(data)
    if own != number:
        raise BadPage(number, 0, f"the header gives the page number {own}")
    if flags not in (BRANCH, LEAF):
        raise BadPage(number, 10, f"the flags {flags:#x} are not those of a tree page")
    if not PAGE_HEADER < lower <= upper < psize or lower & 1:
        raise BadPage(
            number,
            12,
            f"the free space cannot go from byte {lower} to byte {upper}",
        )
    pointers = array("H", data[PAGE_HEADER:lower])
    if max(pointers) > psize - NODE.size or min(pointers) != upper:
        raise BadPage(number, PAGE_HEADER, "a pointer points outside the nodes")
    found = (
        _branch(data, number, psize, last_page, pointers)
        if flags == BRANCH
        else _leaf(data, number, psize, pointers)
    )
    keys = found.keys
    if numbers:
        if any(len(key) != 8 for key in keys[flags == BRANCH :]):
            raise BadPage(number, upper, "a key is not a number")
        if sys.byteorder == "little":
            keys[:] = [key[::-1] for key in keys]
    if not all(map(lt, keys, keys[1:])):
        raise BadPage(number, upper, "the keys are not in ascending order")
    return found


def _branch(data: bytes, number: int, psize: int, last_page: int, pointers: array[int]) -> Branch:
    keys: list[bytes] = []
    children: list[int] = []
    ends: list[int] = []
    for at in pointers:
        low, high, bits, key_bytes = NODE.unpack_from(data, at)
        child = low | high << 16 | bits << 32
        start = at + NODE.size
        if key_bytes > KEY_BYTES_MAX:
            raise BadPage(number, at, f"a key cannot have {key_bytes} bytes")
        if not 1 < child <= last_page:
            raise BadPage(
                number,
                at,
                f"a node refers to page {child}, but only pages 2 to {last_page} can be children",
            )
        keys.append(data[start : start + key_bytes])
        children.append(child)
        ends.append((start + key_bytes + 1) & ~1)
    _fill(number, psize, pointers, ends)
    keys[0] = b""
    return Branch(keys, children)


def _leaf(data: bytes, number: int, psize: int, pointers: array[int]) -> Leaf:
    keys: list[bytes] = []
    values: list[tuple[int, int, int]] = []
    ends: list[int] = []
    unpack = NODE.unpack_from
    for at in pointers:
        low, high, bits, key_bytes = unpack(data, at)
        start = at + 8
        end = start + key_bytes
        size = low | high << 16
        if not 0 < key_bytes <= KEY_BYTES_MAX:
            raise BadPage(number, at, f"a key is empty or longer than {KEY_BYTES_MAX} bytes")
        keys.append(data[start:end])
        if bits == 0:
            values.append((0, end, size))
            end += size
        elif bits == BIG and end <= psize - 8:
            values.append((_WIDE.unpack_from(data, end)[0], end, size))
            end += 8
        else:
            raise BadPage(number, at, f"a node has the invalid flags {bits:#x}")
        ends.append((end + 1) & ~1)
    _fill(number, psize, pointers, ends)
    return Leaf(keys, values, data)


def _fill(number: int, psize: int, pointers: array[int], ends: list[int]) -> None:
    """Raise BadPage unless each node ends where the next one begins, and the last one at the end of the page."""
    starts = sorted(pointers)
    starts.append(psize)
    ends.sort()
    if ends != starts[1:]:
        raise BadPage(number, starts[0], "the nodes overlap or leave a gap")


def check_bounds(page: Branch | Leaf, number: int, low: bytes, high: bytes | None) -> None:
    """Raise BadPage unless the keys lie from `low` up to, not including, `high`, the bounds that the parent gives."""
    keys = page.keys
    first = keys[1:2] if isinstance(page, Branch) else keys[:1]
    # In a branch, keys[0] stands for `low` itself, so keys[1] must be greater than `low`.
    if first and (first[0] < low or (isinstance(page, Branch) and first[0] == low)):
        raise BadPage(
            number, PAGE_HEADER, "the first key is below the range that the parent page gives"
        )
    if high is not None and keys[-1] >= high:
        raise BadPage(
            number, PAGE_HEADER, "the last key is above the range that the parent page gives"
        )


def run_pages(header: bytes, number: int, nbytes: int, psize: int, last_page: int) -> int:
    """The number of overflow pages of a value of `nbytes`, by the header of its first page `number`. Raises BadPage."""
    if len(header) != PAGE_HEADER:
        raise BadPage(number, len(header), "the file ends within this page")
    own, _, flags, pages = _RUN.unpack(header)
    if own != number:
        raise BadPage(number, 0, f"the header gives the page number {own}")
    if flags != OVERFLOW:
        raise BadPage(number, 10, f"the flags {flags:#x} are not those of a value page")
    # More pages than needed are valid: if a transaction overwrites its own value with a shorter one, LMDB keeps the
    # whole run.
    if number + pages - 1 > last_page or pages * psize < PAGE_HEADER + nbytes:
        raise BadPage(
            number,
            12,
            f"a value of {nbytes} bytes cannot take {pages} pages",
        )
    return int(pages)
