"""kill -9 of either side while a leader hands over, under clients: one store leads, and nothing confirmed is gone."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path

import pytest
import redis
from tests.replication.processes import Node, ended
from tests.server.durability.load import Load, check
from tests.until import until

import tidelog

CLIENTS = 6
# How far a round lets the handover come before one side is killed: seconds, drawn at random up to this.
PAUSE_S_MAX = 0.05


class Clients(Load):
    """Clients that end when their server leads no more."""

    def _run(self, number: int, port: int) -> None:
        try:
            super()._run(number, port)
        except AssertionError as error:
            if "READONLY" not in str(error):
                raise


def kind(node: Node) -> str:
    """`master`, `slave`, or `handing over`."""
    with node.client() as client:
        told = client.info("replication")
        if told["master_failover_state"] != "no-failover":
            return "handing over"
        return str(told["role"])


def led(nodes: tuple[Node, Node]) -> tuple[Node, Node]:
    """(leader, follower), once both know it and are linked."""

    def settled() -> bool:
        return sorted(map(kind, nodes)) == ["master", "slave"]

    until(settled, "the handover does not end")
    leader, follower = nodes if kind(nodes[0]) == "master" else nodes[::-1]
    until(follower.is_linked, "the follower does not connect")
    return leader, follower


def takes_a_write(node: Node) -> bool:
    """Whether it takes one soon: a leader that waits for its follower lets clients wait, too."""
    try:
        with redis.Redis(port=node.port, socket_timeout=0.3) as client:
            client.xadd("tried", {"n": 1})
    except (redis.ReadOnlyError, redis.ConnectionError, redis.TimeoutError):
        return False
    return True


def rounds(root: Path, policy: str, count: int, seed: int) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    nodes = Node(root / "one", f"appendfsync={policy}"), Node(root / "two", f"appendfsync={policy}")
    load = Clients(CLIENTS)
    with ended(*nodes):
        for node in nodes:
            node.start()
        nodes[1].follow(nodes[0].port)
        for _ in range(count):
            leader, follower = led(nodes)
            load.start(leader.port, pick.randint(20, 200))
            assert load.enough.wait(60)
            with leader.client() as client, suppress(redis.ConnectionError):
                assert client.execute_command("FAILOVER") == b"OK"
            time.sleep(pick.random() * PAUSE_S_MAX)  # a moment to kill it at, nothing to wait for
            victim = pick.choice((leader, follower, None))
            if victim is not None:
                victim.kill()
                alone = follower if victim is leader else leader
                takes_a_write(alone)
                victim.start()
            assert sum(takes_a_write(node) for node in nodes) <= 1
            led(nodes)
            load.stop()
        leader, follower = led(nodes)
        lsn = leader.lsn()
        until(lambda: follower.lsn() >= lsn, "the follower does not catch up")
        for node in nodes:
            node.end()
    with tidelog.open(nodes[0].root) as one, tidelog.open(nodes[1].root) as two:
        assert one.digest() == two.digest()
        check(one, load.promised)


def test_a_few_rounds(tmp_path: Path) -> None:
    rounds(tmp_path, "everysec", 2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_eight_rounds(tmp_path: Path, policy: str) -> None:
    rounds(tmp_path, policy, 8, seed=2)
