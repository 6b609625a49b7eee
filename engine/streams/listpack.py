"""Listpack sizes: how many bytes a stream node takes in Redis 7. This module only counts; it encodes nothing.

Redis compares this size with `stream-node-max-bytes`, so it must be exact for node boundaries, approximate trims and
radix-tree-keys to agree with Redis. A node's listpack:

    header 6 | count | deleted | numfields | field... | 0 | entry... | EOF 1         master entry, then entries
    entry    flags | ms diff | seq diff | [numfields] | [field] value ... | lp-count

The master entry has the fields of the node's first entry. An entry with the same fields omits numfields and fields.
Diffs are relative to the node's first ID, as signed 64-bit numbers. An element is its encoding, followed by the
encoding's length, stored backwards (backlen). A string that is a canonical integer is stored as an integer. `count` and
`deleted` change with deletions, so sizes are computed as a *body* plus these two counters. Source: Redis 7.0
listpack.c, t_stream.c.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import compress
from typing import Final

from tidelog.engine.integers import read_int64
from tidelog.engine.streams.columns import EntryRow, values_of

HEADER_AND_EOF: Final = 7
FLAGS: Final = 2  # a small integer, 0 or 2

_INT64: Final = 1 << 64


def int_size(value: int) -> int:
    """Bytes of an integer element, backlen included."""
    if 0 <= value <= 127:
        return 2
    if -4096 <= value <= 4095:
        return 3
    if -32768 <= value <= 32767:
        return 4
    if -8388608 <= value <= 8388607:
        return 5
    if -2147483648 <= value <= 2147483647:
        return 6
    return 10


def text_size(length: int) -> int:
    """Bytes of a string element that is not an integer, backlen included."""
    encoded = length + (1 if length < 64 else 2 if length < 4096 else 5)
    if encoded <= 127:
        return encoded + 1
    if encoded < 16383:
        return encoded + 2
    if encoded < 2097151:
        return encoded + 3
    return encoded + (4 if encoded < 268435455 else 5)


def size(value: bytes) -> int:
    """Bytes of a field or value as an element: an integer element if it is a canonical integer, else a string."""
    if len(value) <= 20:
        number = read_int64(value)
        if number is not None:
            return int_size(number)
    return text_size(len(value))


_TEXT_SIZES: Final = [text_size(length) for length in range(4096)]

# Indexed by the length of a digit string without a leading zero. Numbers of one length have at most two sizes: (the
# greatest number of the smaller size, the smaller size, the larger size). A number above int64 is stored as text.
_DIGITS_MAX: Final = 20
_DIGITS: Final = [
    (b"", 0, 0),
    *(
        (b"%d" % greatest, int_size(greatest), int_size(min(greatest + 1, 10**18)))
        for greatest in (9, 99, 127, 4095, 32767, 999999, 8388607, 99999999, 999999999, 2147483647)
    ),
    *((b"9" * length, 10, 10) for length in range(11, 19)),
    (b"%d" % (2**63 - 1), 10, text_size(19)),
    (b"", text_size(20), text_size(20)),
]

_SMALL: Final = 4096  # a diff from 0 to 127 takes 2 bytes; any other from -4096 to 4095 takes 3
# from each of these values on, a diff takes one byte more
_STEPS: Final = (128, 4096, 32768, 8388608)


def sizes(values: Sequence[bytes], lengths: Sequence[int], more: int = 0) -> list[int]:
    """`size` of each value, plus `more`. lengths: the length of each value.

    Several times faster than `size` for many values: take all as strings first, then correct the integers.
    """
    try:
        out = list(map(_text_sizes(more).__getitem__, lengths))
    except IndexError:
        out = [more + text_size(length) for length in lengths]
    if min(lengths, default=0) > _DIGITS_MAX:
        return out
    for at in compress(range(len(values)), map(bytes.isdigit, values)):
        out[at] = more + size(values[at])
    if b"-" in b"".join(values):
        for at, value in enumerate(values):
            if value[:1] == b"-":
                out[at] = more + size(value)
    return out


@lru_cache(maxsize=4)  # few different values of `more` occur
def _text_sizes(more: int) -> list[int]:
    return [more + size for size in _TEXT_SIZES] if more else _TEXT_SIZES


def diff_size(value: int, base: int) -> int:
    """Bytes of the difference of two unsigned 64-bit numbers, stored as a signed 64-bit number."""
    diff = (value - base) % _INT64
    return int_size(diff if diff < _INT64 >> 1 else diff - _INT64)


def counters_size(live: int, deleted: int) -> int:
    """Bytes of the master entry's `count` and `deleted`."""
    return int_size(live) + int_size(deleted)


def master_size(fields: Sequence[bytes]) -> int:
    """Bytes of a node without entries and without the two counters."""
    return HEADER_AND_EOF + int_size(len(fields)) + sum(map(size, fields)) + int_size(0)


