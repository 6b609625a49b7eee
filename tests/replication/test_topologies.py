"""Stores of this program and servers in processes of their own follow each other: either way round, in a chain, and
while one of them is of an older version.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.replication.processes import Node, caught_up, ended
from tests.replication.stores import frames, last_lsn
from tests.until import until

import tidelog


def test_an_embedded_leader_and_a_served_follower(tmp_path: Path) -> None:
    follower = Node(tmp_path / "follower")
    with (
        ended(follower),
        tidelog.open(tmp_path / "leader") as leader,
        tidelog.serve(leader, port=0) as serving,
    ):
        leader.xadd("orders", {"n": 1})
        follower.start(f"replicaof=127.0.0.1 {serving.port}")
        ids = [leader.xadd("orders", {"n": n}) for n in range(2, 50)]
        until(lambda: follower.lsn() == last_lsn(leader))
        with follower.client() as client:
            assert client.info("replication")["role"] == "slave"
            assert [id_ for id_, _ in client.xrange("orders")][1:] == ids
        follower.end()
        with tidelog.open(follower.root, read_only=True) as copy:
            assert copy.digest() == leader.digest()


def test_a_served_leader_and_an_embedded_follower(tmp_path: Path) -> None:
    leader = Node(tmp_path / "leader").start()
    with ended(leader), leader.client() as client:
        url = f"tidelog://127.0.0.1:{leader.port}"
        with tidelog.follow(tmp_path / "follower", url) as follower:
            id_ = client.xadd("orders", {"n": 1})
            assert client.wait(1, 60_000) == 1 and client.waitaof(1, 1, 60_000) == [1, 1]
            assert follower.xrange("orders") == [(id_, {b"n": b"1"})]
            leader.kill()
            leader.start()
            client.xadd("orders", {"n": 2})
            assert client.wait(1, 60_000) == 1
            leader.kill()
            follower.promote()
            follower.xadd("orders", {"n": 3})
            assert follower.xlen("orders") == 3
            with tidelog.serve(follower, port=0) as serving:
                leader.start()
                leader.follow(serving.port)  # the other way round
                until(lambda: leader.lsn() == last_lsn(follower))
                digest = follower.digest()
                leader.end()
                with tidelog.open(leader.root, read_only=True) as old:
                    assert old.digest() == digest


@pytest.mark.slow
def test_a_chain_of_three(tmp_path: Path) -> None:
    a, b, c = (Node(tmp_path / name, "enable-debug-command=yes") for name in "abc")
    with ended(a, b, c):
        for node in (a, b, c):
            node.start()
        with a.client() as first, b.client() as second, c.client() as third:
            assert second.replicaof("127.0.0.1", a.port) and third.replicaof("127.0.0.1", b.port)
            for n in range(100):
                first.xadd("orders", {"n": n})
            assert first.wait(1, 60_000) == 1
            assert first.wait(2, 100) == 1  # direct followers only
            until(lambda: c.lsn() == a.lsn())
            assert third.role()[:4] == [b"slave", b"127.0.0.1", b.port, b"connected"]
            assert second.info("replication")["connected_slaves"] == 1
            a.kill()
            assert second.replicaof("NO", "ONE")
            second.xadd("orders", {"n": 100})
            assert second.wait(1, 60_000) == 1
            a.start()
            # the old leader is the end of the chain now
            with a.client() as again:
                assert again.replicaof("127.0.0.1", c.port)
            until(lambda: a.lsn() == b.lsn())
            assert third.xlen("orders") == 101
            assert len({node.digest() for node in (a, b, c)}) == 1


def test_followers_are_upgraded_first(tmp_path: Path) -> None:
    """A follower that is older than its leader stops before the first record that it does not know, and keeps serving.
    Once it is upgraded, it goes on there.
    """
    leader = Node(tmp_path / "leader", "enable-debug-command=yes")
    follower = Node(tmp_path / "follower", "enable-debug-command=yes", "forget=SET")
    with ended(leader, follower):
        leader.start()
        follower.start(f"replicaof=127.0.0.1 {leader.port}")
        caught_up(leader, follower)
        with leader.client() as writer:
            writer.xadd("orders", {"n": 1})
            caught_up(leader, follower)
            known = leader.lsn()
            writer.set("k", "v")
            writer.xadd("orders", {"n": 2})
        with follower.client() as reader:
            until(lambda: "a newer tidelog wrote it" in str(reader.info("replication")))
            assert follower.lsn() == known and reader.xlen("orders") == 1
        follower.end()
        with tidelog.open(follower.root, read_only=True) as behind:
            assert behind.info()["next_lsn"] == known + 1
        follower.options = follower.options[:-1]  # the upgrade
        follower.start()
        caught_up(leader, follower)
        leader.end()
        follower.end()
    with tidelog.open(leader.root) as one, tidelog.open(follower.root) as other:
        assert one.digest() == other.digest() and frames(one) == frames(other)


@pytest.mark.slow
def test_an_upgraded_follower_of_an_older_leader(tmp_path: Path) -> None:
    """The order of an upgrade: the follower first, then it leads, then the old leader is upgraded and follows."""
    old, new = "forget=SET", "enable-debug-command=yes"
    one, two = Node(tmp_path / "one", new, old), Node(tmp_path / "two", new, old)
    with ended(one, two):
        one.start()
        two.start(f"replicaof=127.0.0.1 {one.port}")
        with one.client() as writer:
            writer.xadd("orders", {"n": 1})
        caught_up(one, two)
        two.end()
        two.options = (new,)
        two.start()
        with one.client() as writer:
            writer.xadd("orders", {"n": 2})
        caught_up(one, two)
        one.end()
        with two.client() as client:
            client.replicaof("NO", "ONE")
            client.set("k", "v")
        one.options = (new,)
        one.start()
        one.follow(two.port)
        caught_up(two, one)
        assert one.digest() == two.digest()


def test_the_other_version_of_the_link_says_what_to_upgrade(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "leader") as leader, tidelog.serve(leader, port=0) as serving:
        node = Node(tmp_path / "unused")
        node.port = serving.port
        words = ["TIDELOG", "FOLLOW", "2", "00" * 16, "11" * 16, "0", "0", "00000000", "-"]
        with node.client() as client, pytest.raises(Exception, match="followers first"):
            client.execute_command(*words)
