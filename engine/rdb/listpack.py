"""Listpacks: the bytes of one stream node, read and written. engine.streams.listpack describes and sizes them.

    header   bytes u32 | elements u16 (65535: too many to count), little-endian
    element  0nnnnnnn                      an integer from 0 to 127
             10nnnnnn data                 a string of up to 63 bytes
             110nnnnn nnnnnnnn             an integer of 13 bits
             1110nnnn nnnnnnnn data        a string of up to 4095 bytes
             f0 u32 data                   a longer string
             f1, f2, f3, f4                an integer of 2, 3, 4 or 8 bytes, little-endian
             then the element's length once more, backwards
    end      ff

Integers become the text that they stand for, since fields and values are strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import Final

from tidelog.engine.fast_path import fast_path
from tidelog.engine.integers import INT64_MAX, read_int64
from tidelog.engine.streams.columns import EntryRow, values_of

HEADER: Final = Struct("<IH")
END: Final = 0xFF
UNCOUNTED: Final = 0xFFFF
# Of a node of Redis, whose entries are limited to a hundred by default, and to 4 KiB together. A few bytes of LZF can
# stand for half a billion elements, for which a list would take four GiB.
ELEMENTS_MAX: Final = 1 << 20
DELETED: Final = 1
SAME_FIELDS: Final = 2
_INT64: Final = 1 << 64
_SEQ: Final = _INT64 - 1
_ZERO: Final = ord("0")
_DIGITS_MAX: Final = 20

Element = bytes | int


class Node:
    """The entries of a node: IDs and rows of all slots, and the mask of those that are deleted."""

    __slots__ = ("ids", "rows", "deleted")

    def __init__(self, ids: list[int], rows: list[EntryRow], deleted: int) -> None:
        self.ids = ids
        self.rows = rows
        self.deleted = deleted


def elements(data: bytes) -> list[Element]:
    """The elements of a listpack. Raises ValueError."""
    if len(data) < HEADER.size + 1:
        raise ValueError(f"a listpack of {len(data)} bytes is too short")
    size, count = HEADER.unpack_from(data)
    if size != len(data):
        raise ValueError(f"the listpack states {size} bytes, but has {len(data)}")
    if size > _ELEMENT_BYTES_MIN * ELEMENTS_MAX:
        _check_count(data)
    out: list[Element] = []
    add = out.append
    at = HEADER.size
    end = len(data) - 1
    try:
        while at < end:
            head = data[at]
            if head < 0x80:
                add(head)
                at += 2
                continue
            if head < 0xC0:
                stop = at + 1 + (head & 0x3F)
                add(data[at + 1 : stop])
                at = stop + 1
                continue
            if head < 0xE0:
                value = (head & 0x1F) << 8 | data[at + 1]
                add(value - 0x2000 if value & 0x1000 else value)
                at += 3
                continue
            if head < 0xF0:
                length = (head & 0x0F) << 8 | data[at + 1]
                start = at + 2
            elif head == 0xF0:
                length = int.from_bytes(data[at + 1 : at + 5], "little")
                start = at + 5
            elif head <= 0xF4:
                stop = at + 1 + _INTEGER_BYTES[head - 0xF1]
                add(int.from_bytes(data[at + 1 : stop], "little", signed=True))
                at = stop + 1
                continue
            else:
                raise ValueError(f"byte {at} of the listpack, {head:02x}, begins no element")
            stop = start + length
            if stop > end:
                break
            add(data[start:stop])
            at = stop + len(backlen(stop - at))
    except IndexError:
        at = end + 1
    if at != end or data[end] != END:
        raise ValueError("the elements of the listpack do not end where it ends")
    if count not in (len(out), UNCOUNTED):
        raise ValueError(f"the listpack states {count} elements, but has {len(out)}")
    return out


_INTEGER_BYTES: Final = (2, 3, 4, 8)
_ELEMENT_BYTES_MIN: Final = 2


def _check_count(data: bytes) -> None:
    """Raise ValueError if a listpack has more than ELEMENTS_MAX elements. Keeps none of them."""
    at, end, count = HEADER.size, len(data) - 1, 0
    while at < end:
        at += _size_at(data, at)
        count += 1
        if count > ELEMENTS_MAX:
            raise ValueError(
                f"it has more than {ELEMENTS_MAX} elements, too many to be read at once"
            )


def _size_at(data: bytes, at: int) -> int:
    """The bytes of the element at this place, its length behind it included."""
    head = data[at]
    if head < 0x80:
        return 2
    if head < 0xC0:
        size = 1 + (head & 0x3F)
    elif head < 0xE0:
        size = 2
    elif head < 0xF0:
        size = 2 + ((head & 0x0F) << 8 | int.from_bytes(data[at + 1 : at + 2], "little"))
    elif head == 0xF0:
        size = 5 + int.from_bytes(data[at + 1 : at + 5], "little")
    else:
        size = 1 + (_INTEGER_BYTES[head - 0xF1] if head <= 0xF4 else 0)
    return size + len(backlen(size))


def read_node(first: int, data: bytes) -> Node:
    """The node whose key is the ID `first`. Raises ValueError."""
    try:
        return _read_node(first, elements(data))
    except (IndexError, TypeError):
        raise ValueError("the elements of the node are not those of entries") from None


def _read_node(first: int, every: list[Element]) -> Node:
    live, gone, width = _number(every[0]), _number(every[1]), _number(every[2])
    if live < 0 or gone < 0 or not 0 < width <= len(every):
        raise ValueError(f"the node states {live} entries, {gone} deleted ones and {width} fields")
    fields = [_text(each) for each in every[3 : 3 + width]]
    if every[3 + width] != 0:
        raise ValueError("the node's list of fields does not end")
    node = _alike(first, every, 4 + width, fields) or _one_by_one(first, every, 4 + width, fields)
    found = node.deleted.bit_count()
    if (len(node.ids) - found, found) != (live, gone):
        raise ValueError(
            f"the node states {live} entries and {gone} deleted ones, but has {len(node.ids) - found} and {found}"
        )
    return node


def _alike(first: int, every: list[Element], start: int, fields: list[bytes]) -> Node | None:
    """The entries if none is deleted and all have the node's fields: read column by column. None otherwise."""
    width = len(fields)
    stride = width + 4
    count, rest = divmod(len(every) - start, stride)
    if rest or not count:
        return None
    if every[start::stride] != [SAME_FIELDS] * count:
        return None
    if every[start + stride - 1 :: stride] != [width + 3] * count:
        return None
    columns: list[Sequence[bytes] | repeat[bytes]] = []
    for place, field in enumerate(fields, start + 3):
        values = every[place::stride]
        columns.append(repeat(field))
        columns.append([b"%d" % v if v.__class__ is int else v for v in values])  # type: ignore[misc]
    rows: list[EntryRow] = list(zip(*columns))
    base, seq = first >> 64, first & _INT64 - 1
    deltas = zip(every[start + 1 :: stride], every[start + 2 :: stride])
    ids = [(base + ms) % _INT64 << 64 | (seq + more) % _INT64 for ms, more in deltas]  # type: ignore[operator]
    return Node(ids, rows, 0)


