"""FAILOVER: its replies, the pause, who leads afterwards, and what is known when the link breaks on the way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
import redis
from tests import inside
from tests.oracle.wire import OK
from tests.replication.conftest import Pair
from tests.replication.stores import equal
from tests.replication.test_commands import errors, up
from tests.server.wire import calls, connect
from tests.store.following.leader import roles
from tests.until import until

import tidelog
from tidelog.aof.epochs import generation
from tidelog.replication import protocol


class Two:
    """A leader and its served follower `copy`, which is up, with clients of both."""

    def __init__(self, pair: Pair, **options: Any) -> None:
        self.pair = pair
        self.db = pair.db
        self.copy, self.port = pair.follower(**options)
        up(pair, self.port)
        self.client, self.other = pair.client(), pair.client(self.port)
        self.client.xadd("orders", {"n": 1})
        assert self.client.wait(1, 60_000) == 1

    def failover(self, *words: object) -> None:
        assert self.client.execute_command("FAILOVER", *words) == b"OK"

    def state(self) -> str:
        told: str = self.client.info("replication")["master_failover_state"]
        return told

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The follower lacks a record, and nothing passes between both."""
        self.pair.proxy.open.clear()
        try:
            self.client.xadd("orders", {"n": 2})
            yield
        finally:
            self.pair.proxy.open.set()

    @contextmanager
    def told(self) -> Iterator[threading.Event]:
        """The follower was told to lead, and does not begin before the event is set."""
        reached, go = threading.Event(), threading.Event()
        promote = roles(self.copy).promote

        def later(*args: Any) -> None:
            reached.set()
            assert go.wait(60)
            promote(*args)

        roles(self.copy).promote = later  # type: ignore[assignment]
        try:
            self.failover()
            assert reached.wait(60)
            until(lambda: self.state() == "failover-in-progress")
            yield go
        finally:
            go.set()
            del roles(self.copy).promote

    def led_by_copy(self) -> None:
        """Until the follower leads and the old leader follows it, and both are equal."""
        until(lambda: self.other.role()[0] == b"master", "the follower does not lead")
        until(lambda: self.db.role().kind == "follower", "the old leader does not follow")
        self.other.xadd("orders", {"n": 3})
        until(lambda: self.client.info("replication")["master_link_status"] == "up")
        equal(self.copy, self.db)
        assert generation(inside.checkpoints(self.copy).epochs[-1].number) == 1
        assert self.state() == "no-failover"

    def led_as_before(self) -> None:
        """Until the old leader takes writes again, and the follower follows it."""
        until(lambda: self.state() == "no-failover" and self.client.role()[0] == b"master")
        self.client.xadd("orders", {"n": 3})
        until(lambda: self.other.info("replication")["master_link_status"] == "up")
        equal(self.db, self.copy)
        assert self.copy.role().kind == "follower"
        assert generation(inside.checkpoints(self.db).epochs[-1].number) == 0


@pytest.fixture
def two(pair: Pair) -> Two:
    return Two(pair)


# --- replies, as redis-server 7.0 gives them


