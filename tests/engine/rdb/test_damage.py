"""Images that are cut, changed, or lie: one error that says where, and never another exception."""

from __future__ import annotations

import random

import pytest
from tests.engine.rdb.loaded import check, in_pieces, read, written
from tests.oracle.played import played

from tidelog.engine.keys.state import State
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.errors import RdbCut, RdbDamaged, RdbError, RdbUnknown
from tidelog.engine.rdb.file import RdbFile, dumped
from tidelog.engine.rdb.source import Source
from tidelog.engine.rdb.stream import read_stream
from tidelog.engine.rdb.write import RdbTarget, length, string


def image(seed: int, target: RdbTarget = RdbTarget.REDIS_8_8) -> bytes:
    source, _ = played(random.Random(seed), 30)
    return written(source.state, target)[0]


def taken(data: bytes) -> State | None:
    """The state, checked; None if the image was refused."""
    try:
        state = read(in_pieces(data, 512))
    except RdbError as error:
        assert 0 <= error.offset <= len(data)
        assert str(error) == f"byte {error.offset}: {error.reason}"
        assert "\n" not in str(error)
        return None
    check(state)
    return state


def test_an_image_that_is_cut() -> None:
    data = image(3)
    r = random.Random(1)
    for at in (*range(60), *r.sample(range(60, len(data)), 150), len(data) - 1):
        with pytest.raises(RdbDamaged) as caught:
            read(Source.of(data[:at]))
        assert isinstance(caught.value, RdbCut) or at < 9
        with pytest.raises(RdbDamaged):
            read(unsized(data[:at]))


def unsized(data: bytes) -> Source:
    """As a pipe is: its end is not known before it comes."""
    pieces = iter([data[at : at + 100] for at in range(0, len(data), 100)])
    return Source(lambda: next(pieces, b""))


def changed(data: bytes, r: random.Random) -> bytes:
    """Changed bytes behind the header, and no checksum, so that all that is behind it is reached."""
    out = bytearray(data[:-8] + bytes(8))
    for _ in range(r.choice((1, 1, 2, 5))):
        at = r.randrange(9, len(out) - 8)
        choice = r.random()
        if choice < 0.5:
            out[at] ^= 1 << r.randrange(8)
        elif choice < 0.7:
            out[at] = r.choice((0, 1, 0x3F, 0x40, 0x7F, 0x80, 0x81, 0xC0, 0xC3, 0xF0, 0xF4, 0xFF))
        elif choice < 0.85:
            del out[at : at + r.randrange(1, 9)]
        else:
            out[at:at] = out[at : at + r.randrange(1, 40)]
    return bytes(out)


def fuzz(seeds: range, each: int) -> tuple[int, int]:
    refused = 0
    for seed in seeds:
        r = random.Random(seed)
        data = image(seed, r.choice(list(RdbTarget)))
        for _ in range(each):
            refused += taken(changed(data, r)) is None
    return refused, len(seeds) * each - refused


def test_changed_bytes() -> None:
    refused, survived = fuzz(range(8), 60)
    assert refused > 100 and survived > 10, (refused, survived)


def test_every_changed_byte_fails_the_checksum_or_earlier() -> None:
    data = image(5)
    r = random.Random(2)
    for at in r.sample(range(len(data)), 200):
        wrong = bytearray(data)
        wrong[at] ^= 1 << r.randrange(8)
        with pytest.raises(RdbError):
            read(Source.of(bytes(wrong)))


def file_of(*parts: bytes) -> Source:
    body = b"REDIS0011" + b"".join(parts) + b"\xff"
    return Source.of(body + crc64(body).to_bytes(8, "little"))


HUGE = b"\x81" + b"\xff" * 8


