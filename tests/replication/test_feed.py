"""A feed: what a leader sends for how much room, and which acknowledgements it believes."""

from __future__ import annotations

import pytest
from tests.replication.shipped import GOOD, Shipped

from tidelog.replication.errors import ProtocolError
from tidelog.replication.feed import BEAT_SECONDS, ROOM_BYTES_MIN, SEND_BYTES_MAX, Feed
from tidelog.replication.protocol import (
    BEAT_BYTES,
    FROM_LEADER,
    OVERHEAD,
    SLICE_BYTES_MAX,
    Ack,
    Beat,
    Bye,
    Frames,
    Message,
    Messages,
    Want,
)

NOW_MS = 1_700_000_000_000


def sent(feed: Feed, log: Shipped, now: float = 0.0, room: int = 1 << 20) -> bytes:
    return feed.send(now, NOW_MS, GOOD, log.end, log.end.lsn - 1, room)


def messages(data: bytes) -> list[Message]:
    reader = Messages(FROM_LEADER)
    reader.put(data)
    return list(reader)


def test_the_first_message_is_a_beat_and_frames_follow() -> None:
    log = Shipped([1, 3])
    assert messages(sent(Feed(log, 4, 0.0), log)) == [
        Beat(NOW_MS, 4, log.end.crc, 3),
        Frames(log.data),
    ]


def test_the_log_is_shipped_whole_in_slices_and_never_more_than_there_is_room_for() -> None:
    log = Shipped([1] * 300, padding=10_000)
    assert len(log.data) > 2 * SEND_BYTES_MAX
    for room in (ROOM_BYTES_MIN, 100_000, 2 * (SLICE_BYTES_MAX + OVERHEAD), 10 << 20):
        log = Shipped([1] * 300, padding=10_000)
        feed, pieces = Feed(log, 300, 0.0), []
        while data := sent(feed, log, room=room):
            assert len(data) <= room
            pieces += [m.data for m in messages(data) if isinstance(m, Frames)]
            assert sum(map(len, pieces[-20:])) <= SEND_BYTES_MAX + 4 * SLICE_BYTES_MAX
        assert b"".join(pieces) == log.data


def test_one_call_sends_at_most_a_mebibyte_of_the_log_and_reads_it_at_once() -> None:
    log = Shipped([1] * 300, padding=10_000)
    reads = 0

    class Counted:
        def read(self, nbytes_max: int, good: tuple[int, int]) -> bytes:
            nonlocal reads
            reads += 1
            return log.read(nbytes_max, good)

        def at_end(self, good: tuple[int, int]) -> bool:
            return log.at_end(good)

    found = messages(sent(Feed(Counted(), 300, 0.0), log, room=10 << 20))
    assert [len(m.data) for m in found if isinstance(m, Frames)] == [SLICE_BYTES_MAX] * 16
    assert reads == 1


def test_a_beat_goes_out_every_second_even_beside_frames_without_end() -> None:
    log = Shipped([1] * 300, padding=10_000)
    feed = Feed(log, 300, 5.0)
    beats = [
        any(
            isinstance(m, Beat)
            for m in messages(sent(feed, log, 5.0 + i * BEAT_SECONDS / 4, 70_000))
        )
        for i in range(9)
    ]
    assert beats == [True, False, False, False] * 2 + [True]


def test_a_beat_goes_out_when_a_client_asks() -> None:
    log = Shipped([1])
    feed = Feed(log, 1, 5.0)
    assert sent(feed, log, 5.0)
    assert not sent(feed, log, 5.1)
    feed.ask()
    (found,) = messages(sent(feed, log, 5.1))
    assert isinstance(found, Beat)
    assert not sent(feed, log, 5.2)


def test_a_full_socket_gets_nothing_and_its_beat_later() -> None:
    log = Shipped([1])
    feed = Feed(log, 1, 0.0)
    assert sent(feed, log, room=0) == sent(feed, log, room=BEAT_BYTES - 1) == b""
    assert [type(m) for m in messages(sent(feed, log, room=BEAT_BYTES))] == [Beat]
    assert [type(m) for m in messages(sent(feed, log))] == [Frames]
    assert sent(feed, log) == b""


def test_acknowledgements_count_and_bytes_are_a_sign_of_life() -> None:
    log = Shipped([5])
    feed = Feed(log, 5, 10.0)
    assert (feed.acked_lsn, feed.fsynced_lsn) == (0, 0)
    ack = Ack(5, 3).pack()
    assert feed.receive(ack[:4], 12.0) == [] and feed.acked_lsn == 0
    assert feed.heard_at == 12.0
    assert not feed.overdue(22.0, 10) and feed.overdue(22.1, 10)
    assert feed.receive(ack[4:] + Want(2, 77).pack() + Ack(5, 5).pack(), 13.0) == [Want(2, 77)]
    assert (feed.acked_lsn, feed.fsynced_lsn) == (5, 5)


# fmt: off
@pytest.mark.parametrize(("acks", "reason"), [
    ([Ack(6, 0)], "it acknowledges LSN 6, but the leader's log ends with LSN 5"),
    ([Ack(5, 6)], "it has fsynced through LSN 6, but written only through LSN 5"),
    ([Ack(5, 0), Ack(4, 0)], "it acknowledges LSN 4 (fsynced 0) after LSN 5 (fsynced 0)"),
    ([Ack(5, 4), Ack(5, 3)], "it acknowledges LSN 5 (fsynced 3) after LSN 5 (fsynced 4)"),
    ([Bye("")], "only a leader sends BYE"),
])
# fmt: on
def test_a_lie_ends_the_link(acks: list[Message], reason: str) -> None:
    feed = Feed(Shipped([5]), 5, 0.0)
    with pytest.raises(ProtocolError) as caught:
        feed.receive(b"".join(ack.pack() for ack in acks), 1.0)
    assert caught.value.reason == reason


def test_what_was_written_since_may_be_acknowledged() -> None:
    log = Shipped([5, 2])
    feed = Feed(log, 5, 0.0)
    sent(feed, log)
    feed.receive(Ack(7, 7).pack(), 1.0)
    assert feed.acked_lsn == 7
