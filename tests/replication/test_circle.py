"""Stores that follow each other, or themselves, get nothing: each link is down and says why, as in Redis."""

from __future__ import annotations

from typing import Any

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.until import until

import tidelog
from tidelog.replication import link as links


def down(client: Any, why: str = "NOMASTERLINK") -> bool:
    told = client.info("replication")
    return bool(told["master_link_status"] == "down" and why in str(told["master_link_failure"]))


def test_two_that_follow_each_other(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "REFUSED_PAUSE_S", 0.01)
    pair.db.xadd("orders", {"n": 0})
    db, port = pair.follower()
    caught_up(pair.db, db)
    clients = pair.client(), pair.client(port)
    # not through the proxy: each knows the other by its address
    clients[1].execute_command("REPLICAOF", "127.0.0.1", pair.port)
    until(lambda: clients[1].info("replication")["master_link_status"] == "up")
    clients[0].execute_command("REPLICAOF", "127.0.0.1", port)
    until(lambda: all(down(client) for client in clients), "a link looks connected")
    for client in clients:
        assert client.role()[3] != b"connected"
        assert client.xlen("orders") == 1
    # either of them may lead again
    clients[0].execute_command("REPLICAOF", "NO", "ONE")
    pair.db.xadd("orders", {"n": 1})
    equal(pair.db, db)
    until(lambda: clients[1].info("replication")["master_link_status"] == "up")


def test_itself(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "REFUSED_PAUSE_S", 0.01)
    pair.db.xadd("orders", {"n": 0})
    pair.client().execute_command("REPLICAOF", "127.0.0.1", pair.port)
    client = pair.client()
    until(lambda: down(client, "A store cannot follow itself"), "it looks connected to itself")
    assert client.xlen("orders") == 1
    client.execute_command("REPLICAOF", "NO", "ONE")
    assert pair.db.xadd("orders", {"n": 1})


def test_a_chain_goes_on_while_its_leader_is_away(pair: Pair) -> None:
    """A follower keeps its own followers, and gets new ones when it is connected again."""
    pair.db.xadd("orders", {"n": 0})
    middle, port = pair.follower("middle")
    caught_up(pair.db, middle)
    url = f"tidelog://127.0.0.1:{port}"
    with tidelog.follow(pair.root / "last", url) as last:
        equal(pair.db, last)
        pair.proxy.open.clear()
        pair.proxy.cut()
        client = pair.client(port)
        until(lambda: client.info("replication")["master_link_status"] == "down")
        assert client.info("replication")["connected_slaves"] == 1
        with tidelog.follow(pair.root / "new", url) as new:
            until(lambda: "NOMASTERLINK" in new.info()["replication"]["link_failure"])
            pair.proxy.open.set()
            pair.db.xadd("orders", {"n": 1})
            equal(pair.db, last)
            equal(pair.db, new)