def test_its_errors(pair: Pair) -> None:
    with closing(connect(pair.port)) as client:
        assert errors(client, "FAILOVER", "FAILOVER ABORT", "FAILOVER TO 127.0.0.1 1") == [
            b"ERR FAILOVER requires connected replicas.",
            b"ERR No failover in progress.",
            b"ERR FAILOVER requires connected replicas.",
        ]
        pair.follow("embedded")
        until(lambda: pair.client().info("replication")["connected_slaves"] == 1)
        (line,) = errors(client, "FAILOVER")
        assert line.startswith(b"ERR FAILOVER needs a replica that serves clients")
        assert b"127.0.0.1:0 announces port 0" in line
        _, port = pair.follower()
        up(pair, port)
        here = f"TO 127.0.0.1 {port}"
        assert errors(
            client,
            "FAILOVER TIMEOUT",
            "FAILOVER TIMEOUT 0",
            "FAILOVER TIMEOUT -1",
            "FAILOVER TIMEOUT x",
            "FAILOVER TO 1",
            "FAILOVER TO h p",
            "FAILOVER TO h 1",
            "FAILOVER TO 127.0.0.1 99999999999",
            "FAILOVER FORCE",
            "FAILOVER FORCE TIMEOUT 1",
            f"FAILOVER {here} FORCE",
            "FAILOVER ABORT TIMEOUT 5",
            "FAILOVER TIMEOUT 5 TIMEOUT 6",
            f"FAILOVER {here} {here}",
        ) == [
            b"ERR syntax error",
            b"ERR FAILOVER timeout must be greater than 0",
            b"ERR FAILOVER timeout must be greater than 0",
            b"ERR value is not an integer or out of range",
            b"ERR syntax error",
            b"ERR value is not an integer or out of range",
            b"ERR FAILOVER target HOST and PORT is not a replica.",
            b"ERR FAILOVER target HOST and PORT is not a replica.",
            b"ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
            b"ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
            b"ERR FAILOVER with force option requires both a timeout and target HOST and IP.",
            b"ERR syntax error",
            b"ERR syntax error",
            b"ERR syntax error",
        ]
    with closing(connect(port)) as client:
        assert errors(client, "FAILOVER") == [
            b"ERR FAILOVER is not valid when server is a replica."
        ]


def test_one_at_a_time(two: Two) -> None:
    with two.stalled(), closing(connect(two.pair.port)) as client:
        assert calls(client, "FAILOVER TIMEOUT 60000") == [OK]
        assert two.state() == "waiting-for-sync"
        assert errors(client, "FAILOVER", "REPLICAOF NO ONE", "REPLICAOF 127.0.0.1 1") == [
            b"ERR FAILOVER already in progress.",
            b"ERR REPLICAOF not allowed while failing over.",
            b"ERR REPLICAOF not allowed while failing over.",
        ]
        assert calls(client, "FAILOVER ABORT") == [OK]
        assert errors(client, "FAILOVER ABORT") == [b"ERR No failover in progress."]
    two.led_as_before()


# --- it goes well


@pytest.mark.parametrize("to", [False, True])
def test_the_follower_leads_and_the_old_leader_follows_it(two: Two, to: bool) -> None:
    two.failover(*(("TO", "127.0.0.1", two.port) if to else ()))
    two.led_by_copy()
    with pytest.raises(redis.ReadOnlyError):
        two.client.xadd("orders", {"n": 4})
    assert two.client.role()[:3] == [b"slave", b"127.0.0.1", two.port]
    assert two.other.execute_command("FAILOVER") == b"OK"  # and back again
    until(lambda: two.client.role()[0] == b"master")
    two.client.xadd("orders", {"n": 5})
    until(lambda: two.other.xlen("orders") == 3)
    assert generation(inside.checkpoints(two.db).epochs[-1].number) == 2


def test_in_a_transaction(two: Two) -> None:
    with two.client.pipeline() as pipe:
        pipe.xadd("orders", {"n": 2})
        pipe.execute_command("FAILOVER")
        assert pipe.execute()[1] == b"OK"
    two.led_by_copy()
    assert two.copy.xlen("orders") == 3


def test_the_furthest_of_two_leads_and_the_other_stays(pair: Pair) -> None:
    two = Two(pair)
    third, port = pair.follower("third")
    up(pair, port)
    two.failover("TO", "127.0.0.1", two.port)
    two.led_by_copy()
    until(lambda: third.xlen("orders") == 2, "the other follower is not served any more")
    assert third.role().kind == "follower"
    equal(two.copy, third)


