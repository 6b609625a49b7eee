"""Streams of every type, put together byte by byte from their layout, not by our writer.

No server that writes types 26 and 27 was at hand when this was written.
"""

from __future__ import annotations

import struct

import pytest
from tests.engine.rdb.loaded import check, put, read, stream
from tests.oracle.rewritten import stream_facts

from tidelog.engine.keys.state import State
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.file import dumped
from tidelog.engine.rdb.source import Source


def lp(*parts: bytes) -> bytes:
    """A listpack of elements that are given with their lengths behind them."""
    body = b"".join(parts)
    return struct.pack("<IH", 7 + len(body), len(parts)) + body + b"\xff"


def n(value: int) -> bytes:
    return bytes((value, 1))


def s(value: bytes) -> bytes:
    return bytes((0x80 | len(value),)) + value + bytes((len(value) + 1,))


def raw(ms: int, seq: int) -> bytes:
    return struct.pack(">QQ", ms, seq)


def ms(value: int) -> bytes:
    return struct.pack("<q", value)


def id_(ms: int, seq: int) -> int:
    return ms << 64 | seq


# Entries 5-1 (f v), 5-2 (f 9, deleted), 7-0 (g h).
NODE = lp(
    *(n(2), n(1), n(1), s(b"f"), n(0)),
    *(n(2), n(0), n(0), s(b"v"), n(4)),
    *(n(3), n(0), n(1), n(9), n(4)),
    *(n(0), n(2), b"\xdf\xff\x02", n(1), s(b"g"), s(b"h"), n(6)),
)
NODES = b"\x01" + b"\x10" + raw(5, 1) + bytes((len(NODE),)) + NODE
NODES_FACTS = {
    "entries": [(id_(5, 1), (b"f", b"v")), (id_(7, 0), (b"g", b"h"))],
    "nodes": [(id_(5, 1), id_(7, 0), 3, 0b010)],
}
T0 = 1_700_000_000_000
SEEN, ACTIVE, GIVEN = T0 + 5, T0 + 3, T0 + 2


def group(kind: int) -> bytes:
    """Group g at 7-0, which has read 3 of 4; ann has 5-1, delivered 70 times, and 5-2, which is gone; bob nothing."""
    out = b"\x01g" + b"\x07\x00" + (b"\x03" if kind >= 19 else b"")
    out += b"\x02" + raw(5, 1) + ms(GIVEN) + b"\x40\x46" + raw(5, 2) + ms(GIVEN + 1) + b"\x01"
    out += b"\x02"
    out += b"\x03ann" + ms(SEEN) + (ms(ACTIVE) if kind >= 21 else b"") + b"\x02"
    out += raw(5, 1) + raw(5, 2)
    out += b"\x03bob" + ms(SEEN + 1) + (ms(-1) if kind >= 21 else b"") + b"\x00"
    return out + (b"\x00" if kind >= 27 else b"")


def value(kind: int) -> bytes:
    out = NODES + b"\x02" + b"\x07\x00"
    if kind >= 19:
        out += b"\x05\x01" + b"\x05\x02" + b"\x04"
    out += b"\x01" + group(kind)
    if kind >= 26:
        out += b"\x41\x2c" + b"\x32"  # 300 s, 50 iids
        out += (
            b"\x02" + b"\x01p" + b"\x02" + b"\x01a\x05\x01" + b"\x01b\x07\x00" + b"\x01q" + b"\x00"
        )
        out += b"\x09" + b"\x02"
    return out


