"""WAIT beside an ACK that comes between its look at the followers and its wait for them."""

from __future__ import annotations

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up

from tidelog.replication.feeds import Feeds


def test_an_ack_that_comes_just_before_the_wait_ends_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = pair.follow()
    client = pair.client()
    client.xadd("orders", {"n": 1})
    caught_up(pair.db, follower)
    assert client.execute_command("WAITAOF", "0", "1", "20000")[1] == 1  # no ACK is to come
    count, asked = Feeds.count, 0

    def later(feeds: Feeds, lsn: int, fsynced: bool) -> int:
        """The first look comes before the ACK."""
        nonlocal asked
        asked += 1
        return 0 if asked == 1 else count(feeds, lsn, fsynced)

    monkeypatch.setattr(Feeds, "count", later)
    before = client.time()[0]
    assert client.wait(1, 20_000) == 1
    assert client.time()[0] - before < 10 and asked > 1
