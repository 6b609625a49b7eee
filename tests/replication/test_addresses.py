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
