"""Messages: their bytes, cut anywhere, and refused if they are not what the other side may send."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.engine.crc32c import crc32c
from tidelog.replication import protocol
from tidelog.replication.errors import ProtocolError
from tidelog.replication.protocol import (
    FROM_FOLLOWER,
    FROM_LEADER,
    FROM_LEADER_PACKED,
    OVERHEAD,
    REASON_BYTES_MAX,
    SLICE_BYTES_MAX,
    Ack,
    Beat,
    Bye,
    Data,
    Fault,
    Frames,
    Kind,
    Message,
    Messages,
    Promote,
    Promoted,
    Snapshot,
    Want,
)

PAGE: Final = (Path(__file__).parents[2] / "docs/FORMAT.md").read_text()
U64 = (1 << 64) - 1

LEADERS: tuple[Message, ...] = (
    Frames(b"x"),
    Frames(bytes(SLICE_BYTES_MAX)),
    Beat(1_700_000_000_000, U64, 0xFFFFFFFF, 4711),
    Snapshot(4711, 0x89ABCDEF, 900, 1 << 40, bytes(range(32))),
    Data(protocol.DATA_FILE, 1 << 40, b"\0" * SLICE_BYTES_MAX),
    Data(protocol.MANIFEST_FILE, 0, b"{"),
    Bye(""),
    Bye("schließt"),
    Promote(U64, 0xFFFFFFFF),
)
FOLLOWERS: tuple[Message, ...] = (
    Ack(U64, 0),
    Want(protocol.MANIFEST_FILE, 0),
    Want(2, U64),
    Promoted(1 << 32, U64),
    Fault(U64, "damaged"),
    Fault(1, ""),
)


@pytest.mark.parametrize(
    ("kinds", "messages"), [(FROM_LEADER, LEADERS), (FROM_FOLLOWER, FOLLOWERS)]
)
def test_every_message_comes_back(kinds: dict[int, Kind], messages: tuple[Message, ...]) -> None:
    stream = b"".join(message.pack() for message in messages)
    for size in (1, 7, 4096, len(stream)):
        reader, found = Messages(kinds), []
        for at in range(0, len(stream), size):
            reader.put(stream[at : at + size])
            found += list(reader)
        assert found == list(messages)
        assert reader.take() is None
    assert {type(message).__name__.upper() for message in messages} == {
        kind.name for kind in kinds.values()
    }


def test_the_bytes_of_a_message() -> None:
    head = bytes.fromhex("10000000 10 6712000000000000 6612000000000000")
    assert Ack(4711, 4710).pack() == head + crc32c(head).to_bytes(4, "little")


def test_the_format_document_has_every_message() -> None:
    section = PAGE.split("\n### Messages\n", 1)[1].split("\n#", 1)[0]
    rows = re.findall(
        r"^\| (\d+) \| ([A-Z]+) \| (leader|follower) \| ([\d,]+)(?: to ([\d,]+))? \|", section, re.M
    )
    found = {
        (int(number), name, side, bound(least), bound(most or least))
        for number, name, side, least, most in rows
    }
    assert found == {
        (number, kind.name, side, kind.nbytes_min, kind.nbytes_max)
        for side, kinds in (("leader", FROM_LEADER_PACKED), ("follower", FROM_FOLLOWER))
        for number, kind in kinds.items()
    }


def bound(text: str) -> int:
    return int(text.replace(",", ""))


def test_a_long_reason_is_cut_between_characters() -> None:
    (bye,) = read(FROM_LEADER, Bye("ü" * REASON_BYTES_MAX).pack())
    assert bye == Bye("ü" * (REASON_BYTES_MAX // 2))


def read(kinds: object, data: bytes) -> list[Message]:
    reader = Messages(kinds)  # type: ignore[arg-type]
    reader.put(data)
    return list(reader)


def head(length: int, number: int) -> bytes:
    return protocol.HEAD.pack(length, number)


# fmt: off
@pytest.mark.parametrize(("kinds", "data", "reason"), [
    (FROM_LEADER, head(1, 9), "there is no message of type 9"),
    (FROM_LEADER, head(16, protocol.ACK), "only a follower sends ACK"),
    (FROM_FOLLOWER, head(28, protocol.BEAT), "only a leader sends BEAT"),
    (FROM_LEADER, head(0, protocol.FRAMES), "FRAMES of 0 bytes, but it can have 1 to 65536"),
    (FROM_LEADER, head(65537, protocol.FRAMES), "FRAMES of 65537 bytes, but it can have 1 to 65536"),
    (FROM_FOLLOWER, head(0xFFFFFFFF, protocol.WANT), "WANT of 4294967295 bytes, but it can have only 9"),
    (FROM_LEADER, Frames(b"abc").pack()[:-1] + b"x", "FRAMES does not match its checksum"),
    (FROM_FOLLOWER, Want(3, 0).pack(), "it named file 3 of a snapshot, which has files 1 and 2"),
    (FROM_LEADER, b"-ERR unknown command\r\n", "there is no message of type 32"),
])
# fmt: on
def test_a_stranger_is_refused_in_one_line(kinds: object, data: bytes, reason: str) -> None:
    reader = Messages(kinds)  # type: ignore[arg-type]
    good = (Bye("first") if kinds is FROM_LEADER else Ack(1, 1))
    reader.put(good.pack() + data)
    assert reader.take() == good
    for _ in range(2):
        with pytest.raises(ProtocolError) as caught:
            reader.take()
        assert caught.value.reason == reason
        reader.put(good.pack())  # nothing behind it is read any more
    assert "\n" not in str(caught.value)


def test_the_header_alone_is_enough_to_refuse() -> None:
    reader = Messages(FROM_LEADER)
    reader.put(head(1 << 31, protocol.DATA)[:4])
    assert reader.take() is None
    reader.put(head(1 << 31, protocol.DATA)[4:])
    with pytest.raises(ProtocolError):
        reader.take()


@given(st.binary(max_size=200), st.sampled_from([FROM_LEADER, FROM_FOLLOWER]))
def test_garbage_is_refused_or_waited_for(data: bytes, kinds: object) -> None:
    try:
        assert sum(len(message.pack()) for message in read(kinds, data)) <= len(data)
    except ProtocolError:
        return
    assert len(data) < OVERHEAD or int.from_bytes(data[:4], "little") > 0
