"""Status: how far followers are behind, and which one is the furthest."""

from __future__ import annotations

from pathlib import Path

from tests import inside

import tidelog
from tidelog.replication import feed
from tidelog.replication.feed import Feed
from tidelog.replication.feeds import Downstream, Feeds
from tidelog.replication.protocol import Ack
from tidelog.replication.status import of_open


class Nothing:
    """A source and a sink of a follower to which nothing is sent."""

    unsent = 0

    def read(self, nbytes_max: int, good: tuple[int, int]) -> bytes:
        return b""

    def at_end(self, good: tuple[int, int]) -> bool:
        return True

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    kill = close


def beat(feeding: Feed, now: float, last: int) -> None:
    """A sign of life of the leader, whose log ends with this LSN."""
    feeding.send(now, 0, (1, 0), (last, 0), last, 1 << 16)


def reach(feeding: Feed, lsn: int, now: float) -> None:
    """The follower acknowledges everything through this LSN."""
    feeding.receive(Ack(lsn, lsn).pack(), now)


def test_the_furthest_is_the_one_with_most(tmp_path: Path) -> None:
    with tidelog.open(tmp_path) as db:
        db.xadd("orders", {"n": 1})
        core = inside.core(db)
        feeds = Feeds(core)
        for lsn, host in ((1, "near"), (2, "far"), (0, "new")):
            feeding = Feed(Nothing(), 2, 0.0)
            feeds.add(Downstream(host.encode(), host, 1, feeding, Nothing(), int), lsn, 0.0)
            beat(feeding, 1.0, 2)
            reach(feeding, lsn, 2.0)
        told = of_open(core, feeds, ["copying:1"], 5.0)()
    assert told["furthest"] == "far:1" and told["last_lsn"] == 2
    near, far, new, copying = told["followers"]
    lags = [(each["lag_lsn"], each["lag_seconds"]) for each in (near, far, new)]
    assert lags == [(1, 4.0), (0, 0.0), (2, 4.0)]
    assert far["lag_bytes"] == 0 < near["lag_bytes"] < new["lag_bytes"]
    assert far["heard_seconds"] == 3.0
    assert copying == {"address": "copying:1", "state": "fetching a copy"}


def test_a_follower_lags_since_the_leader_had_what_it_lacks() -> None:
    feeding = Feed(Nothing(), 0, 0.0)
    for now, last in ((0.0, 5), (1.0, 5), (2.0, 9)):
        beat(feeding, now, last)
    assert feeding.lag_seconds(3.0) == 3.0
    reach(feeding, 5, 3.0)
    assert feeding.lag_seconds(3.0) == 1.0
    reach(feeding, 9, 3.0)
    assert feeding.lag_seconds(9.0) == 0.0
    beat(feeding, 9.0, 9)
    assert feeding.lag_seconds(10.0) == 0.0


def test_a_follower_that_is_far_behind_costs_no_memory() -> None:
    feeding = Feed(Nothing(), 0, 0.0)
    for second in range(10_000):
        beat(feeding, float(second), second + 1)
    assert feeding.lag_seconds(10_000.0) == 10_000.0
    assert len(feeding._marks) <= feed._MARKS_MAX
    reach(feeding, 9_000, 10_000.0)
    assert 900 <= feeding.lag_seconds(10_000.0) <= 1_002
