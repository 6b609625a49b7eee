"""min-replicas-to-write and min-replicas-max-lag: which commands a leader refuses while good followers are missing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import redis
from tests.oracle.wire import OK, QUEUED
from tests.replication.conftest import Pair
from tests.server.wire import Client, calls, connect
from tests.until import until

REFUSED = ("-", b"NOREPLICAS Not enough good replicas to write.")


@pytest.fixture
def lacking(pair: Pair) -> Iterator[tuple[Pair, Client]]:
    """A leader without the follower that it needs, and a connection to it."""
    pair.client().config_set("min-replicas-to-write", 1)
    with closing(connect(pair.port)) as client:
        yield pair, client


def test_writes_are_refused_and_all_else_is_not(lacking: tuple[Pair, Client]) -> None:
    _, client = lacking
    for write in (
        "XADD orders * n 1",
        "SET name 1",
        "FLUSHALL",
        "XREADGROUP GROUP g a STREAMS s >",
    ):
        assert calls(client, write) == [REFUSED], write
    assert calls(client, "XLEN orders", "PUBLISH a b", "PING") == [0, 0, ("+", b"PONG")]
    client.raw(b"*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nn\r\n$1\r\n1\r\n" * 20)
    assert [client.receive() for _ in range(20)] == [REFUSED] * 20


def test_a_transaction_that_writes_is_refused(lacking: tuple[Pair, Client]) -> None:
    pair, client = lacking
    aborted = ("-", b"EXECABORT Transaction discarded because of previous errors.")
    assert calls(client, "MULTI", "SET name 1", "EXEC") == [OK, REFUSED, aborted]
    assert calls(client, "MULTI", "XLEN orders", "PUBLISH a b", "EXEC")[-1] == [0, 0]
    pair.client().config_set("min-replicas-to-write", 0)
    assert calls(client, "MULTI", "SET name 1") == [OK, QUEUED]
    pair.client().config_set("min-replicas-to-write", 1)
    told = (
        b"EXECABORT Transaction discarded because of: NOREPLICAS Not enough good replicas to write."
    )
    assert calls(client, "EXEC", "GET name") == [("-", told), None]


def test_a_follower_that_comes_and_goes(lacking: tuple[Pair, Client]) -> None:
    pair, client = lacking
    admin = pair.client()
    assert admin.info("replication")["min_slaves_good_slaves"] == 0
    pair.follow()
    until(lambda: calls(client, "SET name 1") == [OK])
    assert admin.info("replication")["min_slaves_good_slaves"] == 1
    admin.config_set("min-replicas-to-write", 2)
    assert calls(client, "SET name 1") == [REFUSED]
    admin.config_set("min-replicas-to-write", 1)
    pair.proxy.close()
    until(lambda: calls(client, "SET name 1") == [REFUSED])


def test_a_silent_follower_is_no_good_one(lacking: tuple[Pair, Client], monkeypatch: Any) -> None:
    pair, client = lacking
    admin = pair.client()
    admin.config_set("min-replicas-max-lag", 0)
    assert calls(client, "SET name 1") == [OK]
    assert "min_slaves_good_slaves" not in admin.info("replication")
    admin.config_set("min-replicas-max-lag", 3)
    admin.config_set("repl-timeout", 1000)
    pair.follow()
    until(lambda: calls(client, "SET name 1") == [OK])
    (link,) = pair.server.replicating.feeding.feeds
    # It was heard long ago, and what comes now is not told.
    monkeypatch.setattr(type(link.feed), "receive", lambda feed, data, now: [])
    link.feed.heard_at -= 3.9
    until(lambda: calls(client, "SET name 1") == [REFUSED])
    assert len(pair.server.replicating.feeding.feeds) == 1
    assert admin.info("replication")["min_slaves_good_slaves"] == 0


def test_a_follower_does_not_count_its_followers(pair: Pair) -> None:
    _, port = pair.follower(min_replicas_to_write=1)
    client = pair.client(port)
    until(lambda: client.info("replication")["master_link_status"] == "up")
    with pytest.raises(redis.ReadOnlyError):
        client.set("name", 1)
    client.execute_command("REPLICAOF", "NO", "ONE")
    with pytest.raises(redis.ResponseError, match="NOREPLICAS Not enough"):
        client.set("name", 1)