# fmt: off
@pytest.mark.parametrize(("source", "error", "said"), [
    (Source.of(b""), RdbCut, "byte 0: 9 bytes should follow, but the data ends after 0"),
    (Source.of(b"RODIS0011"), RdbDamaged, "byte 0: an RDB file begins with REDIS and four digits"),
    (Source.of(b"REDIS00x1"), RdbDamaged, "byte 0: an RDB file begins with REDIS and four digits"),
    (Source.of(b"REDIS0005"), RdbUnknown, "byte 5: the format has version 5; .* reads 6 to 15"),
    (Source.of(b"REDIS0016"), RdbUnknown, "byte 5: the format has version 16"),
    (file_of(b"\xf0"), RdbUnknown, "byte 9: the code f0 is not known; a newer Redis"),
    (file_of(b"\x1d\x01k"), RdbUnknown, "byte 12: the value has the type 29"),
    (file_of(b"\x06\x01k"), RdbUnknown, "byte 12: the value has the type 6"),
    (file_of(b"\xfe" + HUGE), RdbDamaged, "byte 9: the image has a database 18446744073709551615"),
    (file_of(b"\x00\x01k" + HUGE), RdbDamaged, "byte 21: a string of 18446744073709551615 bytes is longer"),
    (file_of(b"\x00\x01k\x80\x3f\xff\xff\xff"), RdbCut,
     "byte 17: 1073741823 bytes should follow, but the data ends after 9"),
    (file_of(b"\x00\x01k\x82"), RdbDamaged, "byte 12: a length begins with the byte 82"),
    (file_of(b"\x00\x01k\xc4"), RdbDamaged, "byte 12: a string begins with the byte c4"),
    (file_of(b"\x00\x01k\xc3\x05\x80\x3b\x9a\xca\x00\x00a\xe0\xff\x00"), RdbDamaged,
     "byte 12: 5 compressed bytes cannot stand for 1000000000"),
    (file_of(b"\x00\x01k\xc3\x02\x05\x00a"), RdbDamaged, "byte 12: the compressed bytes do not stand for 5"),
    (file_of(b"\x01\x01k" + HUGE + b"\x01a"), RdbDamaged, "byte 23: a string begins with the byte ff"),
    (file_of(b"\x07\x01k\x00\x09"), RdbDamaged, "byte 13: the value of a module has a part of kind 9"),
])
# fmt: on
def test_lies(source: Source, error: type[RdbError], said: str) -> None:
    with pytest.raises(error, match=said):
        read(source)


def test_a_checksum_that_does_not_hold() -> None:
    body = b"REDIS0011\xff"
    with pytest.raises(RdbDamaged, match="byte 10: the checksum is 0000000000000001, but the bytes"):
        read(Source.of(body + b"\x01" + bytes(7)))


# fmt: off
@pytest.mark.parametrize(("payload", "said"), [
    (b"", "a payload of 0 bytes is too short"),
    (b"\x00\x01a\x0a\x00" + b"\x01" * 8, "byte 5: the checksum is 0101010101010101"),
])
# fmt: on
def test_payloads_that_are_none(payload: bytes, said: str) -> None:
    with pytest.raises(RdbDamaged, match=said):
        dumped(payload)


def test_a_payload_of_a_newer_version() -> None:
    payload = b"\x00\x01a\x10\x00" + bytes(8)
    with pytest.raises(RdbUnknown, match="byte 3: the format has version 16"):
        dumped(payload)


def raw(ms: int, seq: int = 0) -> bytes:
    return ms.to_bytes(8, "big") + seq.to_bytes(8, "big")


EMPTY = b"\x00" + b"\x00" + b"\x09\x00" + b"\x00\x00" * 2 + b"\x00"  # no node, last ID 9-0
PENDING = raw(5) + bytes(8) + b"\x01"
CONSUMER = string(b"c") + bytes(16)


# fmt: off
@pytest.mark.parametrize(("groups", "said"), [
    ([b"\x01g\x00\x00\x00\x00\x00"] * 2, "byte 17: the group b'g' comes twice"),
    ([b"\x01g\x00\x00\x00\x01" + PENDING + b"\x00"],
     "byte 15: group b'g': 1 pending entries belong to no consumer"),
    ([b"\x01g\x00\x00\x00\x02" + PENDING * 2 + b"\x00"], "the pending entries do not ascend"),
    ([b"\x01g\x00\x00\x00\x00\x02" + (CONSUMER + b"\x00") * 2], "the consumer b'c' comes twice"),
    ([b"\x01g\x00\x00\x00\x01" + PENDING + b"\x01" + CONSUMER + b"\x01" + raw(6)],
     "a consumer has the pending entry 6-0, which its group does not have"),
    ([b"\x01g\x00\x00\x00\x01" + PENDING + b"\x01" + CONSUMER + b"\x02" + raw(5) * 2],
     "5-0, which its group .* or not once"),
    ([b"\x01g\x00\x00\x00" + HUGE], "should follow"),
    ([b"\x01g\x00\x00\x00\x00" + HUGE], "should follow"),
    ([b"\x01g\x00\x00\x00\x00\x01" + CONSUMER + HUGE], "should follow"),
])
# fmt: on
def test_groups_that_lie(groups: list[bytes], said: str) -> None:
    with pytest.raises(RdbDamaged, match=said):
        list(read_stream(Source.of(EMPTY + length(len(groups)) + b"".join(groups)), 21))


def test_a_fifo_that_ends() -> None:
    file = RdbFile(unsized(b"REDIS0011" + b"\x00\x01k"))
    with pytest.raises(RdbCut, match="byte 12: the data ends here, but 1 bytes more should follow"):
        for _ in file.keys():
            file.source.string()
