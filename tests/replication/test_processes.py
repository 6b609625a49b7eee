"""A leader and a follower, as two processes: what is written to one is read from the other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.replication.processes import Node, caught_up, ended
from tests.until import until


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Node, Node]]:
    """A leader and its follower."""
    leader = Node(tmp_path / "leader", "enable-debug-command=yes")
    follower = Node(tmp_path / "follower", "enable-debug-command=yes")
    with ended(leader, follower):
        leader.start()
        follower.start()
        follower.follow(leader.port)
        yield leader, follower


def test_what_is_written_is_read_from_the_follower(pair: tuple[Node, Node]) -> None:
    leader, follower = pair
    with leader.client() as writer, follower.client() as reader:
        ids = [writer.xadd("orders", {"n": number}) for number in range(100)]
        caught_up(leader, follower)
        assert [id_ for id_, _ in reader.xrange("orders")] == ids
        with pytest.raises(redis.ReadOnlyError):
            reader.xadd("orders", {"n": 1})
    assert leader.digest() == follower.digest()


def test_either_side_may_restart(pair: tuple[Node, Node]) -> None:
    leader, follower = pair
    for restart in (follower, leader, follower):
        with leader.client() as writer:
            writer.xadd("orders", {"n": 1})
        restart.end()
        restart.start()
        with leader.client() as writer:
            writer.xadd("orders", {"n": 2})
        caught_up(leader, follower)
        assert leader.digest() == follower.digest()


def test_a_promoted_follower_takes_writes(pair: tuple[Node, Node]) -> None:
    leader, follower = pair
    with leader.client() as writer, follower.client() as other:
        writer.xadd("orders", {"n": 1})
        caught_up(leader, follower)
        assert other.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
        other.xadd("orders", {"n": 2})
        assert other.xlen("orders") == 2
        assert other.execute_command("ROLE")[0] == b"master"
        until(lambda: writer.execute_command("ROLE")[2] == [])


def test_a_promoted_server_stays_a_leader_though_its_unit_file_says_otherwise(
    tmp_path: Path,
) -> None:
    leader = Node(tmp_path / "leader")
    follower = Node(tmp_path / "follower")
    with ended(leader, follower):
        leader.start()
        option = f"replicaof=127.0.0.1 {leader.port}"
        follower.start(option)
        with leader.client() as writer:
            writer.xadd("orders", {"n": 1})
        caught_up(leader, follower)
        with follower.client() as client:
            assert client.execute_command("REPLICAOF", "NO", "ONE")
        follower.kill()
        follower.start(option)
        with follower.client() as client:
            assert client.role()[0] == b"master"
            client.xadd("orders", {"n": 2})
        assert "stays a leader" in follower.errors.read_text()


def test_redis_cli(pair: tuple[Node, Node]) -> None:
    leader, follower = pair

    def said(node: Node, *words: str) -> list[str]:
        command = ["redis-cli", "-p", str(node.port), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout.split()

    said(leader, "XADD", "orders", "*", "n", "1")
    caught_up(leader, follower)
    lsn = str(leader.lsn())
    assert said(follower, "ROLE") == ["slave", "127.0.0.1", str(leader.port), "connected", lsn]
    until(lambda: said(leader, "ROLE")[-1] == lsn)
    assert said(leader, "ROLE") == ["master", lsn, "127.0.0.1", str(follower.port), lsn]
    assert "role:slave" in said(follower, "INFO", "replication")
    assert said(follower, "SET", "k", "v")[0] == "READONLY"
    assert said(follower, "SLAVEOF", "no", "one") == ["OK"]
    assert said(follower, "SET", "k", "v") == ["OK"]
