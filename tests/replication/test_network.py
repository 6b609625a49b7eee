"""Random histories of a leader and its followers: writes, cut links, killed processes, power cuts, promotions."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.replication.network import Network, Node
from tests.rounds import rest_slow

from tidelog.store.tokens import Verdict, look

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
        node.lose_wire("cut")
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


class PowerCut(BaseException):
    """Nothing is written any more."""


def hand_over(seed: int, steps: int) -> Counter[str]:
    """FAILOVER again and again, cut off, killed and without power at every step, and in the middle of one."""
    net = Network(seed, 2 + seed % 2)
    r = net.r
    net.surplus_s = 1e9
    confirmed: list[bytes] = []
    for node in net.nodes[1:]:
        node.follow(net.nodes[0])

    def leader() -> Node | None:
        """The store that takes writes."""
        found = [node for node in net.nodes if node.takes_writes]
        assert len(found) <= 1, "two leaders take writes"
        return found[0] if found else None

    def write() -> None:
        node = leader()
        if node is None:
            return
        net.write(node)
        id_ = net.run(node, b"XADD", b"kept", b"*", b"n", b"1")
        if r.random() < 0.5:
            node.core.log.sync_through(node.core.log.next_lsn - 1)
            node.durable = max(node.durable, node.core.log.synced_lsn)
            confirmed.append(id_)

    def move() -> None:
        free = [node for node in net.nodes if node.follower is not None and not node.hands_over]
        if not free:
            return
        node = r.choice(free)
        if node.wire is None:
            net.dial(node)
        for _ in range(r.choice((1, 5, 30))):
            if node.wire is not None and node.promotion is None:
                net.move(node)

    def begin() -> None:
        node = leader()
        if node is not None:
            linked = [other for other in net.nodes if other.wire is not None]
            if linked:
                net.begin_handover(node, r.choice(linked))

    def go_on() -> None:
        for _ in range(r.choice((1, 3))):
            busy = [node for node in net.nodes if node.hands_over]
            if busy:
                crash(r.choice(busy)) if r.random() < 0.07 else net.go_on(r.choice(busy))

    def crash(node: Node) -> None:
        """A kill or a power cut in the middle of a step."""
        left = r.randrange(12)

        def count(operation: str, path: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerCut

        node.disk.before = count
        try:
            net.go_on(node)
        except PowerCut:
            net.counts["in the middle"] += 1
        finally:
            node.disk.before = None
        r.choice((node.kill, node.power_cut))()

    def cut() -> None:
        r.choice(net.nodes).lose_wire("cut")

    def end() -> None:
        r.choice([node.kill if r.random() < 0.5 else node.power_cut for node in net.nodes])()

    try:
        for _ in range(steps):
            net.step(
                [
                    (3, write),
                    (14, move),
                    (3, lambda: net.pass_time(r.choice((0.001, 0.3, 2.0)))),
                    (2.5, begin),
                    (9, go_on),
                    (0.5, cut),
                    (0.4, end),
                ]
            )
            leader()
        # All come back, and the questions that are open are answered.
        for _ in range(3000):
            if leader() is not None and not any(node.role.hands_over for node in net.nodes):
                break
            net.pass_time(0.01)
            for node in net.nodes:
                move()
                net.go_on(node)
        last = leader()
        assert last is not None, [node.role for node in net.nodes]
        if last.handover is not None:
            last.core.roles.release()
        for node in net.nodes:
            if node is not last:
                node.promotion = None
                node.follow(last)
        for node in net.nodes:
            assert node is last or net.settle(node), (node, node.why)
        net.check()
        for node in net.nodes:
            assert node.frames() == last.frames()
        kept = {entry[0] for entry in net.run(last, b"XRANGE", b"kept", b"-", b"+") or []}
        assert kept.issuperset(confirmed), "a confirmed write is gone"
    finally:
        net.close()
    return net.counts


def confirm(seed: int, steps: int) -> Counter[str]:
    """The leader dies, and its furthest follower is promoted. Nothing confirmed is gone, and no token lies.

    Even seeds: processes are killed. Odd seeds: machines lose power, and what followers have fsynced is confirmed.
    """
    net = Network(seed, 2 + seed // 2 % 2)
    r, power = net.r, bool(seed % 2)
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
        net.note_confirmed(leader, power)

    def die(node: Node) -> None:
        node.power_cut() if power else node.kill()

    def fail() -> None:
        nonlocal leader
        for node in net.nodes:
            if node is leader or power or r.random() < 0.3:
                die(node)
        fit = [node for node in others() if node.generation == leader.generation]
        if not fit or leader.upstream is not None:
            return
        old, leader = leader, max(fit, key=lambda node: node.last)
        leader.promote()
        net.counts["promoted"] += 1
        if r.random() < 0.5:
            net.write_and_note(old)  # nobody has told it yet
        for token in net.confirmed:
            assert look(leader.core, token) is Verdict.HERE, str(token)
        for node in others():
            node.follow(leader)

    try:
        for node in others():
            assert net.settle(node), node.why  # all share a life
        for step in range(steps):
            net.step(
                [
                    (8, lambda: net.write_and_note(leader)),
                    (8, move),
                    (1, lambda: net.pass_time(r.choice((0.001, 0.3, 2.0)))),
                    (0.3, lambda: die(r.choice(others()))),
                    (0.3, fail),
                ]
            )
            if step % 20 == 0:
                for node in net.nodes:
                    net.check_tokens(node)
        for node in others():
            assert net.settle(node), (node, node.why)
        for node in net.nodes:
            told = net.check_tokens(node)
            assert not told[Verdict.COMING], told
        net.counts["lost"] += told[Verdict.LOST]
        for token in net.confirmed:
            assert look(leader.core, token) is Verdict.HERE, str(token)
        net.check()
    finally:
        net.close()
    return net.counts


@pytest.mark.parametrize("first", rest_slow(range(0, 1000, HISTORIES), 3))
def test_a_handover_never_leaves_two_leaders(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + HISTORIES):
        print("seed", seed)
        counts += hand_over(seed, 200)
    assert counts["told"] > 3 and counts["handed over"] + counts["heir leads"] > 1, counts


@pytest.mark.parametrize("first", rest_slow(range(0, 500, HISTORIES), 2))
def test_nothing_confirmed_is_lost_and_no_token_lies(first: int) -> None:
    counts: Counter[str] = Counter()
    for seed in range(first, first + HISTORIES):
        print("seed", seed)
        counts += confirm(seed, 120)
    assert counts["confirmed"] > 50 and counts["promoted"] > 3 and counts["lost"] > 3, counts