def test_an_embedded_follower_that_is_served_can_lead(pair: Pair) -> None:
    copy = pair.follow("embedded")
    client = pair.client()
    client.xadd("orders", {"n": 1})
    serving = pair.serve(copy)
    until(
        lambda: client.info("replication").get("slave0", {}).get("port") == serving.port,
        "the link does not say who serves it",
    )
    assert client.execute_command("FAILOVER") == b"OK"
    until(lambda: copy.role().kind == "leader")
    copy.xadd("orders", {"n": 2})
    until(lambda: client.xlen("orders") == 2)
    with pytest.raises(tidelog.ReadOnlyError):
        pair.db.xadd("orders", {"n": 3})


# --- while it waits


def test_clients_wait_and_the_owner_is_refused_until_it_ends(two: Two) -> None:
    with two.stalled(), ThreadPoolExecutor(2) as pool:
        two.failover()
        writer, blocker = two.pair.client(), two.pair.client()
        late = pool.submit(writer.xadd, "orders", {"n": 9})
        assert two.client.xlen("orders") == 2  # reads go on
        with pytest.raises(tidelog.ReadOnlyError, match="while it hands over to a follower"):
            two.db.xadd("orders", {"n": 8})
        blocked = pool.submit(blocker.xread, {"orders": "$"}, block=60_000)
        until(lambda: two.pair.server.blocked == 1)
        assert not late.done()
        assert two.client.execute_command("CLIENT", "UNPAUSE") == b"OK"  # is another pause
        assert two.state() == "waiting-for-sync" and not late.done()
        assert two.client.execute_command("FAILOVER", "ABORT") == b"OK"
        assert late.result(60)
        assert blocked.result(60)[0][1][0][0] == late.result()
        two.db.xadd("orders", {"n": 8})
    two.led_as_before()


def test_a_client_pause_stays_in_force(two: Two) -> None:
    with two.stalled(), ThreadPoolExecutor(1) as pool:
        two.client.client_pause(600_000, all=False)
        two.failover()
        late = pool.submit(two.pair.client().xadd, "orders", {"n": 9})
        two.client.execute_command("FAILOVER", "ABORT")
        assert two.state() == "no-failover" and not late.done()
        two.client.client_unpause()
        assert late.result(60)


def test_a_client_that_waited_is_told_to_go_elsewhere(two: Two) -> None:
    with ThreadPoolExecutor(2) as pool:
        with two.stalled():
            parked = pool.submit(two.pair.client().xread, {"mails": "$"}, block=0)
            until(lambda: two.pair.server.blocked == 1)
            two.failover()
            late = pool.submit(two.pair.client().xadd, "orders", {"n": 9})
            until(lambda: two.pair.server._pause.postponed, "it does not wait")
        with pytest.raises(redis.ReadOnlyError):
            late.result(60)
        with pytest.raises(redis.ResponseError, match="force unblock"):
            parked.result(60)
    two.led_by_copy()


def test_the_time_is_up(two: Two) -> None:
    with two.stalled():
        two.failover("TIMEOUT", 50)
        until(lambda: two.state() == "no-failover")
        two.client.xadd("orders", {"n": 4})
    two.led_as_before()


def test_forced_the_surplus_is_set_aside(two: Two) -> None:
    """As in Redis, FORCE gives up what the follower does not have. Here it is kept in quarantine/."""
    promote = protocol.HEAD.pack(12, protocol.PROMOTE)
    lost = bytearray()

    def lose(data: bytes, at: int) -> bytes:
        lost.extend(data)
        found = data.find(promote)
        return b"" if found < 0 else data[found:]

    two.pair.proxy.change = lose
    two.client.xadd("orders", {"n": "surplus"})
    until(lambda: b"surplus" in lost)
    two.failover("TO", "127.0.0.1", two.port, "FORCE", "TIMEOUT", 50)
    two.led_by_copy()
    assert two.copy.xlen("orders") == 2  # the surplus is none of them
    (aside,) = (two.pair.root / "leader" / "quarantine").iterdir()
    assert any(b"surplus" in path.read_bytes() for path in aside.glob("*.aof"))


