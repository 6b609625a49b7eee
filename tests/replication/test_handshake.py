"""The words of the handshake and its replies: there and back, and refused if they are not what they should be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.aof.reading.reader import Epoch
from tidelog.replication.errors import ProtocolError
from tidelog.replication.handshake import (
    LIVES_MAX,
    Behind,
    Continue,
    Follow,
    Refuse,
    Rejoin,
    Reply,
    Resync,
    Stop,
    Superseded,
    Unpromoted,
    parse_follow,
    parse_reply,
)

UUID, ID = bytes(range(16)), bytes(range(16, 32))
FOLLOW = Follow(UUID, ID, 6380, 9, 0xABC, (Epoch(1 << 32, 0xA2, 7), Epoch(1, 0xA1, 1)))


def test_the_words_of_a_request() -> None:
    assert b" ".join(FOLLOW.words()) == (
        b"TIDELOG FOLLOW 1 000102030405060708090a0b0c0d0e0f 101112131415161718191a1b1c1d1e1f 6380 9 00000abc "
        b"4294967296:00000000000000a2:7,1:00000000000000a1:1"
    )
    assert FOLLOW._replace(lives=(), lsn=0, crc=0, replace=True).words()[-4:] == [
        *(b"0", b"00000000", b"-", b"REPLACE"),
    ]


@pytest.mark.parametrize("heir", [b"", bytes(range(32, 48))])
@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    "follow",
    [
        FOLLOW,
        FOLLOW._replace(lives=(), lsn=0, crc=0, port=0),
        FOLLOW._replace(host="replica.example"),
        FOLLOW._replace(host="fe80::1"),
    ],
)
def test_a_request_comes_back(follow: Follow, replace: bool, copy: bool, heir: bytes) -> None:
    follow = follow._replace(replace=replace, copy=copy, heir=heir)
    assert parse_follow(follow.words()) == follow


def test_only_the_newest_lives_are_sent() -> None:
    lives = tuple(Epoch(n, n, n) for n in range(2 * LIVES_MAX, 0, -1))
    found = parse_follow(FOLLOW._replace(lives=lives, lsn=5000).words())
    assert found.lives == lives[:LIVES_MAX]


def changed(at: int, word: bytes) -> list[bytes]:
    words = FOLLOW.words()
    words[at] = word
    return words


# fmt: off
@pytest.mark.parametrize(("words", "reason"), [
    ([b"TIDELOG", b"FOLLOW"], "needs version, uuid, id, address, lsn, crc and lives"),
    (FOLLOW.words()[:-1], "needs version, uuid, id, address, lsn, crc and lives"),
    ([*FOLLOW.words(), b"PLEASE"], "needs version, uuid, id, address, lsn, crc and lives"),
    ([*FOLLOW.words(), b"REPLACE", b"REPLACE"], "needs version, uuid, id, address, lsn, crc and lives"),
    ([*FOLLOW.words(), b"HEIR"], "needs version, uuid, id, address, lsn, crc and lives"),
    ([*FOLLOW.words(), b"HEIR", ID.hex().encode(), b"COPY"], "needs version, uuid, id, address, lsn, crc and lives"),
    ([*FOLLOW.words(), b"HEIR", b"me"], "'me' is not an id: 32 hex digits"),
    (changed(2, b"one"), "needs version, uuid, id, address, lsn, crc and lives"),
    (changed(2, b"2"), "asks for version 2 of the replication protocol, but this tidelog has version 1"),
    (changed(3, b"00"), "'00' is not a uuid: 32 hex digits"),
    (changed(3, UUID.hex().upper().encode()), "is not a uuid"),
    (changed(4, b"\xff" * 1000), "... is not an id"),
    (changed(5, b"65536"), "'65536' is not a port: a number from 0 to 65535"),
    (changed(5, b"-1"), "'-1' is not a port"),
    (changed(5, "٣".encode()), "is not a port"),
    (changed(6, b"18446744073709551616"), "is not an LSN"),
    (changed(6, b"007"), "'007' is not an LSN"),
    (changed(6, b"0"), "its lives do not belong to a log that ends with LSN 0"),
    (changed(6, b"6"), "its lives do not belong to a log that ends with LSN 6"),
    (changed(7, b"abc"), "'abc' is not a crc: 8 hex digits"),
    (changed(8, b"-"), "its lives do not belong to a log that ends with LSN 9"),
    (changed(8, b""), "'' is not a life"),
    (changed(8, b"1:2:3"), "'2' is not an incarnation: 16 hex digits"),
    (changed(8, b"0:00000000000000a1:1"), "is not a life"),
    (changed(8, b"1:00000000000000a1:0"), "is not a life"),
    (changed(8, b"1:00000000000000a1:1:1"), "is not a life"),
    (changed(8, b"1:00000000000000a1:1,2:00000000000000a2:5"), "its lives are not named newest first"),
    (changed(8, b"2:00000000000000a2:5,1:00000000000000a1:5"), "its lives are not named newest first"),
    (changed(8, b"2:00000000000000a2:5,2:00000000000000a1:1"), "its lives are not named newest first"),
    (changed(8, b",".join([b"1:00000000000000a1:1"] * 101)), "it names more than 100 lives"),
])
# fmt: on
def test_a_bad_request_is_refused_in_one_line(words: list[bytes], reason: str) -> None:
    with pytest.raises(ProtocolError, match=re.escape(reason)) as caught:
        parse_follow(words)
    assert len(str(caught.value)) < 300 and str(caught.value).isprintable()


REPLIES: tuple[Reply, ...] = (
    *(Continue(UUID, 0), Behind(UUID, 1 << 40), Rejoin(UUID, 9, 7, 0xABC, True)),
    *(Rejoin(UUID, 9, 0, None, False), Resync(UUID, 9, 7, "gone too far"), Stop(7, "parted, so it is")),
    *(Superseded("by another"), Refuse("not you"), Unpromoted(UUID, 9)),
)


@pytest.mark.parametrize(
    "reply", (*REPLIES, Resync(UUID, 9, 7, "gone", True)), ids=lambda reply: type(reply).__name__
)
def test_a_reply_comes_back(reply: Reply) -> None:
    assert reply.line().endswith(b"\r\n") and reply.line().count(b"\n") == 1
    assert parse_reply(reply.line()) == parse_reply(reply.line()[:-2]) == reply


def test_the_lines_of_the_replies() -> None:
    uuid = b"000102030405060708090a0b0c0d0e0f"
    assert [reply.line().rstrip() for reply in REPLIES] == [
        b"+CONTINUE " + uuid + b" 0",
        b"+BEHIND " + uuid + b" 1099511627776",
        b"+REJOIN " + uuid + b" 9 7 00000abc SHORT",
        b"+REJOIN " + uuid + b" 9 0 - ANY",
        b"+RESYNC " + uuid + b" 9 7 LIKELY gone too far",
        b"-PARTED 7 parted, so it is",
        b"-SUPERSEDED by another",
        b"-REFUSED not you",
        b"+UNPROMOTED " + uuid + b" 9",
    ]


def test_an_error_of_the_server_is_a_refusal_with_its_whole_text() -> None:
    said = b"-NOAUTH Authentication required.\r\n"
    assert parse_reply(said) == Refuse("NOAUTH Authentication required.")


@pytest.mark.parametrize(
    "line", [b"+OK", b"", b"+CONTINUE", b"+CONTINUE x 1", b"+REJOIN " + UUID.hex().encode() + b" 1 1 - MAYBE", b":1"]
)
def test_an_answer_that_is_no_reply_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_reply(line)


def test_a_reason_stays_in_its_line() -> None:
    reason = "two\r\n+OK lines" + "ü" * 5000
    for reply in (Stop(1, reason), Refuse(reason), Resync(UUID, 1, 1, reason), Superseded("")):
        line = reply.line()
        assert line.count(b"\r") == line.count(b"\n") == 1 and len(line) < 1100
        assert type(parse_reply(line)) is type(reply)


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_any_words_are_a_request_or_refused(words: list[bytes]) -> None:
    try:
        assert parse_follow(words).words() == words
    except ProtocolError:
        pass


@given(
    st.integers(2, 9),
    st.binary(max_size=30) | st.text(" -:,0123456789abcdef", max_size=40).map(str.encode),
)
def test_a_request_with_one_other_word_is_a_request_or_refused(at: int, word: bytes) -> None:
    words = [*FOLLOW.words(), b"REPLACE"]
    words[at] = word
    try:
        assert [w.upper() for w in parse_follow(words).words()] == [w.upper() for w in words]
    except ProtocolError:
        pass


@given(st.binary(max_size=60))
def test_any_line_is_a_reply_or_refused(line: bytes) -> None:
    try:
        parse_reply(line)
    except ProtocolError:
        pass
