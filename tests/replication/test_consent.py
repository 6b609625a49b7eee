"""REPLICAOF host port REPLACE: a person gives up records that nobody has given up yet."""

from __future__ import annotations

import pytest
import redis
from tests.replication.conftest import Pair
from tests.replication.network import Network, Node
from tests.until import until

from tidelog.store.roles import Roles


def promote(roles: Roles) -> None:
    """Begin the next generation, also in a leader."""
    roles.follow("elsewhere", 1)
    roles.promote()


def two_leaders(seed: int) -> tuple[Network, Node, Node]:
    """Both have records that the other one lacks, in lives of one generation."""
    net = Network(seed, 2)
    one, other = net.nodes
    other.follow(one)
    for _ in range(9):
        net.write(one)
    assert net.settle(other)
    for node in net.nodes:
        promote(node.core.roles)
        for _ in range(9):
            net.write(node)
    return net, one, other


def test_consent_is_asked_for_and_given() -> None:
    net, one, other = two_leaders(1)
    before = other.all_frames()
    other.follow(one)
    assert not net.settle(other)
    assert "REPLICAOF host port REPLACE" in other.why
    assert other.all_frames() == before and net.counts["rejoin"] == 0
    other.follow(one, consent=True)
    assert net.settle(other), other.why
    assert other.frames() == one.frames()
    assert other.all_frames() >= before
    net.close()


def test_consent_is_for_one_parting() -> None:
    net, one, other = two_leaders(2)
    other.follow(one, consent=True)
    assert net.settle(other), other.why
    assert not other.core.roles.consent
    # they part again
    promote(other.core.roles)
    net.write(other)
    promote(one.core.roles)
    net.write(one)
    assert one.generation == other.generation
    before = other.frames()
    other.follow(one)
    assert not net.settle(other)
    assert other.frames() == before
    net.close()


@pytest.mark.parametrize("change", ["another leader", "promoted"])
def test_consent_ends_with_the_role(change: str) -> None:
    net, one, other = two_leaders(3)
    other.follow(one, consent=True)
    assert other.core.roles.consent
    if change == "promoted":
        other.promote()
    other.follow(one)
    assert not other.core.roles.consent
    assert not net.settle(other)
    net.close()


def test_a_newer_generation_is_never_replaced() -> None:
    net, one, other = two_leaders(4)
    promote(other.core.roles)
    before = other.frames()
    other.follow(one, consent=True)
    assert not net.settle(other)
    assert "promoted later" in other.why and other.frames() == before
    net.close()


def test_the_command(pair: Pair) -> None:
    db, port = pair.follower()
    client, leader = pair.client(port), pair.client()
    leader.xadd("orders", {"n": 1})
    until(lambda: client.xlen("orders") == 1)
    client.execute_command("REPLICAOF", "NO", "ONE")
    client.xadd("orders", {"n": "here"})
    roles = pair.db._core.roles
    assert isinstance(roles, Roles)
    promote(roles)
    leader = pair.client()
    leader.xadd("orders", {"n": "there"})
    address = "127.0.0.1", str(pair.proxy.port)
    client = pair.client(port)
    assert client.execute_command("REPLICAOF", *address) == b"OK"
    client = pair.client(port)
    until(lambda: "REPLACE" in str(client.info("replication").get("master_link_failure", "")))
    for words in ((*address, "REPLACED"), (*address, "REPLACE", "x"), ("NO", "ONE", "REPLACE")):
        with pytest.raises(redis.ResponseError, match="wrong number|syntax"):
            client.execute_command("REPLICAOF", *words)
    assert client.execute_command("REPLICAOF", *address, "replace") == b"OK"
    until(lambda: client.info("replication")["master_link_status"] == "up")
    until(lambda: db.digest() == pair.db.digest())
    assert [row[b"n"] for _, row in client.xrange("orders")] == [b"1", b"there"]
    assert db.role().reason == "followed by REPLICAOF with REPLACE"