def _one_by_one(first: int, every: list[Element], at: int, fields: list[bytes]) -> Node:
    """The entries of any node."""
    node = Node([], [], 0)
    base, seq = first >> 64, first & _INT64 - 1
    width = len(fields)
    while at < len(every):
        begin = at
        flags, ms, more = _number(every[at]), _number(every[at + 1]), _number(every[at + 2])
        if flags & ~(DELETED | SAME_FIELDS):
            raise ValueError(f"an entry of the node has the flags {flags}")
        at += 3
        row: list[bytes] = []
        if flags & SAME_FIELDS:
            for field, value in zip(fields, every[at : at + width], strict=True):
                row += field, _text(value)
            at += width
        else:
            count = _number(every[at])
            at += 1
            if not 0 < count <= len(every):
                raise ValueError(f"an entry of the node has {count} fields")
            row = [_text(each) for each in every[at : at + 2 * count]]
            if len(row) != 2 * count:
                raise IndexError
            at += 2 * count
        if _number(every[at]) != at - begin:
            raise ValueError("the length of an entry of the node is wrong")
        at += 1
        if flags & DELETED:
            node.deleted |= 1 << len(node.ids)
        node.ids.append((base + ms) % _INT64 << 64 | (seq + more) % _INT64)
        node.rows.append(tuple(row))
    return node


def _number(element: Element) -> int:
    if isinstance(element, int):
        return element
    raise TypeError


def _text(element: Element) -> bytes:
    return b"%d" % element if isinstance(element, int) else element


# --- writing


def write_node(ids: Sequence[int], rows: Sequence[EntryRow], deleted: int) -> bytes:
    """The listpack of a node; its key is the first ID."""
    fields = rows[0][::2]
    values = None if deleted else values_of(rows, fields)
    if values is not None:
        return write_columns(ids, fields, values)
    out = _begun(len(ids), deleted.bit_count(), fields)
    out += _row_by_row(ids, rows, deleted, fields)
    return _whole(out)


@fast_path(
    of="engine.rdb.listpack:_row_by_row",
    held_by="tests/engine/rdb/test_listpack.py::test_columns_and_rows_give_the_same_bytes",
)
def write_columns(ids: Sequence[int], fields: EntryRow, values: Sequence[bytes]) -> bytes:
    """The listpack of a node without deleted entries, all with these fields. `values`: entry after entry."""
    out = _begun(len(ids), 0, fields)
    out += _by_columns(ids, values, len(fields))
    return _whole(out)


def _begun(count: int, gone: int, fields: EntryRow) -> list[bytes]:
    """The elements in front of the entries."""
    return [
        *(integer(count - gone), integer(gone), integer(len(fields))),
        *map(text, fields),
        integer(0),
    ]


def _whole(out: list[bytes]) -> bytes:
    body = b"".join(out)
    return HEADER.pack(HEADER.size + len(body) + 1, min(len(out), UNCOUNTED)) + body + b"\xff"


