"""ID lists: many entry IDs as one value of an effect. There are two forms; the IDs decide which.

    narrow  bytes: an array of little-endian signed 64-bit keys, `((ms - 2**41) << 22) | seq`
    wide    a flat tuple (ms, seq, ms, seq, ...)

A list is narrow if each of its IDs has ms < 2**42 (until the year 2109) and seq < 2**22; one ID
that does not fit makes the whole list wide. Keys sort like IDs, and their base is a constant, so a
key means the same in a log record, in the pending entries of any group, and on another machine.
The empty list is narrow. The form is canonical: equal lists have equal packed forms.

Elsewhere an entry ID is one int, `ms << 64 | seq`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from operator import or_
from struct import Struct
from typing import Final

IdList = bytes | tuple[int, ...]

MS_BITS: Final = 42
SEQ_BITS: Final = 22
KEY_BASE: Final = 1 << 63  # key = (ms << SEQ_BITS | seq) - KEY_BASE
SEQ_MASK: Final = (1 << 64) - 1
KEY_SEQ_MASK: Final = (1 << SEQ_BITS) - 1
# Bits that are 0 in every narrow ID: those of seq from 2**22 up, and those of ms from 2**42 up.
WIDE_BITS: Final = (SEQ_MASK ^ KEY_SEQ_MASK) | (((1 << 64) - 1 ^ (1 << MS_BITS) - 1) << 64)
EMPTY: Final = b""
FEW: Final = 8

_SWAP = sys.byteorder == "big"
unpack_key: Final = Struct("<q").unpack  # (key,) of a narrow list of one ID
_unpack_key_from: Final = Struct("<q").unpack_from
pack_key: Final = Struct("<q").pack  # raises struct.error if an int is too great for a key
_cut: Final = Struct("8s").iter_unpack
_cuts: Final = [Struct("8s" * number).unpack for number in range(17)]
ID_SHIFT: Final = 64 - SEQ_BITS  # shifts a narrow ID so that its ms lies where the key has it

assert array("q").itemsize == 8


def is_narrow(id: int) -> bool:
    """Whether an ID has a key."""
    return not id & WIDE_BITS


def key_of(id: int) -> int:
    """The key of an ID for which `is_narrow` holds."""
    return (id >> ID_SHIFT | id & KEY_SEQ_MASK) - KEY_BASE


def id_of(key: int) -> int:
    """The ID of a key."""
    key += KEY_BASE
    return key >> SEQ_BITS << 64 | key & KEY_SEQ_MASK


def pack(ids: Sequence[int]) -> IdList:
    """The ID list of these IDs, in their order."""
    number = len(ids)
    if number > FEW and ids[-1] - ids[0] == number - 1 and not (ids[0] | ids[-1]) & WIDE_BITS:
        # The first and last ID suggest a gapless run, as entries added together have. If it is one, pack it without
        # work per ID.
        if ids == list(range(ids[0], ids[-1] + 1)):
            return pack_run(ids[0] >> 64, ids[0] & SEQ_MASK, number)
    if reduce(or_, ids, 0) & WIDE_BITS:
        return tuple(chain.from_iterable((id >> 64, id & SEQ_MASK) for id in ids))
    return from_keys(array("q", [(id >> ID_SHIFT | id & KEY_SEQ_MASK) - KEY_BASE for id in ids]))


def pack_one(id: int) -> IdList:
    """The list of one ID."""
    if id & WIDE_BITS:
        return id >> 64, id & SEQ_MASK
    return pack_key((id >> ID_SHIFT | id & KEY_SEQ_MASK) - KEY_BASE)


def pack_run(ms: int, seq: int, count: int) -> IdList:
    """The IDs ms-seq, ms-(seq+1), ... of a gapless run of `count` within one millisecond."""
    if count and (ms >> MS_BITS or (seq + count - 1) >> SEQ_BITS):
        return tuple(chain.from_iterable((ms, seq + i) for i in range(count)))
    first = (ms << SEQ_BITS | seq) - KEY_BASE if count else 0
    if count == 1:
        return first.to_bytes(8, "little", signed=True)
    return from_keys(array("q", range(first, first + count)))


def unpack(ids: IdList) -> list[int]:
    """The IDs of a list, in its order."""
    if isinstance(ids, bytes):
        if len(ids) == 8:
            return [id_of(int.from_bytes(ids, "little", signed=True))]
        return [
            key >> SEQ_BITS << 64 | key & KEY_SEQ_MASK for key in map(KEY_BASE.__add__, keys(ids))
        ]
    return [ms << 64 | seq for ms, seq in zip(ids[::2], ids[1::2])]


def pairs(ids: IdList) -> list[tuple[int, int]]:
    """(ms, seq) of each ID of a list, in its order."""
    if isinstance(ids, bytes):
        return [(key >> SEQ_BITS, key & KEY_SEQ_MASK) for key in map(KEY_BASE.__add__, keys(ids))]
    return list(zip(ids[::2], ids[1::2]))


def texts(ids: IdList) -> list[bytes]:
    """The IDs as text, `ms-seq`, in the list's order."""
    return [b"%d-%d" % pair for pair in pairs(ids)]


def count(ids: IdList) -> int:
    """The number of IDs in a list."""
    return len(ids) >> 3 if isinstance(ids, bytes) else len(ids) >> 1


def last_pair(ids: IdList) -> tuple[int, int]:
    """(ms, seq) of the last ID of a list, which must not be empty."""
    if ids.__class__ is bytes:
        key: int = _unpack_key_from(ids, -8)[0]
        return divmod(key + KEY_BASE, 1 << SEQ_BITS)
    return ids[-2], ids[-1]


def keys(ids: bytes) -> array[int]:
    """The keys of a narrow list."""
    column = array("q", ids)
    if _SWAP:
        column.byteswap()
    return column


def singles(ids: bytes) -> Sequence[bytes]:
    """A narrow list split into narrow lists of one ID each."""
    number = len(ids) >> 3
    return _cuts[number](ids) if number < len(_cuts) else [one for (one,) in _cut(ids)]


def last_id(ids: IdList) -> int:
    """The last ID of a list, which must not be empty."""
    if ids.__class__ is bytes:
        key: int = unpack_key(ids[-8:])[0] + KEY_BASE
        return key >> SEQ_BITS << 64 | key & KEY_SEQ_MASK
    return ids[-2] << 64 | ids[-1]


def from_keys(column: array[int]) -> bytes:
    """The narrow list of a column of keys. Does not change the column."""
    if _SWAP:
        column = column[:]
        column.byteswap()
    return column.tobytes()
