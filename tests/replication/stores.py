"""A leader's store and a follower's: what passes between them, until they hold the same frames."""

from __future__ import annotations

from tests import inside
from tests.until import until

import tidelog
from tidelog.aof import identity
from tidelog.aof.log import WRITTEN
from tidelog.aof.seek import Source, position_after
from tidelog.replication.feed import Feed
from tidelog.replication.feeds import Feeds


def begin_to_follow(db: tidelog.Store) -> None:
    """Make a store a follower. No test connects to this address of a leader."""
    roles = inside.core(db).roles
    assert roles is not None
    roles.follow("127.0.0.1", 1)


def shipped(feeds: Feeds, feed: Feed, now: float) -> bytes:
    """The bytes that a feed sends now: everything that may be shipped."""
    with feeds._core.lock:
        end = feeds.end()
    return feed.send(now, *end, 1 << 20)


def last_lsn(db: tidelog.Store) -> int:
    """Of everything that is in the log."""
    log = inside.log(db)
    with log.lock:
        log.flush()
        return log.written_lsn


def frames(db: tidelog.Store, after: int = 0) -> bytes:
    """The bytes of all frames of an open store's log behind an LSN."""
    core = inside.core(db)
    last_lsn(db)
    roles = core.roles
    assert roles is not None
    directory = core.root / identity.AOF
    position = position_after(roles.disk, directory, roles.uuid, after)
    assert position is not None
    source = Source(roles.disk, directory, roles.uuid, position)
    good = core.log.good(WRITTEN)
    pieces = []
    while piece := source.read(1 << 20, good):
        pieces.append(piece)
    source.close()
    return b"".join(pieces)


def caught_up(leader: tidelog.Store, follower: tidelog.Store) -> None:
    """Until the follower has everything that its leader has now."""
    lsn = last_lsn(leader)
    until(lambda: last_lsn(follower) >= lsn, "the follower does not catch up")


def equal(leader: tidelog.Store, follower: tidelog.Store) -> None:
    """Both have caught up and hold the same."""
    core = inside.core(leader)
    if core.following is None:
        with core.lock:
            core.log.begin_life()  # else the first link does, perhaps after the look at its last LSN
    caught_up(leader, follower)
    assert follower.digest() == leader.digest()
    assert frames(follower) == frames(leader)
