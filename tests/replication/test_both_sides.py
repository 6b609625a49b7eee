"""Handshake, feed and intake together, over the logs of two simulated disks: the link is cut before every byte."""

from __future__ import annotations

import pytest
from tests.aof.shipping import AOF, Follower, Leader, batches
from tests.rounds import some_and_all

from tidelog.aof.errors import Released
from tidelog.aof.log import WRITTEN
from tidelog.aof.reading.reader import Epoch
from tidelog.aof.seek import position_after
from tidelog.crash.logs import UUID
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import EPOCH, OPCODE, Effect
from tidelog.replication.feed import Feed
from tidelog.replication.handshake import Continue, Follow, parse_follow, parse_reply
from tidelog.replication.history import NoFrame, Upstream, judge
from tidelog.replication.intake import Intake


def lives(records: list[Effect]) -> tuple[Epoch, ...]:
    """Newest first. One record has one LSN, and these logs begin with LSN 1."""
    found = [
        Epoch(record[1], record[2], lsn)
        for lsn, record in enumerate(records, 1)
        if record[0] & OPCODE == EPOCH
    ]
    return tuple(reversed(found))


def connected(leader: Leader, follower: Follower) -> tuple[Feed, Intake]:
    """Both sides of a link after its handshake, whose words and line went over the wire."""

    def frame_at(lsn: int) -> int | NoFrame:
        try:
            position = position_after(leader.disk, AOF, UUID, lsn)
        except Released:
            return NoFrame.RELEASED
        return NoFrame.INSIDE if position is None else position.crc

    log = follower.log
    request = Follow(UUID, b"f" * 16, 0, log.written_lsn, log.chain, lives(follower.applied))
    follow = parse_follow(request.words())
    known = lives([r for batch in batches(leader.shipped()) for r in batch.records])
    last = leader.life.log.written_lsn
    upstream = Upstream(UUID, b"l" * 16, known, last, frame_at, following=False)
    reply = parse_reply(judge(upstream, follow).line())
    assert reply == Continue(UUID, last)
    return (
        Feed(leader.source(follow.lsn), last, 0.0),
        Intake(UUID, log.written_lsn, log.chain, 0.0),
    )


def shipped(leader: Leader, feed: Feed) -> bytes:
    log = leader.life.log
    last, good = (log.written_lsn, log.chain), log.good(WRITTEN)
    stream = b""
    while data := feed.send(0.0, 1000, good, last, log.written_lsn, 5000):
        stream += data
    return stream


def take_in(follower: Follower, intake: Intake, data: bytes) -> None:
    intake.receive(data, 0.0)
    while (batch := intake.take(700)) is not None:
        follower.receive(batch)


@pytest.mark.parametrize("stride", some_and_all(11, 1))
def test_a_link_that_is_cut_before_every_byte_goes_on_at_the_next_frame(stride: int) -> None:
    leader = Leader(5)
    for records in (1, 3):
        leader.life.add(records, 10, False)
        leader.restart()
        leader.life.add(1, 300, True)
    leader.life.wait(WRITTEN)
    whole = leader.shipped()
    first = Follower(SimulatedDisk(6))
    feed, intake = connected(leader, first)
    stream = shipped(leader, feed)
    take_in(first, intake, stream)
    assert first.applied == [r for batch in batches(whole) for r in batch.records]
    ack = intake.ack(first.log.written_lsn, 0, 0.0)
    assert feed.receive(ack, 0.0) == [] and feed.acked_lsn == leader.life.log.written_lsn
    first.close()
    assert len(whole) < len(stream) < 2000
    for cut in range(0, len(stream), stride):
        follower = Follower(SimulatedDisk(6))
        _, intake = connected(leader, follower)
        take_in(follower, intake, stream[:cut])
        feed, intake = connected(leader, follower)
        take_in(follower, intake, shipped(leader, feed))
        assert follower.applied == first.applied, f"cut at {cut}"
        assert (follower.log.written_lsn, follower.log.chain) == (intake.lsn, intake.crc)
        follower.close()