def _deltas(ids: Sequence[int]) -> tuple[list[bytes], list[bytes]]:
    """The elements of the differences of ms and seq from the first ID."""
    first, count = ids[0], len(ids)
    base, seq = first >> 64, first & _SEQ
    if ids[-1] - first == count - 1 and ids[-1] >> 64 == base and count <= _RUN_MAX:
        return [integer(0)] * count, _RUN[:count]  # one millisecond, one after the other
    ms = [(entry_id >> 64) - base for entry_id in ids]
    seqs = [(entry_id & _SEQ) - seq for entry_id in ids]
    return list(map(integer, map(_wrapped, ms))), list(map(integer, map(_wrapped, seqs)))


def _by_columns(ids: Sequence[int], values: Sequence[bytes], width: int) -> list[bytes]:
    """The elements of entries that have the node's fields, none of them deleted."""
    count, stride = len(ids), width + 4
    out = [_FLAGS[SAME_FIELDS]] * (count * stride)
    out[1::stride], out[2::stride] = _deltas(ids)
    for place in range(width):
        out[3 + place :: stride] = _texts(values[place::width])
    out[stride - 1 :: stride] = [integer(width + 3)] * count
    return out


def _row_by_row(
    ids: Sequence[int], rows: Sequence[EntryRow], deleted: int, fields: EntryRow
) -> list[bytes]:
    """The elements of any entries."""
    out: list[bytes] = []
    for slot, (row, ms, seq) in enumerate(zip(rows, *_deltas(ids), strict=True)):
        flags = deleted >> slot & 1
        if row[::2] == fields:
            out += _FLAGS[flags | SAME_FIELDS], ms, seq, *map(text, row[1::2])
            out.append(integer(len(fields) + 3))
        else:
            out += _FLAGS[flags], ms, seq, integer(len(row) >> 1), *map(text, row)
            out.append(integer(len(row) + 4))
    return out


def _wrapped(value: int) -> int:
    """The difference of two unsigned 64-bit numbers, as a signed one."""
    value %= _INT64
    return value if value <= INT64_MAX else value - _INT64


def _texts(column: Sequence[bytes]) -> Iterable[bytes]:
    """The elements of a field's values. Values that come again and again are made once."""
    distinct = set(column)
    if 2 * len(distinct) > len(column):
        return map(text, column)
    made = {value: text(value) for value in distinct}
    return map(made.__getitem__, column)


def _integer(value: int) -> bytes:
    # In one step each: head, number, and the length of both behind it.
    if 0 <= value <= 127:
        return bytes((value, 1))
    if -0x1000 <= value < 0x1000:
        return bytes((0xC0 | (value >> 8 & 0x1F), value & 0xFF, 2))
    if -0x8000 <= value < 0x8000:
        return _INT16(0xF1, value, 3)
    if -0x800000 <= value < 0x800000:
        return (0xF2 | (value & 0xFFFFFF) << 8 | 4 << 32).to_bytes(5, "little")
    if -0x80000000 <= value < 0x80000000:
        return _INT32(0xF3, value, 5)
    return _INT64_PACK(0xF4, value, 9)


_INT16: Final = Struct("<BhB").pack
_INT32: Final = Struct("<BiB").pack
_INT64_PACK: Final = Struct("<BqB").pack


@lru_cache(maxsize=65536)  # differences of IDs and counters repeat from node to node
def integer(value: int) -> bytes:
    """An integer element."""
    return _integer(value)


def text(value: bytes) -> bytes:
    """A string element, or an integer element for a canonical integer, as Redis stores it."""
    length = len(value)
    if length <= _DIGITS_MAX and (value.isdigit() or value[:1] == b"-"):
        if length < _DIGITS_MAX - 1 and value[0] > _ZERO:  # digits alone, and no zero in front
            return integer(int(value)) if length <= _CACHED_DIGITS else _integer(int(value))
        number = read_int64(value)
        if number is not None:
            return _integer(number)
    if length < _SHORT_MAX:
        head, tail = _SHORT[length]
        return head + value + tail
    if length < 4096:
        whole = bytes((0xE0 | length >> 8, length & 0xFF)) + value
    else:
        whole = b"\xf0" + length.to_bytes(4, "little") + value
    return whole + backlen(len(whole))


_CACHED_DIGITS: Final = 4  # numbers of so few digits come again and again
_SHORT_MAX: Final = 64
_SHORT: Final = [(bytes((0x80 | n,)), bytes((n + 1,))) for n in range(_SHORT_MAX)]
_BACKLEN_LIMITS: Final = (128, 16383, 2097151, 268435455)


def backlen(length: int) -> bytes:
    """The length of an element, as it stands behind it."""
    if length < 128:
        return bytes((length,))
    shifts = 1
    while shifts < 4 and length >= _BACKLEN_LIMITS[shifts]:
        shifts += 1
    return bytes(
        (length >> 7 * shifts, *(length >> 7 * s & 127 | 128 for s in reversed(range(shifts))))
    )


_FLAGS: Final = [integer(flags) for flags in range(4)]
_RUN_MAX: Final = 128
_RUN: Final = [integer(seq) for seq in range(_RUN_MAX)]
