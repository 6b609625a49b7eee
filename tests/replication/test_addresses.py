"""Addresses at which no leader can be: the follower says why, tries again, and takes another address."""

from __future__ import annotations

from typing import Any

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import equal
from tests.until import until


def failure(client: Any) -> str:
    return str(client.info("replication").get("master_link_failure", ""))


@pytest.mark.parametrize("host", ["a" * 70, "a..b", ".a", "127.0.0.1.", "no-such-host.invalid"])
def test_a_host_that_is_not_found(pair: Pair, host: str) -> None:
    pair.db.xadd("orders", {"n": 1})
    db = pair.open("follower")
    client = pair.client(pair.serve(db).port)
    assert client.execute_command("REPLICAOF", host, "1") == b"OK"
    until(lambda: f"{host}:1: " in failure(client), "the follower does not say why")
    assert client.role()[3] in (b"connect", b"connecting")
    assert client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port)) == b"OK"
    equal(pair.db, db)


def test_a_store_that_follows_itself(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 1})
    client = pair.client()
    assert client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port)) == b"OK"
    until(lambda: "A store cannot follow itself" in failure(client))
    assert client.xlen("orders") == 1
    assert client.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
    client.xadd("orders", {"n": 2})


def test_followers_of_each_other(pair: Pair) -> None:
    """They stay as they are, and one of them can be made the leader."""
    second, port = pair.follower("second")
    pair.db.xadd("orders", {"n": 1})
    equal(pair.db, second)
    first, other = pair.client(), pair.client(port)
    assert first.execute_command("REPLICAOF", "127.0.0.1", str(port)) == b"OK"
    until(lambda: first.role()[3] == other.role()[3] == b"connected")
    before = first.role()[4]
    assert (first.xlen("orders"), other.xlen("orders")) == (1, 1)
    assert first.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
    first.xadd("orders", {"n": 2})
    equal(pair.db, second)
    assert first.role()[1] > before
