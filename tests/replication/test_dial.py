"""The address of a leader, and the replies before the link begins."""

from __future__ import annotations

import ssl

import pytest

from tidelog.replication.dial import (
    REPLY_BYTES_MAX,
    Address,
    Replies,
    address_of,
    greeting,
)
from tidelog.replication.errors import LinkError
from tidelog.resp.commands import encoded
from tidelog.store.errors import DataError

HELLO = (
    b"%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n8.8.0\r\n$5\r\nproto\r\n:3\r\n$2\r\nid\r\n:5\r\n"
    b"$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
)


# fmt: off
@pytest.mark.parametrize("url, address", [
    ("tidelog://10.0.0.1", Address("10.0.0.1", 6379)),
    ("tidelog://db.example.org:7000/", Address("db.example.org", 7000)),
    ("tidelog://ann:s%40cret@host:1", Address("host", 1, "ann", "s@cret")),
    ("tidelog://:secret@host", Address("host", 6379, "", "secret")),
    ("tidelog://[::1]:6380", Address("::1", 6380)),
])
# fmt: on
def test_an_address(url: str, address: Address) -> None:
    assert address_of(url) == address


def test_an_address_is_shown_without_its_password() -> None:
    assert str(address_of("tidelog://ann:secret@[::1]:6380")) == "[::1]:6380"


def test_tls() -> None:
    context = ssl.create_default_context()
    assert address_of("tidelog://a", context).tls is context
    made = address_of("tidelog://a", True).tls
    assert made is not None and made.verify_mode is ssl.CERT_REQUIRED
    assert address_of("tidelog://a", False).tls is None


@pytest.mark.parametrize(
    "url", ["", "a:1", "redis://a", "tidelog://", "tidelog://a:0x1", "tidelog://a/b", "tidelog://a?b", "tidelog://a#b"]
)
def test_a_wrong_address(url: str) -> None:
    with pytest.raises(DataError, match="address must be"):
        address_of(url)


def test_the_greeting() -> None:
    assert greeting(Address("a", 1)) == b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n"
    assert greeting(Address("a", 1, "", "pw")) == encoded([b"HELLO", b"3", b"AUTH", b"default", b"pw"])
    assert greeting(Address("a", 1, "ann", "pw")) == encoded([b"HELLO", b"3", b"AUTH", b"ann", b"pw"])


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_replies_cut_anywhere(size: int) -> None:
    data = HELLO + b"+CONTINUE x 1\r\n" + b"\x01\x02rest"
    replies = Replies()
    found: list[bytes] = []
    for at in range(0, len(data), size):
        replies.put(data[at : at + size])
        while len(found) < 2 and (line := replies.take()) is not None:
            found.append(line)
    assert found == [b"%7", b"+CONTINUE x 1"]
    assert bytes(replies.buffered) == b"\x01\x02rest"


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"$x\r\n",
        b"*-5\r\n",
        b"$99999999999\r\n",
        b"*1\r\n" * 100,
        b"+" + b"x" * (REPLY_BYTES_MAX + 1),
        b"\x00" * (REPLY_BYTES_MAX + 1),
        b"*70000\r\n",
    ],
)
def test_a_stranger_is_refused(data: bytes) -> None:
    replies = Replies()
    replies.put(data)
    with pytest.raises(LinkError, match="is it a tidelog server"):
        replies.take()
