"""Which writes a fault can take, by what was confirmed: power cuts and promotions on simulated disks.

docs/guides/replication.md has the table, which names these tests.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests import inside
from tests.replication.stores import begin_to_follow, last_lsn, shipped

import tidelog
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication.feed import Feed
from tidelog.replication.feeds import Downstream, Feeds
from tidelog.replication.follower import Follower
from tidelog.replication.handshake import parse_follow

LEADER, COPY = Path("/leader"), Path("/copy")
SEEDS = range(12)
POLICIES = ("no", "always")


class Sink:
    unsent = 0

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    kill = close


class Two:
    """A leader and a connected follower, each on a disk of its own. Bytes pass when a test says so.

    Nothing is synced except where a test says so, and by a policy `always` of a caller's own.
    """

    def __init__(self, leader: str = "no", follower: str = "no") -> None:
        self.disks = SimulatedDisk(), SimulatedDisk()
        self.policies = leader, follower
        self.link: Downstream | None = None
        self.feeds: Feeds
        self.leader = self.open(0)
        self.leader.set("first", "1")
        self.copy = self.open(1)
        begin_to_follow(self.copy)
        self.connect()

    def open(self, side: int) -> tidelog.Store:
        root = (LEADER, COPY)[side]
        return tidelog.open(
            root, disk=self.disks[side], fsync=self.policies[side], checkpoint_bytes=0, save=()
        )

    def connect(self) -> bytes:
        """A new connection. Returns the leader's reply."""
        feeds = Feeds(inside.core(self.leader))
        if self.link is not None:
            self.feeds.lost(self.link)
        self.feeds = feeds
        self.follower = Follower(inside.core(self.copy))
        line, feed = self.feeds.answer(parse_follow(self.follower.hello()), 0.0)
        if feed is not None:
            self.follower.answered(line, 0.0)
            self._link(feed)
        return line

    def _link(self, feed: Feed) -> None:
        self.link = Downstream(bytes(16), "127.0.0.1", 1, feed, Sink(), lambda: None)
        self.feeds.add(self.link, 0, 0.0)
        self.now = 0.0

    def write(self) -> int:
        """A write of the leader that no sync follows. Returns its LSN."""
        core = inside.core(self.leader)
        core.command(0, [b"SET", b"last", b"1"])
        return last_lsn(self.leader)

    def ship(self) -> None:
        """All that may be shipped reaches the follower, is applied, and is acknowledged."""
        assert self.link is not None
        self.now += 2
        self.follower.receive(shipped(self.feeds, self.link.feed, self.now), self.now)
        while self.follower.work(1.0, self.now):
            pass
        self.feeds.received(self.link, self.follower.send(self.now), self.now)

    def sync(self, db: tidelog.Store) -> None:
        inside.log(db).sync_through(last_lsn(db))

    def power_cut(self, side: int, seed: int) -> tidelog.Store:
        """One machine loses power, and its store is opened again."""
        old = (self.leader, self.copy)[side]
        inside.core(old).keeper.let_go()  # type: ignore[attr-defined]
        cut = self.disks[side].power_loss(random.Random(seed))
        self.disks = (cut, self.disks[1]) if side == 0 else (self.disks[0], cut)
        db = self.open(side)
        if side == 0:
            self.leader = db
        else:
            self.copy = db
        return db


def test_what_the_follower_has_not_received_is_lost_by_a_promotion() -> None:
    two = Two("always")
    two.ship()
    lsn = two.write()
    two.sync(two.leader)
    assert two.feeds.count(lsn, False) == 0  # WAIT says so
    two.copy.promote()
    assert two.copy.get("first") == b"1" and two.copy.get("last") is None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_follower_that_loses_power_gets_everything_again(policy: str) -> None:
    for seed in SEEDS:
        two = Two(follower=policy)
        lsn = two.write()
        two.ship()
        assert two.feeds.count(lsn, False) == 1
        two.power_cut(1, seed)
        assert two.connect().startswith(b"+CONTINUE")
        two.ship()
        assert two.feeds.count(lsn, False) == 1
        assert two.copy.digest() == two.leader.digest()


def test_a_leader_that_loses_power_has_what_it_synced() -> None:
    lost = 0
    for seed in SEEDS:
        two = Two()
        synced = two.write()
        two.sync(two.leader)
        two.write()
        two.ship()
        assert two.copy.get("last") == b"1"  # in any case
        db = two.power_cut(0, seed)
        assert last_lsn(db) >= synced
        lost += last_lsn(db) == synced
    assert lost, "no power cut took what was not synced"


@pytest.mark.parametrize("policy", POLICIES)
def test_wait_proves_nothing_about_disks(policy: str) -> None:
    lost = 0
    for seed in SEEDS:
        two = Two(follower=policy)
        two.ship()
        two.sync(two.copy)
        lsn = two.write()
        two.ship()
        assert (two.feeds.count(lsn, False), two.feeds.count(lsn, True)) == (1, 0)
        db = two.power_cut(1, seed)
        db.promote()
        assert db.get("first") == b"1"
        lost += db.get("last") is None
    assert lost, "no power cut took what was not synced"


@pytest.mark.parametrize("policy", POLICIES)
def test_what_waitaof_confirmed_is_there_after_power_cuts(policy: str) -> None:
    for seed in SEEDS:
        two = Two(follower=policy)
        lsn = two.write()
        two.ship()
        two.sync(two.copy)
        two.ship()
        assert two.feeds.count(lsn, True) == 1
        db = two.power_cut(1, seed)
        db.promote()
        assert db.get("last") == b"1"