@pytest.mark.parametrize("kind", [15, 19, 21, 26, 27])
def test_types(kind: int) -> None:
    state = State()
    source = Source.of(value(kind))
    put(state, 0, b"s", kind, source)
    assert source.at_end()
    check(state)
    told = stream_facts(stream(state))
    seven = kind >= 19
    assert {name: told[name] for name in NODES_FACTS} == NODES_FACTS
    assert told["counters"] == (id_(7, 0), id_(5, 2) if seven else 0, 4 if seven else 2, 2)
    found = told["groups"][b"g"]
    assert found["position"] == (id_(7, 0), 3 if seven else 2)
    assert found["pending"] == [
        (id_(5, 1), GIVEN, b"ann", 70),
        (id_(5, 2), GIVEN + 1, b"ann", 1),
    ]
    active = {b"ann": ACTIVE, b"bob": -1} if kind >= 21 else {b"ann": SEEN, b"bob": SEEN + 1}
    assert found["consumers"] == active
    g = stream(state).groups[b"g"]
    assert [each.seen_time for each in g.listed()] == [SEEN, SEEN + 1]
    assert not stream(state).still_has(id_(5, 2))
    if kind >= 26:
        assert told["idmp"] == (300, 50)
        assert told["iids"] == [(b"p", b"a", id_(5, 1)), (b"p", b"b", id_(7, 0))]
        assert told["iids-counted"] == (9, 2)


def test_released_entries_of_type_27() -> None:
    whole = value(27)
    empty = b"\x00" * 16
    at = whole.index(b"\x03bob")
    head, tail = whole[:at], whole[at:]
    # ann keeps nothing: both entries are released, the later one first
    held = b"\x03ann" + ms(SEEN) + ms(ACTIVE) + b"\x02" + raw(5, 1) + raw(5, 2)
    assert head.endswith(held)
    head = head[: -len(held)] + held[:-33] + b"\x00"
    bob = b"\x03bob" + ms(SEEN + 1) + ms(-1) + b"\x00"
    assert tail.startswith(bob + b"\x00")
    tail = bob + b"\x02" + raw(5, 2) + raw(5, 1) + tail[len(bob) + 1 :]
    state = State()
    put(state, 0, b"s", 27, Source.of(head + tail))
    check(state)
    found = stream_facts(stream(state))["groups"][b"g"]
    assert found["nacked"] == [(id_(5, 2), 1), (id_(5, 1), 70)]
    assert found["pending"] == []
    assert empty not in head


def test_a_file() -> None:
    """Header, facts, databases, expiries, and values of other types in between."""
    body = b"REDIS0011"
    body += b"\xfa\x09redis-ver\x057.2.0" + b"\xfa\x0aredis-bits\xc0\x40" + b"\xf5\x04code"
    body += b"\xfe\x00\xfb\x04\x01"
    body += b"\x00\x01x\xc1\xd2\x04"  # the string 1234
    body += b"\xfc" + ms(T0) + b"\xf8\x05" + b"\x00\x01y\x01Y"
    body += b"\x12\x04list\x01\x02\x03abc"
    body += b"\xf9\x07\x15\x01s" + value(21)
    body += (
        b"\xfe\x03\xfd" + struct.pack("<I", T0 // 1000) + b"\x00\x01z\xc3\x05\x0b\x00z\xe0\x01\x00"
    )
    body += b"\xff"
    state = read(Source.of(body + crc64(body).to_bytes(8, "little")))
    zero, three = state.databases[0], state.databases[3]
    assert dict(zero.keys.items()) == {b"x": b"1234", b"y": b"Y", b"s": stream(state)}
    assert (zero.expires.get(b"y"), zero.expires.get(b"x")) == (T0, None)
    assert (three.keys[b"z"], three.expires.get(b"z")) == (b"z" * 11, T0)
    assert read(Source.of(body + bytes(8))).databases[3].keys[b"z"] == b"z" * 11


def test_a_payload_of_dump() -> None:
    payload = b"\x00\x02hi\x0a\x00"
    payload += crc64(payload).to_bytes(8, "little")
    kind, source = dumped(payload)
    assert (kind, source.string()) == (0, b"hi")


def test_the_checksum_is_that_of_redis() -> None:
    assert crc64(b"123456789") == 0xE9C6D914C4B8D9CA
    assert crc64(b"6789", crc64(b"12345")) == 0xE9C6D914C4B8D9CA