def entry_sizes(
    ids: Sequence[int], rows: Sequence[EntryRow], first_id: int, fields: EntryRow
) -> list[int]:
    """Bytes of each entry (ascending IDs) of a node that starts with `first_id` and whose first row has `fields`."""
    width = len(fields)
    own = FLAGS + int_size(width + 3)
    totals: list[int]
    overhead: list[int]
    alike = values_of(rows, fields)
    if alike is not None:
        values = sizes(alike, list(map(len, alike)))
        totals = values if width == 1 else [sum(c) for c in zip(*[iter(values)] * width)]
        overhead = [own] * len(rows)
    else:
        totals, overhead = [], []
        for row in rows:
            if row[::2] == fields:
                totals.append(sum(map(size, row[1::2])))
                overhead.append(own)
            else:
                count = len(row) >> 1
                totals.append(sum(map(size, row)) + int_size(count))
                overhead.append(FLAGS + int_size(2 * count + 4))
    return list(map(sum, zip(totals, overhead, _diff_sizes(ids, first_id))))


def _diff_sizes(ids: Sequence[int], first_id: int) -> list[int]:
    """Bytes of the ms and seq diffs together, for each of these ascending IDs."""
    mask = _INT64 - 1
    ms0, seq0 = first_id >> 64, first_id & mask
    if ids[0] >> 64 == ids[-1] >> 64:
        ms = diff_size(ids[0] >> 64, ms0)
        if 0 <= (ids[0] & mask) - seq0 and (ids[-1] & mask) - seq0 <= 127:
            return [ms + 2] * len(ids)
        return [ms + diff_size(entry_id & mask, seq0) for entry_id in ids]
    return [diff_size(entry_id >> 64, ms0) + diff_size(entry_id & mask, seq0) for entry_id in ids]


def entries_size(
    ids: Sequence[int], rows: Sequence[EntryRow], first_id: int, fields: EntryRow
) -> int:
    """The sum of `entry_sizes`. Several times faster if all rows have the same fields."""
    count = len(rows)
    values = values_of(rows, fields)
    if values is None:
        return sum(entry_sizes(ids, rows, first_id, fields))
    own = FLAGS + int_size(len(fields) + 3)
    return _total(values) + own * count + _diffs_total(ids, first_id)


def _total(values: Sequence[bytes]) -> int:
    """The sum of `size` of each value: take all as strings first, then correct the integers. No Python loop."""
    lengths = list(map(len, values))
    try:
        total = sum(map(_TEXT_SIZES.__getitem__, lengths))
    except IndexError:
        total = sum(map(text_size, lengths))
    if min(lengths) > _DIGITS_MAX:
        return total
    if max(lengths) > _DIGITS_MAX:
        values = [value for value in values if len(value) <= _DIGITS_MAX]
    digits = sorted(filter(bytes.isdigit, values), key=len)
    at = 0
    while at < len(digits):
        length = len(digits[at])
        stop = bisect_right(digits, length, at, key=len)
        total += _less_as_integers(digits[at:stop], length)
        at = stop
    if b"-" in b"".join(values):
        for value in values:
            if value[:1] == b"-":
                total += size(value) - _TEXT_SIZES[len(value)]
    return total


def _less_as_integers(digits: Sequence[bytes], length: int) -> int:
    """The correction (<= 0), in bytes, for digit strings of one length that are stored as integers.

    Strings of one length compare like their numbers. Those with a leading zero stay strings; they sort first.
    """
    greatest, small, large = _DIGITS[length]
    texts = sum(map(b"1".__gt__, digits)) if length > 1 and min(digits) < b"1" else 0
    less = (large - _TEXT_SIZES[length]) * (len(digits) - texts)
    if small != large:
        less -= (large - small) * (sum(map(greatest.__ge__, digits)) - texts)
    return less


def _diffs_total(ids: Sequence[int], first_id: int) -> int:
    """Bytes of all ms and seq diffs of ascending IDs >= `first_id`."""
    ms0 = first_id >> 64
    count = len(ids)
    span = (ids[-1] >> 64) - ms0
    if span <= 127:
        total = 2 * count
    elif span <= 2147483647:
        total = 2 * count
        for limit in _STEPS:
            if span >= limit:
                total += count - bisect_left(ids, (ms0 + limit) << 64)
    else:
        total = sum(diff_size(entry_id >> 64, ms0) for entry_id in ids)
    return total + _seq_diffs_total(ids, first_id, span)


def _seq_diffs_total(ids: Sequence[int], first_id: int, span: int) -> int:
    """Bytes of all seq diffs of ascending IDs that span `span` + 1 milliseconds.

    Fast path: a few runs of consecutive IDs, each in one millisecond. The two ends of such a run give its size if its
    diffs are small.
    """
    mask, count = _INT64 - 1, len(ids)
    seq0 = first_id & mask
    total = start = 0
    while start < count and span * 8 < count:
        first = ids[start]
        stop = bisect_right(ids, first | mask, start)
        low = (first & mask) - seq0
        high = low + stop - start
        if ids[stop - 1] - first != stop - 1 - start or low < -_SMALL or high > _SMALL:
            break
        total += 3 * (stop - start) - max(0, min(high, 128) - max(low, 0))
        start = stop
    seqs = [entry_id & mask for entry_id in ids[start:]]
    if not seqs or (min(seqs) >= seq0 and max(seqs) <= seq0 + 127):
        return total + 2 * len(seqs)
    return total + sum(diff_size(seq, seq0) for seq in seqs)


def body_size(ids: Sequence[int], rows: Sequence[EntryRow]) -> int:
    """Bytes of a node with these slots, deleted ones included, without the two counters."""
    fields = rows[0][::2]
    return master_size(fields) + entries_size(ids, rows, ids[0], fields)
