"""kill -9 of a leader or its follower while clients write: the follower goes on, and both end up equal."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.replication.processes import Node, caught_up, ended
from tests.replication.stores import frames
from tests.rounds import rest_slow, slow_and_soak
from tests.server.durability.load import Load, check
from tests.until import until

import tidelog

CLIENTS = 8


def rounds(root: Path, policy: str, count: int, seed: int) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    leader = Node(root / "leader", f"appendfsync={policy}")
    follower = Node(root / "follower", f"appendfsync={policy}")
    load = Load(CLIENTS)
    with ended(leader, follower):
        leader.start()
        follower.start(f"replicaof=127.0.0.1 {leader.port}")
        for _ in range(count):
            victim = pick.choice((leader, follower))
            load.start(leader.port, pick.randint(20, 400))
            assert load.enough.wait(60)
            victim.kill()
            if victim is leader:
                load.stop()
            victim.start()
            if victim is follower:
                load.stop()
            if pick.random() < 0.5:
                caught_up(leader, follower)
        caught_up(leader, follower)
        leader.end()
        follower.end()
    with ExitStack() as stack:
        stores = [stack.enter_context(tidelog.open(node.root)) for node in (leader, follower)]
        assert stores[0].digest() == stores[1].digest()
        assert frames(stores[0]) == frames(stores[1])
        check(stores[1], load.promised)


def test_both_are_equal_afterwards(tmp_path: Path) -> None:
    rounds(tmp_path, "everysec", 2, seed=1)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("count", slow_and_soak(34, 60))
@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_many_rounds(tmp_path: Path, policy: str, count: int) -> None:
    rounds(tmp_path, policy, count, seed=2)


def test_what_wait_confirmed_is_there_after_a_promotion(tmp_path: Path) -> None:
    leader, follower = Node(tmp_path / "leader"), Node(tmp_path / "follower")
    with ended(leader, follower):
        leader.start()
        follower.start(f"replicaof=127.0.0.1 {leader.port}")
        confirmed = []
        with leader.client() as client:
            until(lambda: client.info("replication")["connected_slaves"] == 1)
            for number in range(300):
                id_ = client.xadd("orders", {"n": number})
                if client.wait(1, 60_000) == 1:
                    confirmed.append(id_)
        leader.kill()
        with follower.client() as client:
            assert client.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
            found = {id_ for id_, _ in client.xrange("orders")}
            client.xadd("orders", {"n": -1})
    assert len(confirmed) == 300 and found.issuperset(confirmed)


@pytest.mark.parametrize("policy", rest_slow(["everysec", "always"], 1))
def test_every_reply_that_waited_for_a_follower_is_there_after_a_promotion(
    tmp_path: Path, policy: str
) -> None:
    """With replicate-before-reply; the leader is killed under load."""
    leader = Node(tmp_path / "leader", f"appendfsync={policy}", "replicate-before-reply=1")
    follower = Node(tmp_path / "follower", f"appendfsync={policy}", "replicate-before-reply=1")
    load = Load(CLIENTS)
    with ended(leader, follower):
        leader.start()
        follower.start(f"replicaof=127.0.0.1 {leader.port}")
        until(leader.is_followed, "no follower connects")
        load.start(leader.port, 300)
        assert load.enough.wait(60)
        leader.kill()
        load.stop()
        with follower.client() as client:
            assert client.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
        follower.end()
    with tidelog.open(follower.root) as db:
        check(db, load.promised)
