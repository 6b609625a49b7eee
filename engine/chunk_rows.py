"""Chunks of pending entries as bytes: what a CHUNK row holds, and the columns inside a GROUP row.

A chunk is a tuple of columns of equal length, its IDs first. Packed it is a msgpack array, the number of
entries and then each column in the shortest of three forms:

    int     all values are this one (not the IDs)
    int     the IDs are a gapless run of keys from this one on (only the IDs)
    bytes   the values one after the other, little-endian, as wide as the column's typecode

In the wide form IDs are always bytes, 16 an ID, big-endian. A row carries no checksum: who stores it adds one.
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

_BY_TIME: Final = 3  # parts of a chunk of IDs and times, which are ordered by (time, ID)

assert array("I").itemsize == 4

# One packer for all: pack() with autoreset neither keeps state between calls nor gives up the interpreter lock.
_pack = msgpack.Packer(autoreset=True).pack

new_column: Callable[[Iterable[int]], Column] = partial(array, "q")


def column_bytes(column: Column) -> bytes:
    """A column as it stands in a row; a list is one of wide IDs."""
    if isinstance(column, list):
        return b"".join([id.to_bytes(WIDE_ID_BYTES, "big") for id in column])
    assert isinstance(column, array)
    if _SWAP:
        column = column[:]
        column.byteswap()
    return column.tobytes()


def column_of(raw: bytes, code: str = "q") -> array[int]:
    """The column of these bytes. ValueError if they are no whole number of values."""
    column = array(code)
    column.frombytes(raw)
    if _SWAP:
        column.byteswap()
    return column


def ids_of(raw: bytes, wide: bool) -> Column:
    """The column of IDs of these bytes. ValueError if they are no whole number of IDs."""
    if not wide:
        return column_of(raw)
    if len(raw) % WIDE_ID_BYTES:
        raise ValueError("no whole number of IDs")
    return [
        int.from_bytes(raw[at : at + WIDE_ID_BYTES], "big")
        for at in range(0, len(raw), WIDE_ID_BYTES)
    ]


def pack_chunk(chunk: Chunk) -> bytes:
    """The payload of a CHUNK row. IDs of one time, or of no time, ascend strictly."""
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
        # By time they need not ascend: then they may have the ends of a run and be none.
        and (len(row) != _BY_TIME or row[2].__class__ is int or ids == _run(first, n))
    ):
        row[1] = first
    else:
        row[1] = column_bytes(ids)
    packed: bytes = _pack(row)
    return packed


def _run(first: int, n: int) -> Column:
    return new_column(range(first, first + n))


def unpack_chunk(payload: bytes, codes: str, wide: bool) -> Chunk:
    """The chunk of a payload. codes: typecodes of its columns. ValueError if it is no such chunk."""
    row = msgpack.unpackb(payload)
    if not isinstance(row, list) or len(row) != 1 + len(codes):
        raise ValueError("not as many columns as expected")
    n, ids = row[:2]
    if not isinstance(n, int) or n < 1:
        raise ValueError("not a number of entries")
    if isinstance(ids, int):
        columns = [new_column(range(ids, ids + n))]
    else:
        columns = [ids_of(ids, wide)]
    for value, code in zip(row[2:], codes[1:]):
        columns.append(
            array(code, [value]) * n if isinstance(value, int) else column_of(value, code)
        )
    if any(len(column) != n for column in columns):
        raise ValueError("columns of different lengths")
    return tuple(columns)
