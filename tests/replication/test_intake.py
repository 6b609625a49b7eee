"""An intake: a leader's bytes become checked batches, and the follower acknowledges at a measured pace."""

from __future__ import annotations

import pytest
from tests.replication.shipped import UUID, End, Shipped

from tidelog.aof.errors import BadFrame
from tidelog.aof.received import Batch
from tidelog.replication.errors import Parted, ProtocolError
from tidelog.replication.intake import BUFFERED_BYTES_MAX, Intake
from tidelog.replication.protocol import (
    FROM_FOLLOWER,
    Ack,
    Beat,
    Bye,
    Data,
    Frames,
    Message,
    Messages,
    Snapshot,
)


def beat(log: Shipped, now_ms: int = 5_000, crc: int | None = None) -> Beat:
    return Beat(now_ms, log.end.lsn, log.end.crc if crc is None else crc, log.end.lsn)


def batches(intake: Intake) -> list[Batch]:
    found = []
    while (batch := intake.take()) is not None:
        found.append(batch)
    return found


def test_frames_come_out_whole_however_they_were_cut() -> None:
    log = Shipped([1, 4, 2])
    for size in (1, 50, 1000):
        intake, found = Intake(UUID, 0, 0, 0.0), []
        for at in range(0, len(log.data), size):
            intake.receive(Frames(log.data[at : at + size]).pack(), 0.0)
            found += batches(intake)
        assert b"".join(batch.data for batch in found) == log.data
        assert [record[2] for batch in found for record in batch.records] == [
            b"k%d" % lsn for lsn in range(1, 8)
        ]
        assert (intake.lsn, intake.crc) == log.end
        assert intake.buffered == 0


def test_it_goes_on_behind_the_frame_that_the_handshake_named() -> None:
    first = Shipped([3])
    more = Shipped([2], first.end)
    intake = Intake(UUID, *first.end, 0.0)
    intake.receive(Frames(more.data).pack(), 0.0)
    (batch,) = batches(intake)
    assert (batch.first, batch.last, batch.prev) == (4, 5, first.end.crc)


def test_frames_of_another_history_never_come_out() -> None:
    first = Shipped([3])
    more = Shipped([2], End(3, first.end.crc ^ 1))
    intake = Intake(UUID, *first.end, 0.0)
    intake.receive(Frames(more.data).pack(), 0.0)
    with pytest.raises(BadFrame):
        intake.take()


def test_a_beat_tells_of_the_leader() -> None:
    log = Shipped([5])
    intake = Intake(UUID, 0, 0, 0.0)
    assert (intake.last_lsn, intake.good_lsn, intake.beat) == (0, 0, None)
    intake.receive(Beat(5000, 9, 1, 7).pack(), 1.0)
    assert (intake.last_lsn, intake.good_lsn) == (9, 7)
    intake.receive(Frames(log.data).pack(), 2.0)
    assert intake.buffered == len(log.data)


def test_the_leaders_clock_runs_on_and_never_back() -> None:
    log = Shipped([1], now=50_000)
    intake = Intake(UUID, 0, 0, 100.0)
    assert intake.leader_now(100.0) == 0
    intake.receive(Beat(5_000, 1, log.end.crc, 1).pack(), 100.0)
    assert [intake.leader_now(at) for at in (100.0, 100.5, 103.0)] == [5_000, 5_500, 8_000]
    intake.receive(Beat(6_000, 1, log.end.crc, 1).pack(), 104.0)  # the leader's clock was set back
    assert [intake.leader_now(at) for at in (104.0, 105.0, 107.5)] == [9_000, 9_000, 9_500]
    intake.receive(Frames(log.data).pack(), 108.0)
    assert intake.leader_now(108.0) == 10_000
    assert len(batches(intake)) == 1
    assert intake.leader_now(108.0) == 50_001  # a frame was written then


def test_both_logs_are_compared_at_each_beat() -> None:
    log = Shipped([2, 2])
    for data in (
        Frames(log.data).pack() + beat(log, crc=1).pack(),
        beat(log, crc=1).pack() + Frames(log.data).pack(),
    ):
        intake = Intake(UUID, 0, 0, 0.0)
        intake.receive(data, 0.0)
        with pytest.raises(Parted, match="differ at LSN 4"):
            intake.take()
    intake = Intake(UUID, *log.end, 0.0)
    with pytest.raises(Parted):
        intake.receive(beat(log, crc=1).pack(), 0.0)
    intake = Intake(UUID, *log.end, 0.0)
    intake.receive(beat(log).pack(), 0.0)


@pytest.mark.parametrize("at", range(4))
def test_a_place_that_a_beat_named_is_compared_when_a_batch_passes_it(at: int) -> None:
    """Under load a batch rarely ends where the leader's log ended when it sent the BEAT."""
    log = Shipped([2, 2, 1, 3])
    lsn, crc = log.ends[at]
    for good in (True, False):
        intake = Intake(UUID, 0, 0, 0.0)
        intake.receive(Beat(1, lsn, crc if good else crc ^ 1, lsn).pack(), 0.0)
        intake.receive(Beat(2, *log.end, 8).pack(), 0.0)
        intake.receive(Frames(log.data).pack(), 0.0)
        if good:
            assert batches(intake)[-1].last == 8
            continue
        with pytest.raises(Parted, match=f"differ at LSN {lsn}: ") as caught:
            batches(intake)
        assert caught.value.lsn == lsn


def test_a_place_inside_a_frame() -> None:
    log = Shipped([2, 2])
    intake = Intake(UUID, 0, 0, 0.0)
    intake.receive(Beat(1, 3, 5, 3).pack() + Frames(log.data).pack(), 0.0)
    with pytest.raises(Parted, match="no frame ends there here"):
        batches(intake)


