"""Chunks of pending entries as bytes: the payload of a CHUNK row, and the columns inside a GROUP row.

A chunk is a tuple of columns of equal length, its IDs first. Packed, it is a msgpack array: the number of
entries, and then each column in the shortest of three forms:

    int     all values are this one (not the IDs)
    int     the IDs are a gapless run of keys from this one on (only the IDs)
    bytes   all values concatenated, little-endian, as wide as the column's typecode

In the wide form IDs are always bytes, 16 per ID, big-endian. A row has no checksum; the store adds one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, MutableSequence
from functools import partial
from typing import Any, Final

import msgpack

Column = MutableSequence[int]
Chunk = tuple[Column, ...]

WIDE_ID_BYTES: Final = 16
_SWAP: Final = sys.byteorder == "big"

_BY_TIME: Final = 3  # fields of a packed chunk that is sorted by delivery time

assert array("I").itemsize == 4

# All threads share one packer. This is safe, because with autoreset pack() keeps no state between calls and never
# releases the interpreter lock.
_pack = msgpack.Packer(autoreset=True).pack

new_column: Callable[[Iterable[int]], Column] = partial(array, "q")


def column_bytes(column: Column) -> bytes:
    """The bytes of a column in a row; a list is a column of wide IDs."""
    if isinstance(column, list):
        return b"".join([id.to_bytes(WIDE_ID_BYTES, "big") for id in column])
    assert isinstance(column, array)
    if _SWAP:
        column = column[:]
        column.byteswap()
    return column.tobytes()


def column_of(raw: bytes, code: str = "q") -> array[int]:
    """The column from its bytes. Raises ValueError if they are not a whole number of values."""
    column = array(code)
    column.frombytes(raw)
    if _SWAP:
        column.byteswap()
    return column


def ids_of(raw: bytes, wide: bool) -> Column:
    """The column of IDs from its bytes. Raises ValueError if they are not a whole number of IDs."""
    if not wide:
        return column_of(raw)
    if len(raw) % WIDE_ID_BYTES:
        raise ValueError("an incomplete ID")
    return [
        int.from_bytes(raw[at : at + WIDE_ID_BYTES], "big")
        for at in range(0, len(raw), WIDE_ID_BYTES)
    ]


def pack_chunk(chunk: Chunk) -> bytes:
    """The payload of a CHUNK row. IDs ascend strictly; in a chunk of (IDs, times), only those of equal time need to."""
    ids = chunk[0]
    n = len(ids)
    row: list[Any] = [n, None]
    for column in chunk[1:]:
        raw = column_bytes(column)
        row.append(column[0] if raw == raw[: len(raw) // n] * n else raw)
    first = ids[0]
    if (
        ids.__class__ is array
        and ids[-1] - first == n - 1
        # In the time order, IDs need not ascend. So the first and last ID can look like the ends of a run although the
        # IDs are not a run.
        and (len(row) != _BY_TIME or row[2].__class__ is int or ids == _run(first, n))
    ):
        row[1] = first
    else:
        row[1] = column_bytes(ids)
    packed: bytes = _pack(row)
    return packed


# A chunk has about a hundred entries. A row of a few bytes that claims to be a run of billions is not unpacked.
_ENTRIES_MAX: Final = 1 << 20


def _run(first: int, n: int) -> Column:
    return new_column(range(first, first + n))


def unpack_chunk(payload: bytes, codes: str, wide: bool) -> Chunk:
    """The chunk from its payload. codes: typecodes of its columns. Raises ValueError if it is not such a chunk."""
    row = msgpack.unpackb(payload)
    if not isinstance(row, list) or len(row) != 1 + len(codes):
        raise ValueError("the row has the wrong number of columns")
    n, ids = row[:2]
    if not isinstance(n, int) or not 1 <= n <= _ENTRIES_MAX:
        raise ValueError("the row's number of entries is invalid")
    if isinstance(ids, int):
        columns = [new_column(range(ids, ids + n))]
    else:
        columns = [ids_of(ids, wide)]
    for value, code in zip(row[2:], codes[1:]):
        columns.append(
            array(code, [value]) * n if isinstance(value, int) else column_of(value, code)
        )
    if any(len(column) != n for column in columns):
        raise ValueError("the row's columns have different lengths")
    return tuple(columns)
