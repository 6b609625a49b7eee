"""A leader ships its life first, and nothing before it is good. It counts only links that are up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import inside
from tests.replication.shipped import Shipped
from tests.replication.stores import begin_to_follow, shipped

import tidelog
from tidelog.aof.epochs import first_number
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication.feed import Feed
from tidelog.replication.feeds import Downstream, Feeds
from tidelog.replication.follower import Follower
from tidelog.replication.handshake import parse_follow
from tidelog.replication.protocol import FROM_LEADER, Ack, Beat, Frames, Message, Messages
from tidelog.store.acks import Awaited

ID = bytes(16)


class Sink:
    """A connection that takes everything, or nothing."""

    def __init__(self, takes: bool = True) -> None:
        self.open = True
        self.unsent = 0
        self._takes = takes

    def write(self, data: bytes) -> None:
        if not self._takes:
            self.unsent += len(data)

    def close(self) -> None:
        self.open = False

    kill = close


def linked(feeds: Feeds, last: int, id: bytes = ID) -> Downstream:
    """A new link, over which nothing was acknowledged yet."""
    link = Downstream(id, "127.0.0.1", 1, Feed(Shipped([last]), last, 0.0), Sink(), lambda: None)
    feeds.add(link, 0, 0.0)
    return link


def acknowledged(feeds: Feeds, link: Downstream, written: int, fsynced: int) -> None:
    feeds.received(link, Ack(written, fsynced).pack(), 1.0)


@pytest.fixture
def feeds(tmp_path: Path) -> Iterator[Feeds]:
    with tidelog.open(tmp_path / "leader", fsync="no") as db:
        yield Feeds(inside.core(db))


def sent(feeds: Feeds, feed: Feed, now: float) -> list[Message]:
    """The messages that go out now."""
    messages = Messages(FROM_LEADER)
    messages.put(shipped(feeds, feed, now))
    return list(messages)


def following(disk: SimulatedDisk) -> Follower:
    """An empty follower."""
    copy = tidelog.open(Path("/copy"), fsync="no", disk=disk)
    begin_to_follow(copy)
    return Follower(inside.core(copy))


def test_under_always_a_frame_is_shipped_when_it_is_synced() -> None:
    disk = SimulatedDisk()
    db = tidelog.open(Path("/leader"), fsync="always", disk=disk)
    db.set("a", "1")
    core, feeds = inside.core(db), Feeds(inside.core(db))
    _, feed = feeds.answer(parse_follow(following(disk).hello()), 0.0)
    assert feed is not None
    assert any(isinstance(message, Frames) for message in sent(feeds, feed, 0.0))
    core.command(0, [b"SET", b"a", b"2"])  # its caller waits for the sync, and this test does not
    lsn = core.log.next_lsn - 1
    (beat,) = sent(feeds, feed, 2.0)
    assert isinstance(beat, Beat) and (beat.last, beat.good) == (lsn, lsn - 1)
    core.log.sync_through(lsn)
    (frames,) = sent(feeds, feed, 2.5)
    assert isinstance(frames, Frames) and b"2" in frames.data


def test_the_life_of_a_leader_is_in_its_log_before_anything_is_shipped() -> None:
    disk = SimulatedDisk()
    with tidelog.open(Path("/leader"), fsync="no", disk=disk) as db:
        db.set("a", "1")
    db = tidelog.open(Path("/leader"), fsync="no", disk=disk)  # a life that has written nothing
    feeds = Feeds(inside.core(db))
    _, feed = feeds.answer(parse_follow(following(disk).hello()), 0.0)
    assert feed is not None
    lives = [life.number for life in inside.checkpoints(db).epochs]
    assert lives == [first_number(0) + 1, first_number(0) + 2]
    beat, *_ = sent(feeds, feed, 0.0)
    assert isinstance(beat, Beat) and beat.last == 3


def test_under_always_the_life_of_an_idle_leader_is_synced() -> None:
    """No other write may follow for long, and the follower has caught up only with the end of the log."""
    disk = SimulatedDisk()
    with tidelog.open(Path("/leader"), fsync="always", disk=disk) as db:
        db.set("a", "1")
    db = tidelog.open(Path("/leader"), fsync="always", disk=disk)
    feeds = Feeds(inside.core(db))
    _, feed = feeds.answer(parse_follow(following(disk).hello()), 0.0)
    assert feed is not None
    beat, *_ = sent(feeds, feed, 0.0)
    assert isinstance(beat, Beat) and (beat.last, beat.good) == (3, 3)


def test_written_and_fsynced_are_counted_apart(feeds: Feeds) -> None:
    link = linked(feeds, 5)
    assert (feeds.count(1, False), feeds.count(1, True)) == (0, 0)
    acknowledged(feeds, link, 5, 3)
    assert (feeds.count(5, False), feeds.count(5, True)) == (1, 0)
    assert feeds.count(3, True) == 1
    acknowledged(feeds, linked(feeds, 5, b"another copy, 16"), 4, 4)
    assert (feeds.count(4, False), feeds.count(4, True), feeds.count(5, False)) == (2, 1, 1)


def test_a_connection_that_is_gone_counts_for_nothing(feeds: Feeds) -> None:
    """The follower that comes back may have lost its power, and says itself how far it is."""
    old = linked(feeds, 5)
    acknowledged(feeds, old, 5, 5)
    feeds.lost(old)
    assert (feeds.count(5, False), feeds.count(5, True)) == (0, 0)
    new = linked(feeds, 5)
    acknowledged(feeds, old, 5, 5)  # was under way
    assert feeds.count(1, False) == 0
    acknowledged(feeds, new, 4, 0)
    assert (feeds.count(4, False), feeds.count(5, False), feeds.count(1, True)) == (1, 0, 0)


def test_an_acknowledgement_of_another_history_counts_for_nothing(feeds: Feeds) -> None:
    """The log was rewound since, so the LSN is another record's by now."""
    core = feeds._core
    acknowledged(feeds, linked(feeds, 5), 5, 5)
    assert core.roles is not None and feeds.count(5, True) == 1
    core.roles.rewinds += 1
    assert (feeds.count(5, False), feeds.count(5, True), core.acks.through(core.log, 1)) == (
        0,
        0,
        0,
    )


