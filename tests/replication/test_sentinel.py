"""An unmodified Redis Sentinel watches tidelog servers: it sees them, promotes one, and lets the others follow it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError
from tests import inside
from tests.oracle.wire import OK, QUEUED
from tests.replication.conftest import Pair
from tests.replication.processes import Node, caught_up, ended
from tests.replication.sentinels import NAME, Sentinels, sentinels
from tests.replication.stores import equal
from tests.server.wire import calls, connect
from tests.until import until

import tidelog
from tidelog.server.config.config import Config
from tidelog.server.serving import Serving

GUIDE = Path(__file__).parents[2] / "docs/guides/replication.md"
(USER,) = re.findall("> (ACL SETUSER sentinel .*)", GUIDE.read_text())
(PASSWORD,) = re.findall(">([^ ]+)", USER)


@pytest.mark.slow
def test_one_failover(pair: Pair, tmp_path: Path) -> None:
    """The leader ends. Its follower of priority 0 stays a follower, and the other one leads. An embedded follower has
    no port, and does not disturb.
    """
    at = f"127.0.0.1 {pair.port}"
    first, never = pair.open("first"), pair.open("never")
    heir = pair.serve(first, replicaof=at)
    other = pair.serve(never, replicaof=at, replica_priority=0)
    pair.follow("embedded")
    leader = pair.client()
    with sentinels(tmp_path, pair.port) as watching:
        watching.know([heir.port, other.port])
        assert watching.leader() == pair.port
        run_ids = {
            each[b"runid"]
            for each in watching.followers(watching.ports[0])
            if each[b"port"] != b"0"
        }
        assert len(run_ids) == 2 and all(len(run_id) == 40 for run_id in run_ids)
        client = watching.client.master_for(NAME)
        client.xadd("orders", {"n": 1})
        assert leader.wait(3, 60_000) == 3
        pair.serving.close()
        watching.until(lambda: watching.leader() == heir.port)
        watching.until(lambda: reached(lambda: client.xadd("orders", {"n": 2})))
        watching.until(lambda: role(pair, other.port) == [b"slave", b"127.0.0.1", heir.port])
        again = pair.serve(pair.db, port=pair.port)
        watching.until(lambda: role(pair, again.port) == [b"slave", b"127.0.0.1", heir.port])
        watching.know([again.port, other.port])
        following = watching.client.slave_for(NAME)
        watching.until(lambda: reached(lambda: following.xlen("orders") >= 2))
        equal(first, pair.db)
        equal(first, never)


def reached(call: Callable[[], object]) -> object:
    """The answer of a call while a failover goes on; False if it did not reach a server."""
    with suppress(redis.ConnectionError, MasterNotFoundError, redis.exceptions.ReadOnlyError):
        return call()
    return False


def role(pair: Pair, port: int) -> list[Any]:
    """The reply of ROLE without the offsets."""
    with redis.Redis(port=port, protocol=2, socket_timeout=60) as client:
        found: list[Any] = client.role()
        return found[:3]


class Writers:
    """Clients that ask the sentinels for the leader, add, and remember what a follower confirmed."""

    def __init__(self, watching: Sentinels, count: int) -> None:
        self.confirmed: list[set[int]] = [set() for _ in range(count)]
        self._watching = watching
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def total(self) -> int:
        """How many entries are confirmed."""
        return sum(map(len, self.confirmed))

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def _run(self, number: int) -> None:
        told, mine = self.confirmed[number], 0
        while not self._stopping.is_set():
            port = self._watching.leader()
            if not port:
                self._stopping.wait(0.02)
                continue
            # One connection for one leader: what WAIT counts is what this connection wrote.
            with (
                suppress(redis.RedisError, OSError),
                redis.Redis(port=port, retry=Retry(NoBackoff(), 0)) as client,
            ):
                while not self._stopping.is_set():
                    mine += 1
                    with client.pipeline(transaction=False) as pipe:
                        pipe.xadd(f"load:{number}", {"n": mine})
                        pipe.wait(1, 1000)
                        _, count = pipe.execute()
                    if count < 1:
                        break  # ask again who leads
                    told.add(mine)
                    # Elections take longer on a machine whose processors have nothing left.
                    self._stopping.wait(0.002)


def one_round(watching: Sentinels, writers: Writers, nodes: dict[int, Node]) -> None:
    """Kill the leader, wait until the others have a new one, and start the old one again."""
    leader = nodes[watching.leader()]
    followers = {port for port, node in nodes.items() if node is not leader}
    watching.know(followers)
    before = writers.total()
    watching.until(lambda: writers.total() > before + 50)
    leader.kill()
    watching.until(lambda: watching.leader() in followers)
    heir = watching.leader()
    # The old leader must not come back before its other follower knows the new one: that pair would go on.
    watching.until(lambda: watching.agree(heir))
    (third,) = followers - {heir}
    watching.until(lambda: nodes[third].follows(heir))
    leader.start()
    watching.until(lambda: leader.follows(heir))


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("half", range(2))
def test_twenty_rounds_of_killed_leaders(tmp_path: Path, half: int) -> None:
    """Ten at a time: three sentinels, a leader and two followers. Entries that WAIT 1 confirmed are never lost."""
    nodes = [Node(tmp_path / name, "enable-debug-command=yes") for name in "abc"]
    with ended(*nodes), ExitStack() as stack:
        leader, *followers = nodes
        leader.start()
        for node in followers:
            node.start(f"replicaof=127.0.0.1 {leader.port}")
            caught_up(leader, node)
        watching = stack.enter_context(sentinels(tmp_path, leader.port, 3, 2000))
        by_port = {node.port: node for node in nodes}
        writers = Writers(watching, 2)
        stack.callback(writers.stop)
        for _ in range(10):
            one_round(watching, writers, by_port)
        writers.stop()
        leader = by_port[watching.leader()]
        for node in nodes:
            if node is not leader:
                caught_up(leader, node)
        assert len({node.digest() for node in nodes}) == 1
        with leader.client() as client:
            for number, told in enumerate(writers.confirmed):
                found = {int(fields[b"n"]) for _, fields in client.xrange(f"load:{number}")}
                lost = sorted(told - found)[:10]
                # If the machine stands still for so long that a live leader is replaced, there are two for a while.
                assert len(told) > 50 and (not lost or watching.failovers() > 10), lost


def test_what_it_sends_changes_role_and_file(pair: Pair, tmp_path: Path) -> None:
    """MULTI, SLAVEOF, CONFIG REWRITE, CLIENT KILL: the guide's user may do all of it; the role changes with EXEC."""
    file = tmp_path / "tidelog.toml"
    file.write_text("# mine\nport = 0\n")
    db = pair.open("other")
    serving = served(db, file)
    try:
        bystander = pair.client(serving.port)
        bystander.ping()
        bystander_id = bystander.client_id()
        subscriber = pair.client(serving.port).pubsub()
        subscriber.subscribe("__sentinel__:hello")
        assert subscriber.get_message(timeout=60)
        bystander.execute_command(*USER.split())
        done = transaction(serving.port, "127.0.0.1", str(pair.port))
        assert done[:2] == [OK, OK] and done[2] >= 1 and done[3] == 1
        sentinel = pair.client(serving.port)
        assert sentinel.role()[:3] == [b"slave", b"127.0.0.1", pair.port]
        ids = [int(each["id"]) for each in sentinel.client_list()]
        assert bystander_id not in ids
        assert f'replicaof = "127.0.0.1 {pair.port}"' in file.read_text()
        pair.client().xadd("orders", {"n": 1})
        until(lambda: reached(lambda: sentinel.xlen("orders") == 1))
        assert sentinel.publish("__sentinel__:hello", "x") == 0  # a follower takes it, too
        assert transaction(serving.port, "NO", "ONE")[:2] == [OK, OK]
        assert sentinel.role()[0] == b"master"
        assert 'replicaof = ""' in file.read_text() and "# mine" in file.read_text()
    finally:
        serving.close()
    file.write_text(f'port = 0\nreplicaof = "127.0.0.1 {pair.port}"\n')
    serving = served(db, file)
    try:
        assert role(pair, serving.port)[0] == b"master"  # REPLICA wins over the file
    finally:
        serving.close()


