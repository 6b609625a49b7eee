"""A follower acknowledges the frames in its own log, and as fsynced those on its own disk."""

from __future__ import annotations

import errno
from datetime import timedelta
from pathlib import Path

import pytest
from tests import inside
from tests.replication.stores import begin_to_follow, last_lsn, shipped

import tidelog
from tidelog.aof.log import Log
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication.errors import LinkError
from tidelog.replication.feeds import Feeds
from tidelog.replication.follower import Follower
from tidelog.replication.handshake import parse_follow
from tidelog.replication.protocol import FROM_FOLLOWER, Ack, Messages
from tidelog.testing import Clock
from tidelog.testing.clock import START


class Both:
    """A leader with a few records, and a follower that is connected and has received their bytes."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()  # of the follower
        self.leader = tidelog.open(Path("/leader"), fsync="no", disk=SimulatedDisk())
        for number in range(20):
            self.leader.xadd("orders", {"n": number})
        self.copy = tidelog.open(Path("/copy"), fsync="no", disk=self.disk)
        begin_to_follow(self.copy)
        self.follower = Follower(inside.core(self.copy))
        feeds = Feeds(inside.core(self.leader))
        line, feed = feeds.answer(parse_follow(self.follower.hello()), 0.0)
        assert feed is not None
        self.follower.answered(line, 0.0)
        self.follower.receive(shipped(feeds, feed, 0.0), 0.0)

    def acknowledged(self, now: float) -> tuple[int, int]:
        """(written, fsynced) of the acknowledgement that is due."""
        messages = Messages(FROM_FOLLOWER)
        messages.put(self.follower.send(now))
        (ack,) = messages
        assert isinstance(ack, Ack)
        return ack


def test_only_what_is_in_the_log_is_acknowledged() -> None:
    both = Both()

    def full(operation: str, path: object) -> None:
        if operation in ("fill", "create"):
            raise OSError(errno.ENOSPC, "full")

    both.disk.before = full
    assert both.follower.work(1.0, 0.0) and both.follower.stalled
    assert both.acknowledged(0.0) == (0, 0)
    both.disk.before = None
    while both.follower.work(1.0, 1.0):
        pass
    lsn = last_lsn(both.leader)
    assert last_lsn(both.copy) == lsn and both.acknowledged(1.0)[0] == lsn
    assert both.copy.digest() == both.leader.digest()


def test_only_what_is_on_the_disk_is_acknowledged_as_fsynced() -> None:
    both = Both()
    assert not both.follower.work(1.0, 0.0)
    lsn = last_lsn(both.leader)
    assert both.acknowledged(0.0) == (lsn, 0)
    inside.log(both.copy).sync_through(lsn)
    assert both.acknowledged(1.0) == (lsn, lsn)


def test_after_a_promotion_nothing_is_acknowledged() -> None:
    """The records of its own life are not the leader's, so they confirm nothing."""
    both = Both()
    while both.follower.work(1.0, 0.0):
        pass
    lsn = last_lsn(both.leader)
    both.copy.promote()
    both.copy.set("a", "1")
    with pytest.raises(LinkError, match="has become a leader"):
        both.follower.work(1.0, 1.0)
    assert both.acknowledged(1.0)[0] == lsn < last_lsn(both.copy)


def test_the_leaders_time_comes_before_its_frames() -> None:
    """Readers see a key at once. By a clock that is an hour ahead it would have expired."""
    there, here = Clock(), Clock(START + timedelta(hours=1))
    disk = SimulatedDisk(1)
    leader = tidelog.open(Path("/leader"), fsync="no", disk=disk, clock=there)
    copy = tidelog.open(Path("/copy"), fsync="no", disk=disk, clock=here)
    leader.set("k", "v", px=60_000)
    for number in range(500):
        leader.set("pad", "x" * 1000 + str(number))
    begin_to_follow(copy)
    follower, feeds = Follower(inside.core(copy)), Feeds(inside.core(leader))
    line, feed = feeds.answer(parse_follow(follower.hello()), 0.0)
    assert feed is not None
    follower.answered(line, 0.0)
    before = inside.core(copy).landing.time_ns()
    assert not follower.work(1.0, 0.0)  # nothing has come yet
    assert inside.core(copy).landing.time_ns() == before
    follower.receive(shipped(feeds, feed, 0.0), 0.0)
    assert follower.work(0.0, 0.0)  # a part of it
    assert copy.exists("k") and copy.get("k") == b"v"


def test_a_log_that_is_just_being_replaced_is_no_failed_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The link's thread looks without the lock of the store, so it meets a log that another thread has just retired."""
    followers: list[Follower] = []
    looks = 0
    retire = Log.retire

    def retire_and_look(log: Log) -> None:
        nonlocal looks
        retire(log)
        for follower in followers:
            follower.check()
            looks += 1

    monkeypatch.setattr(Log, "retire", retire_and_look)
    both = Both()
    followers.append(both.follower)
    both.follower.work(1.0, 0.0)
    roles = inside.core(both.copy).roles
    assert roles is not None
    roles.promote()
    assert looks == 1
    roles.follow("127.0.0.1", 1)
    assert looks == 2
    gone = False

    def breaks(operation: str, path: Path) -> None:
        nonlocal gone
        gone = gone or operation == "rename"
        if gone and operation == "sync_directory":
            raise OSError(errno.EIO, "injected", str(path))

    both.disk.before = breaks
    with pytest.raises(tidelog.NotStored, match="may have the new role"):
        roles.promote()
    both.disk.before = None
    both.copy.exists("k")  # reads the role, and recovers the log in it
    assert looks == 3 and both.copy.role().kind == "leader"
