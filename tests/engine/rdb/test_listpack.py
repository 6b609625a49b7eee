"""Listpacks: elements and nodes."""

from __future__ import annotations

import random

import pytest

from tidelog.engine.rdb import listpack as listpacks
from tidelog.engine.rdb.listpack import (
    END,
    HEADER,
    elements,
    integer,
    read_node,
    text,
    write_columns,
    write_node,
)
from tidelog.engine.streams import listpack as sizes
from tidelog.engine.streams.columns import EntryRow

EDGES = [
    *(edge + d for p in (0, 7, 12, 15, 23, 31, 63) for edge in (1 << p, -(1 << p)) for d in (-1, 0, 1)),
]  # fmt: skip
INTEGERS = sorted({each for each in EDGES if -(1 << 63) <= each < 1 << 63})
TEXTS = [b"", b"-", b"00", b"+1", b"-0", b"9" * 19, b"9" * 20, b"9223372036854775808"]
LENGTHS = (1, 63, 64, 65, 127, 128, 4094, 4095, 4096, 16382, 16383, 2097151)


def listpack(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return HEADER.pack(HEADER.size + len(body) + 1, len(parts)) + body + bytes((END,))


@pytest.mark.parametrize("value", INTEGERS)
def test_integers(value: int) -> None:
    data = integer(value)
    assert len(data) == sizes.int_size(value)
    assert text(b"%d" % value) == data
    assert elements(listpack(data, b"\x01\x01")) == [value, 1]


@pytest.mark.parametrize("value", [*TEXTS, *(b"x" * length for length in LENGTHS)], ids=len)
def test_strings(value: bytes) -> None:
    data = text(value)
    assert len(data) == sizes.text_size(len(value))
    assert elements(listpack(data, b"\x01\x01")) == [value, 1]


def a_node(r: random.Random) -> tuple[list[int], list[EntryRow], int]:
    count = r.randrange(1, 40)
    span = r.choice((50, 1 << 70))
    ids = sorted({(1 << 66) + r.randrange(span) for _ in range(count)})
    count = len(ids)
    widths = r.choice(((1,), (2,), (1, 2, 5)))

    def word() -> bytes:
        return r.choice((b"f", b"17", b"-5", b"g" * r.randrange(90), b"%d" % r.randrange(1 << 40)))

    names = [word() for _ in range(5)]
    rows = []
    for _ in range(count):
        width = r.choice(widths)
        rows.append(tuple(each for name in names[:width] for each in (name, word())))
    return ids, rows, r.getrandbits(count) if r.random() < 0.5 else 0


def test_nodes() -> None:
    r = random.Random(9)
    for _ in range(300):
        ids, rows, deleted = a_node(r)
        data = write_node(ids, rows, deleted)
        live = len(ids) - deleted.bit_count()
        assert len(data) == sizes.body_size(ids, rows) + sizes.counters_size(
            live, deleted.bit_count()
        )
        node = read_node(ids[0], data)
        assert (node.ids, node.rows, node.deleted) == (ids, rows, deleted)


def test_columns_and_rows_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    r = random.Random(3)
    for _ in range(200):
        count, width = r.randrange(1, 150), r.randrange(1, 4)
        first = r.choice((5 << 64 | 3, (1 << 64) - 1 << 64, r.getrandbits(100)))
        ids = [first + slot * r.choice((1, 1, 1 << 64)) for slot in range(count)]
        ids = sorted({each for each in ids if each < 1 << 128})
        some = [b"%d" % r.randrange(-300, 300) for _ in range(r.choice((1, 5, 500)))]
        some += [b"", b"-", b"007", b"0", b"x" * r.randrange(99), b"%d" % r.getrandbits(70)]
        fields = tuple(b"f%d" % place for place in range(width))
        values = [r.choice(some) for _ in range(len(ids) * width)]
        rows = [
            tuple(each for pair in zip(fields, values[at * width :][:width]) for each in pair)
            for at in range(len(ids))
        ]
        fast = write_columns(ids, fields, values)
        with monkeypatch.context() as patched:
            patched.setattr(listpacks, "values_of", lambda rows, fields: None)
            assert write_node(ids, rows, 0) == fast
        assert write_node(ids, rows, 0) == fast
        node = read_node(ids[0], fast)
        assert (node.ids, node.rows, node.deleted) == (ids, rows, 0)


def test_ids_wrap_as_unsigned_numbers() -> None:
    ids = [1 << 64 | (1 << 64) - 1, 2 << 64, (1 << 64) - 1 << 64 | 5]
    rows: list[EntryRow] = [(b"f", b"v")] * 3
    assert read_node(ids[0], write_node(ids, rows, 0)).ids == ids


def test_every_changed_byte_is_an_error_or_another_node() -> None:
    """No exception but ValueError, whatever the bytes."""
    r = random.Random(2)
    ids, rows, deleted = a_node(r)
    data = write_node(ids, rows, deleted)
    for at in range(len(data)):
        for change in (1, 0x80, 0xFF, r.randrange(1, 256)):
            changed = bytearray(data)
            changed[at] ^= change
            try:
                read_node(ids[0], bytes(changed))
            except ValueError as error:
                assert str(error)
    for at in range(len(data)):
        with pytest.raises(ValueError):
            read_node(ids[0], data[:at])


# fmt: off
@pytest.mark.parametrize(("parts", "reason"), [
    ((), "not those of entries"),
    ((1, 0), "not those of entries"),
    ((1, 0, 0, 0), "0 fields"),
    ((-1, 0, 1, b"f", 0), "-1 entries"),
    ((1, 0, 1, b"f", 7), "does not end"),
    ((0, 0, 9, b"f", 0), "9 fields"),
    ((2, 0, 1, b"f", 0, 2, 0, 0, b"v", 4), "states 2 entries and 0 deleted ones, but has 1 and 0"),
    ((1, 0, 1, b"f", 0, 2, 0, 0, b"v", 5), "length of an entry"),
    ((1, 0, 1, b"f", 0, 8, 0, 0, b"v", 4), "flags 8"),
    ((1, 0, 1, b"f", 0, 0, 0, 0, 99, b"g", b"v", 6), "99 fields"),
    ((1, 0, 1, b"f", 0, 0, 0, 0, 0, 4), "0 fields"),
    ((1, 0, 1, b"f", 0, 2, b"x", 0, b"v", 4), "not those of entries"),
])
# fmt: on
def test_nodes_that_lie(parts: tuple[int | bytes, ...], reason: str) -> None:
    data = listpack(*(integer(p) if isinstance(p, int) else text(p) for p in parts))
    with pytest.raises(ValueError, match=reason):
        read_node(1 << 64, data)


# fmt: off
@pytest.mark.parametrize(("data", "reason"), [
    (b"", "too short"),
    (b"\x07\x00\x00\x00\x00\x00", "too short"),
    (b"\x09\x00\x00\x00\x00\x00\xff", "states 9 bytes, but has 7"),
    (b"\x07\x00\x00\x00\x05\x00\xff", "states 5 elements, but has 0"),
    (b"\x07\x00\x00\x00\x00\x00\x00", "do not end"),
    (b"\x08\x00\x00\x00\x01\x00\xf5\xff", "begins no element"),
    (b"\x08\x00\x00\x00\x01\x00\xbf\xff", "do not end"),
    (b"\x0c\x00\x00\x00\x01\x00\xf0\xff\xff\xff\x7f\xff", "do not end"),
])
# fmt: on
def test_listpacks_that_lie(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        elements(data)