def served(db: tidelog.Store, file: Path) -> Serving:
    """A server with a configuration file, beside its owner."""
    core = inside.core(db)
    assert core.checkpoints is not None
    config = Config()
    config.load(file)
    config.ephemeral = True
    config.place(core.root)
    config.adopt(core.checkpoints.options, db.fsync)
    return Serving(core, config)


def transaction(port: int, *leader: str) -> Any:
    """The commands that Sentinel sends to change a role. Returns the reply of its EXEC."""
    link = connect(port)
    try:
        assert calls(
            link,
            f"AUTH sentinel {PASSWORD}",
            "CLIENT SETNAME sentinel-1-cmd",
            "PING",
        ) == [OK, OK, ("+", b"PONG")]
        calls(link, "INFO", "PUBLISH __sentinel__:hello x")
        before, *queued = calls(
            link,
            "ROLE",
            "MULTI",
            " ".join(("SLAVEOF", *leader)),
            "CONFIG REWRITE",
            "CLIENT KILL TYPE normal",
            "CLIENT KILL TYPE pubsub",
        )
        assert queued == [OK, QUEUED, QUEUED, QUEUED, QUEUED]
        other = connect(port)
        try:
            assert calls(other, "ROLE")[0][0] == before[0]  # nothing has changed yet
        finally:
            other.close()
        return calls(link, "EXEC")[0]
    finally:
        link.close()
