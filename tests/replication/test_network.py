"""Random histories of a leader and its followers: writes, cut links, killed processes, power cuts, promotions."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.replication.network import Network, Node
from tests.rounds import rest_slow

HISTORIES = 10


def live(seed: int, steps: int) -> Counter[str]:
    """A leader, a follower of it, and perhaps a follower of that one."""
    net = Network(seed, 2 + seed % 2)
    r = net.r
    leader, *others = net.nodes
    for at, node in enumerate(others):
        node.follow(net.nodes[at] if r.random() < 0.5 else leader)

    def some_follower() -> Node:
        return r.choice(others)

    def move() -> None:
        node = some_follower()
        if node.wire is None:
            net.dial(node)
        for _ in range(r.choice((1, 5, 30))):
            if node.wire is not None:
                net.move(node)

    def cut() -> None:
        node = some_follower()
        node.wire = None
        net.counts["cut"] += 1

    def kill() -> None:
        r.choice(net.nodes).kill()
        net.counts["kill"] += 1

    def lose_power() -> None:
        some_follower().power_cut()
        net.counts["power cut"] += 1

    def lose_the_leaders_power() -> None:
        # What its policy has not made durable may be gone, and a follower may have it: that is not this history.
        if leader.policy == "always":
            leader.power_cut()
            net.counts["power cut"] += 1

    try:
        for _ in range(steps):
            net.step(
                [
                    (6, lambda: net.write(leader)),
                    (8, move),
                    (1, lambda: net.pass_time(r.choice((0.001, 0.3, 2.0)))),
                    (0.5, cut),
                    (0.2, kill),
                    (0.2, lose_power),
                    (0.1, lose_the_leaders_power),
                ]
            )
        for node in sorted(others, key=lambda node: node.upstream is not leader):
            assert net.settle(node), (node, node.why)
        net.check()
        for node in others:
            assert net.nodes[0].core.roles.uuid == node.core.roles.uuid
            assert node.frames() == leader.frames()
    finally:
        net.close()
    return net.counts


@pytest.mark.parametrize("first", rest_slow(range(0, 2000, HISTORIES), 4))
def test_followers_are_their_leader(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + HISTORIES):
        print("seed", seed)
        counts += live(seed, 120)
    assert counts["write"] > 100 and counts["dial"] > 10, counts


def fail_over(seed: int, steps: int) -> Counter[str]:
    """Leaders lose what their policy has not made durable, followers are promoted, and all come back."""
    net = Network(seed, 2 + seed % 2)
    r = net.r
    net.surplus_s = 1e9
    leader = net.nodes[0]

    def others() -> list[Node]:
        return [node for node in net.nodes if node is not leader]

    for node in others():
        node.follow(leader)

    def move() -> None:
        node = r.choice(others())
        if node.wire is None:
            net.dial(node)
        for _ in range(r.choice((1, 5, 30))):
            if node.wire is not None:
                net.move(node)

    def lose_power() -> None:
        r.choice(net.nodes).power_cut()
        net.counts["power cut"] += 1

    def kill() -> None:
        r.choice(net.nodes).kill()

    def promote() -> None:
        nonlocal leader
        # One that does not know the newest generation would begin it a second time, and then only a person may choose.
        fit = [node for node in others() if node.generation == leader.generation]
        if not fit:
            return
        old, leader = leader, r.choice(fit)
        leader.promote()
        net.counts["promoted"] += 1
        if r.random() < 0.5:
            net.write(old)  # nobody has told it yet
        for node in others():
            node.follow(leader)

    try:
        for node in others():
            assert net.settle(node), node.why  # all share a life
        for _ in range(steps):
            net.step(
                [
                    (8, lambda: net.write(leader)),
                    (8, move),
                    (1, lambda: net.pass_time(r.choice((0.001, 0.3, 2.0)))),
                    (0.6, lose_power),
                    (0.3, kill),
                    (0.3, promote),
                ]
            )
        for node in others():
            assert net.settle(node), (node, node.why)
        net.check()
        for node in others():
            assert node.frames() == leader.frames()
    finally:
        net.close()
    return net.counts


@pytest.mark.parametrize("first", rest_slow(range(0, 500, HISTORIES), 3))
def test_a_surplus_is_set_aside(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + HISTORIES):
        print("seed", seed)
        counts += fail_over(seed, 120)
    assert counts["rejoin"] > 3 and counts["promoted"] > 3, counts