def test_a_server_that_stops_lets_the_owner_go_on(two: Two) -> None:
    two.client.config_set("shutdown-timeout", 1)  # the follower does not get there
    with two.stalled():
        two.failover()
        two.pair.serving.close()
        two.db.xadd("orders", {"n": 8})


# --- once the follower was told


def test_abort_comes_too_late(two: Two) -> None:
    with two.told() as go, closing(connect(two.pair.port)) as client:
        (line,) = errors(client, "FAILOVER ABORT")
        assert line.startswith(b"ERR FAILOVER cannot be aborted") and b"REPLICAOF NO ONE" in line
        assert errors(client, "FAILOVER") == [b"ERR FAILOVER already in progress."]
        with pytest.raises(tidelog.ReadOnlyError):
            two.db.xadd("orders", {"n": 8})
        go.set()
    two.led_by_copy()


def test_the_link_breaks_before_the_follower_has_begun(two: Two) -> None:
    """The old leader asks it. It was not promoted, says so, and is not promoted by what it had heard."""
    with two.told() as go:
        two.pair.proxy.cut()
        until(lambda: two.db.role().kind == "leader", "the old leader does not ask")
        two.client.xadd("orders", {"n": 2})
        go.set()
    two.led_as_before()


def test_the_link_breaks_after_the_follower_has_begun(two: Two) -> None:
    with two.told() as go:
        two.pair.proxy.open.clear()  # PROMOTED does not arrive
        go.set()
        until(lambda: two.copy.role().kind == "leader")
        with pytest.raises(tidelog.ReadOnlyError):
            two.db.xadd("orders", {"n": 8})
        two.pair.proxy.cut()
        two.pair.proxy.open.set()
    two.led_by_copy()


def test_by_hand_the_old_leader_leads_two_generations_on(two: Two) -> None:
    with two.told() as go:
        assert two.client.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
        two.client.xadd("orders", {"n": 2})
        assert generation(inside.checkpoints(two.db).epochs[-1].number) == 2
        go.set()


@pytest.mark.parametrize("begun", [False, True])
def test_a_server_that_is_started_again_asks(pair: Pair, begun: bool) -> None:
    two = Two(pair)
    with two.told() as go:
        pair.serving.close()
        with pytest.raises(tidelog.ReadOnlyError):
            two.db.xadd("orders", {"n": 8})
        assert two.db.role().kind == "handing over"
        if begun:
            go.set()
            until(lambda: two.copy.role().kind == "leader")
        again = pair.serve(two.db, port=pair.port)
        two.client = pair.client(again.port)
        if begun:
            two.led_by_copy()
        else:
            until(lambda: two.db.role().kind == "leader")
            two.client.xadd("orders", {"n": 8})
    if not begun:
        two.led_as_before()


def test_it_waits_for_a_follower_that_is_away(two: Two) -> None:
    """Nobody else can say whether it leads."""
    with two.told() as go:
        follower = two.copy
        two.pair.serving.close()
        go.set()
        until(lambda: follower.role().kind == "leader")
    port = two.port
    for serving in [s for s in _servings(two.pair) if s.port == port]:
        serving.close()
    again = two.pair.serve(two.db, port=two.pair.port)
    client = two.pair.client(again.port)
    until(lambda: "refused" in client.info("replication").get("master_link_failure", ""))
    assert client.info("replication")["master_failover_state"] == "failover-in-progress"
    with pytest.raises(redis.ReadOnlyError):
        client.xadd("orders", {"n": 8})
    two.pair.serve(follower, port=port)
    until(lambda: two.db.role().kind == "follower")


def _servings(pair: Pair) -> list[tidelog.Serving]:
    found = []
    for callback in pair._stack._exit_callbacks:  # type: ignore[attr-defined]
        owner = getattr(callback[1], "__self__", None)
        if isinstance(owner, tidelog.Serving):
            found.append(owner)
    return found
