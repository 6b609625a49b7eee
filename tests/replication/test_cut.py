"""A link that is cut, damaged, stalled or gone: the follower goes on where it was, and nothing is applied twice."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import begin_to_follow, caught_up, equal, last_lsn, shipped
from tests.rounds import rest_slow
from tests.until import PATIENCE_S, until

import tidelog
from tidelog.aof.seek import Source
from tidelog.replication import follower as receiving
from tidelog.replication import link
from tidelog.replication.errors import ReplicationError
from tidelog.replication.feeds import Feeds
from tidelog.replication.follower import Follower
from tidelog.replication.handshake import parse_follow
from tidelog.store.errors import TidelogError


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Links try again without long pauses."""
    monkeypatch.setattr(link, "PAUSE_S_MAX", 0.05)
    monkeypatch.setattr(link, "REFUSED_PAUSE_S", 0.05)


def history(db: tidelog.Store) -> None:
    """A short one, with frames of one and of many records."""
    for number in range(3):
        db.xadd("orders", {"n": number})
    db.xgroup_create("orders", "g", "0")
    db.xreadgroup("g", "c", {"orders": ">"})
    with db.pipeline() as pipe:
        for number in range(5):
            pipe.set(f"k{number}", "v" * number)
        pipe.execute()
    db.delete("k1")


Two = tuple[tidelog.Store, tidelog.Store, Feeds, Follower]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    """A leader with the short history, an empty follower, and both ends of a link that tests carry byte by byte."""
    with (
        tidelog.open(tmp_path / "leader", fsync="no") as leader,
        tidelog.open(tmp_path / "follower", fsync="no") as copy,
    ):
        history(leader)
        begin_to_follow(copy)
        yield leader, copy, Feeds(inside.core(leader)), Follower(inside.core(copy))


def connect(feeds: Feeds, follower: Follower, nbytes: int) -> bool:
    """One connection that is cut behind `nbytes` bytes from the leader. Returns whether all bytes came."""
    opened: list[Source] = []

    def through(source: Source) -> Source:
        opened.append(source)
        return source

    line, feed = feeds.answer(parse_follow(follower.hello()), 0.0, through)
    assert feed is not None, line
    data = line + shipped(feeds, feed, 0.0)
    opened[0].close()
    if nbytes >= len(line):
        follower.answered(line, 0.0)
        follower.receive(data[len(line) : nbytes], 0.0)
        while follower.work(1.0, 0.0):
            pass
        feed.receive(follower.send(0.0), 0.0)
    return nbytes >= len(data)


def test_a_cut_before_every_byte(two: Two) -> None:
    leader, copy, feeds, follower = two
    cuts = nbytes = 0
    before = -1
    # Each connection brings one byte more than the last one did from the same place.
    while not connect(feeds, follower, nbytes):
        cuts += 1
        lsn = last_lsn(copy)
        nbytes = nbytes + 1 if lsn == before else 0
        before = lsn
    assert cuts > 500
    equal(leader, copy)


@pytest.mark.parametrize("seed", rest_slow(range(3), 1))
def test_a_link_that_is_cut_again_and_again(pair: Pair, seed: int, quickly: None) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    pair.proxy.limit = 300
    follower = pair.follow()

    def write() -> bool:
        pair.proxy.limit = pick.choice((150, 400, 1000, 5000))
        for _ in range(pick.randrange(20)):
            pair.db.xadd("orders", {"v": "x" * pick.randrange(300)})
        if pick.random() < 0.05:
            pair.proxy.cut()
        return pair.proxy.count > 15

    until(write)
    pair.proxy.limit = None
    equal(pair.db, follower)


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bytes_are_never_appended(pair: Pair, seed: int, quickly: None) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    flips = 10

    def flip(data: bytes, at: int) -> bytes:
        nonlocal flips
        if flips and data and at:
            flips -= 1
            place = pick.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << pick.randrange(8)]) + data[place + 1 :]
        return data

    pair.proxy.change = flip
    follower = pair.follow()
    begun = time.monotonic()
    while flips and time.monotonic() - begun < (PATIENCE_S if flips == 10 else 3):
        pair.db.xadd("orders", {"n": 1})
        time.sleep(0.005)
        if pick.random() < 0.05:
            pair.proxy.cut()  # a length that was flipped may make the follower wait
    assert flips < 10
    pair.proxy.change = lambda data, at: data
    pair.proxy.cut()
    equal(pair.db, follower)


@pytest.mark.parametrize("how", ["doubled", "missing"])
def test_bytes_that_come_twice_or_never(
    pair: Pair, how: str, quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiving, "MESSAGE_S", 0.0)
    done = False

    def change(data: bytes, at: int) -> bytes:
        nonlocal done
        if done or len(data) < 100:
            return data
        done = True
        return data * 2 if how == "doubled" else data[:50]

    follower = pair.follow(timeout=2)
    caught_up(pair.db, follower)
    until(lambda: len(pair.server.replicating.feeding.feeds) == 1)  # the handshake is over
    pair.proxy.change = change
    for number in range(200):
        pair.db.xadd("orders", {"n": number, "pad": "x" * 200})
    equal(pair.db, follower)
    until(lambda: done)


def test_a_black_hole_is_noticed(pair: Pair, quickly: None) -> None:
    follower = pair.follow(timeout=2)
    until(lambda: follower.info()["replication"].get("link") == "connected")
    count = pair.proxy.count
    pair.proxy.open.clear()
    pair.db.xadd("orders", {"n": 1})
    until(lambda: "silent" in follower.info()["replication"]["link_failure"])
    pair.proxy.open.set()
    equal(pair.db, follower)
    assert pair.proxy.count > count


def test_a_leader_that_is_away_is_tried_again(pair: Pair, quickly: None) -> None:
    follower = pair.follow()
    caught_up(pair.db, follower)
    pair.serving.close()
    until(lambda: follower.info()["replication"]["link_failure"])
    pair.db.xadd("orders", {"n": 1})
    pair.proxy.leader = pair.serve(pair.db).port
    equal(pair.db, follower)


def test_a_stranger_at_the_leaders_address(pair: Pair, quickly: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        pair.proxy.leader = stranger.getsockname()[1]
        follower = pair.follow()
        for words in (
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"*3\r\n$x\r\n",
            b"$9999999999\r\n",
            b"x" * 100_000,
        ):
            link, _ = stranger.accept()
            with link:
                link.sendall(words)
                until(lambda: "tidelog server" in follower.info()["replication"]["link_failure"])
    pair.proxy.leader = pair.port
    pair.proxy.cut()
    equal(pair.db, follower)


def test_after_an_error_the_follower_shell_is_asked_anew(two: Two) -> None:
    """Frames of a leader that lies are never applied, and the next connection begins as if they had not come."""
    leader, copy, feeds, follower = two
    for place in range(60, 600, 7):
        line, feed = feeds.answer(parse_follow(follower.hello()), 0.0)
        assert feed is not None
        data = bytearray(shipped(feeds, feed, 0.0))
        if place >= len(data):
            break
        data[place] ^= 0x40
        follower.answered(line, 0.0)
        with pytest.raises((ReplicationError, TidelogError)):
            follower.receive(bytes(data), 0.0)
            while follower.work(1.0, 0.0):
                pass
            raise ReplicationError("nothing was wrong")
    assert connect(feeds, follower, 1 << 30)
    equal(leader, copy)