def test_acknowledgements_are_frequent_only_while_they_say_something() -> None:
    intake = Intake(UUID, 0, 0, 0.0)
    steps = [
        (0.0, 3, 1, Ack(3, 1)),  # the first, at once
        (0.005, 4, 1, None),  # too early
        (0.0102, 4, 1, Ack(4, 1)),
        (0.5, 4, 1, None),  # nothing new
        (0.9, 4, 4, Ack(4, 4)),
        (0.9005, 5, 5, None),
        (0.9015, 5, 5, Ack(5, 5)),  # more is on the disk
        (1.9, 5, 5, None),
        (2.0, 5, 5, Ack(5, 5)),  # a sign of life
        (2.1, 6, 9, Ack(6, 6)),  # fsynced, but not applied yet
    ]
    for at, written, fsynced, ack in steps:
        assert (intake.ack_in(written, fsynced, at) > 0) == (ack is None), at
        assert intake.ack(written, fsynced, at) == (b"" if ack is None else ack.pack()), at


def test_a_beat_is_answered_at_once() -> None:
    log = Shipped([1, 1])
    intake = Intake(UUID, 0, 0, 10.0)
    assert intake.ack(1, 0, 10.0)
    assert not intake.ack(2, 0, 10.0001)
    intake.receive(beat(log).pack(), 10.0002)
    assert intake.ack_in(2, 0, 10.0002) == 0
    assert intake.ack(2, 0, 10.0002) == Ack(2, 0).pack()
    assert not intake.ack(2, 1, 10.0003)


def test_what_a_beat_has_asked_for_is_acknowledged_soon_after_it_has_come() -> None:
    log = Shipped([1, 1, 1])
    intake = Intake(UUID, 0, 0, 10.0)
    intake.receive(beat(log).pack(), 10.0)
    assert intake.ack(1, 0, 10.0) == Ack(1, 0).pack()  # the rest is still under way
    assert not intake.ack(2, 0, 10.0005)
    assert 0 < intake.ack_in(2, 0, 10.0005) < 0.001
    assert intake.ack(2, 0, 10.0012) == Ack(2, 0).pack()
    assert intake.ack(3, 0, 10.0024) == Ack(3, 0).pack()
    assert not intake.ack(4, 0, 10.0036)  # nobody has asked for this one
    assert intake.ack(4, 0, 10.0126) == Ack(4, 0).pack()


def test_it_is_full_while_frames_wait() -> None:
    log = Shipped([1] * 400, padding=10_000)
    intake, found, most = Intake(UUID, 0, 0, 0.0), b"", 0
    pieces = [log.data[at : at + 60_000] for at in range(0, len(log.data), 60_000)]
    while pieces:
        while pieces and not intake.full:
            intake.receive(Frames(pieces.pop(0)).pack(), 0.0)
        most = max(most, intake.buffered)
        found += b"".join(batch.data for batch in batches(intake))
    assert found == log.data
    assert BUFFERED_BYTES_MAX < most <= BUFFERED_BYTES_MAX + 2 * 60_000


def test_a_frame_longer_than_the_buffer_is_awaited() -> None:
    log = Shipped([1, 1], padding=3 << 20)
    intake = Intake(UUID, 0, 0, 0.0)
    taken = []
    for at in range(0, len(log.data), 60_000):
        assert not intake.full
        intake.receive(Frames(log.data[at : at + 60_000]).pack(), 0.0)
        if at % 180_000 == 0:
            taken += batches(intake)
    assert [batch.last for batch in taken + batches(intake)] == [1, 2]


def test_a_bye_is_kept_and_ends_the_talk() -> None:
    log = Shipped([1])
    intake = Intake(UUID, 0, 0, 0.0)
    intake.receive(Frames(log.data).pack() + Bye("going down").pack(), 0.0)
    assert intake.bye == "going down"
    assert len(batches(intake)) == 1  # what came before it counts
    with pytest.raises(ProtocolError, match="behind its BYE"):
        intake.receive(beat(log).pack(), 0.0)


def test_messages_of_a_snapshot_are_handed_on_in_order() -> None:
    snapshot, piece = Snapshot(9, 1, 2, 3, bytes(32)), Data(2, 0, b"abc")
    intake = Intake(UUID, 0, 0, 0.0)
    data = snapshot.pack() + beat(Shipped([1])).pack() + piece.pack()
    assert intake.receive(data, 0.0) == [snapshot, piece]


def test_bytes_are_a_sign_of_life() -> None:
    intake = Intake(UUID, 0, 0, 10.0)
    intake.receive(b"\x01", 12.0)
    assert not intake.overdue(22.0, 10) and intake.overdue(22.1, 10)


# fmt: off
@pytest.mark.parametrize(("messages", "reason"), [
    ([Ack(1, 1)], "only a follower sends ACK"),
    ([Beat(1, 5, 0, 6)], "its log ends with LSN 5, but is good through LSN 6"),
    ([Beat(1, 5, 0, 5), Beat(2, 4, 0, 4)], "its log ended with LSN 5, and now with LSN 4"),
    ([Beat(1 << 63, 5, 0, 5)], "its clock says 9223372036854775808, which is not a time"),
])
# fmt: on
def test_a_lie_ends_the_link(messages: list[Message], reason: str) -> None:
    intake = Intake(UUID, 0, 0, 0.0)
    with pytest.raises(ProtocolError) as caught:
        intake.receive(b"".join(message.pack() for message in messages), 0.0)
    assert caught.value.reason == reason


def test_an_acknowledgement_is_a_message_of_a_follower() -> None:
    reader = Messages(FROM_FOLLOWER)
    reader.put(Intake(UUID, 0, 0, 0.0).ack(7, 5, 0.0))
    assert reader.take() == Ack(7, 5)