def test_a_promise_of_an_earlier_log_is_not_confirmed(feeds: Feeds) -> None:
    core, log = feeds._core, feeds._core.log
    acknowledged(feeds, linked(feeds, 5), 5, 5)
    assert core.roles is not None and core.acks.count(log, 5, False) == 1
    core.roles.follow("127.0.0.1", 1)
    assert core.acks.count(log, 5, False) == core.acks.through(log, 1) == 0


def test_a_wait_ends_when_enough_followers_are_there(feeds: Feeds) -> None:
    told: list[str] = []
    one, two = linked(feeds, 5), linked(feeds, 5, b"another copy, 16")
    acks, log = feeds._core.acks, feeds._core.log
    assert not acks.begin(Awaited(log, 4, 2, False, lambda: told.append("written")))
    assert not acks.begin(Awaited(log, 4, 1, True, lambda: told.append("fsynced")))
    acknowledged(feeds, one, 3, 3)
    acknowledged(feeds, two, 5, 3)
    assert not told
    assert acks.begin(Awaited(log, 3, 2, False, lambda: told.append("at once")))
    later = Awaited(log, 4, 2, False, lambda: told.append("later"))
    assert not acks.begin(later) and acks.forget(later)
    acknowledged(feeds, one, 4, 3)
    assert told == ["written"]
    acknowledged(feeds, two, 5, 4)
    assert told == ["written", "fsynced"]


def test_a_second_connection_of_one_copy_is_refused_until_the_first_is_silent(
    feeds: Feeds,
) -> None:
    old = linked(feeds, 5)
    assert feeds.rival(ID, 1.0) is not None and len(feeds) == 1
    assert feeds.rival(ID, 60.0) is None
    assert len(feeds) == 0 and isinstance(old.sink, Sink) and not old.sink.open


def test_a_follower_that_comes_back_with_less_needs_the_log_from_there(feeds: Feeds) -> None:
    link = linked(feeds, 9)
    acknowledged(feeds, link, 9, 9)
    assert [lsn for _, lsn in feeds.needed(1.0, 60.0)] == [9]
    feeds.lost(link)
    feeds.add(link, 4, 2.0)  # it has given up records meanwhile
    assert [lsn for _, lsn in feeds.needed(2.0, 60.0)] == [4]


class _Endless:
    """A log that is never at its end."""

    def read(self, nbytes_max: int, good: tuple[int, int]) -> bytes:
        return bytes(nbytes_max)

    def at_end(self, good: tuple[int, int]) -> bool:
        return False


def test_a_newer_copy_is_told_of_once(feeds: Feeds, caplog: pytest.LogCaptureFixture) -> None:
    assert feeds.superseded is None
    for _ in range(3):
        feeds.supersede("10.0.0.2:6379", 7)
    assert str(feeds.superseded) == "10.0.0.2:6379, generation 7"
    assert len(caplog.messages) == 1
    feeds.supersede("10.0.0.3:6379", 8)
    assert "10.0.0.3:6379" in caplog.messages[-1]


def test_many_followers_that_read_nothing_share_the_memory(feeds: Feeds) -> None:
    """Strangers that ask for the log and read nothing get less each, the more they are."""
    sinks = [Sink(takes=False) for _ in range(2000)]
    for number, sink in enumerate(sinks):
        feed = Feed(_Endless(), 0, 0.0)
        id_ = number.to_bytes(16, "big")
        feeds.add(Downstream(id_, "127.0.0.1", 1, feed, sink, lambda: None), 0, 0.0)
        if number < 20 or not number % 100:
            with feeds._core.lock:
                end = feeds.end()
            feeds.pump(end, 0.0)
        if number == 19:  # twenty are usual, and none waits for another one
            assert all(each.unsent > 900_000 for each in sinks[:20])
    held = sum(sink.unsent for sink in sinks)
    assert held < 256 << 20, f"{held >> 20} MiB"
    assert min(sink.unsent for sink in sinks[:1900]) > 10_000  # none gets nothing at all
