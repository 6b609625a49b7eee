"""Commands as bytes are read back by the server's parser; replies come the same however their bytes are cut."""

from __future__ import annotations

import random
from itertools import accumulate
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rounds import rest_slow

from tidelog.resp.commands import encoded
from tidelog.resp.replies import DEPTH_MAX, UNFINISHED, Malformed, Replies, parse
from tidelog.server.wire.requests import Limits, Requests

REPLIES: Final = [
    (b"*4\r\n$3\r\nab\r\r\n:-7\r\n$-1\r\n*1\r\n+OK\r\n", [b"ab\r", -7, None, [("simple", b"OK")]]),
    (b"-ERR no\r\n", ("error", b"ERR no")),
    (b"*-1\r\n", None),
    (b"$0\r\n\r\n", b""),
    (b"*0\r\n", []),
    (b":12\r\n", 12),
]
DATA: Final = b"".join(data for data, _ in REPLIES)
FOUND: Final = [found for _, found in REPLIES]


def replies() -> Replies:
    return Replies(lambda line: ("simple", line), lambda line: ("error", line))


def taken(come: Replies) -> list[Any]:
    found = []
    while (reply := come.take()) is not UNFINISHED:
        found.append(reply)
    return found


@given(st.lists(st.lists(st.binary(max_size=40), min_size=1, max_size=40), min_size=1, max_size=5))
def test_a_server_reads_the_words_that_were_encoded(commands: list[list[bytes]]) -> None:
    assert Requests(Limits()).feed(b"".join(map(encoded, commands))) == commands


def test_a_command_is_an_array_of_bulk_strings() -> None:
    assert encoded([b"SET", b"k", b"\r\n"]) == b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\n\r\n\r\n"


@pytest.mark.parametrize("seed", rest_slow(range(20), 5))
def test_replies_come_the_same_however_they_are_cut(seed: int) -> None:
    r, come, found, at = random.Random(seed), replies(), list[Any](), 0
    times = r.randrange(1, 30)
    while at < len(DATA) * times:
        size = r.choice((1, 2, 5, 40))
        come.feed((DATA * times)[at : at + size])
        at += size
        found += taken(come)
    assert found == FOUND * times


def test_a_reply_is_taken_only_when_it_is_whole() -> None:
    ends = list(accumulate(len(data) for data, _ in REPLIES))
    for cut in range(len(DATA)):
        come = replies()
        come.feed(DATA[:cut])
        assert taken(come) == FOUND[: sum(end <= cut for end in ends)]


@pytest.mark.parametrize(
    "data", [b"HTTP/1.1 400\r\n", b":x\r\n", b"$a\r\n", b"*1\r\n" * (DEPTH_MAX + 1) + b":1\r\n"]
)
def test_bytes_that_are_no_reply_are_malformed(data: bytes) -> None:
    come = replies()
    come.feed(data)
    with pytest.raises(Malformed):
        come.take()


def test_one_reply_is_whole_or_malformed() -> None:
    data, found = REPLIES[0]
    assert parse(data, lambda line: ("simple", line), bytes) == found
    for cut in range(len(data)):
        with pytest.raises(Malformed, match="cut off"):
            parse(data[:cut], bytes, bytes)


def test_each_item_of_a_long_reply_is_parsed_once() -> None:
    """Else the time is the square of the length: a minute and more for 280,000 entries."""
    parsed: list[bytes] = []

    def simple(line: bytes) -> bytes:
        parsed.append(line)
        return line

    come = Replies(simple, bytes)
    data = b"*1000\r\n" + b"+item\r\n" * 1000
    for at in range(0, len(data), 100):
        assert come.take() is UNFINISHED
        come.feed(data[at : at + 100])
    assert come.take() == [b"item"] * 1000 and len(parsed) == 1000
