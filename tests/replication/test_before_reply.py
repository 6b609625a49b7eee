"""replicate-before-reply: replies of a served leader that wait for followers, and what becomes of late ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.oracle.wire import OK
from tests.replication.conftest import Pair
from tests.server.wire import Client, calls, connect
from tests.until import until

LATE = ("-", b"NOREPLICAS stored here, confirmed by 0 of 1 followers")


def wait_for(pair: Pair, followers: int, ms: int) -> None:
    pair.client().config_set("replicate-timeout", ms, "replicate-before-reply", followers)


@pytest.fixture(params=["everysec", "always"])
def waiting(pair: Pair, request: Any) -> Iterator[tuple[Pair, Client]]:
    """A leader without the follower that its replies wait for, and a connection to it."""
    pair.client().config_set("appendfsync", request.param)
    wait_for(pair, 1, 20)
    with closing(connect(pair.port)) as client:
        yield pair, client


def test_late_replies_are_errors(waiting: tuple[Pair, Client]) -> None:
    pair, client = waiting
    for command in ("SET a 1", "GET a", "XADD orders * n 1", "XLEN orders", "XRANGE orders - +"):
        assert calls(client, command) == [LATE], command
    assert calls(client, "MULTI", "SET a 2", "EXEC") == [LATE] * 3  # one group
    assert calls(client, *["XADD orders * n 1"] * 20) == [LATE] * 20
    assert calls(client, "PING", "CONFIG GET replicate-before-reply") == [
        ("+", b"PONG"),
        [b"replicate-before-reply", b"1"],
    ]
    assert pair.db.get("a") == b"2" and pair.db.xlen("orders") == 21
    until(lambda: not pair.server.turns.withholding)


def test_replies_leave_when_a_follower_has_it(waiting: tuple[Pair, Client]) -> None:
    pair, client = waiting
    wait_for(pair, 1, 60_000)
    client.begin(b"SET", b"a", b"1")
    until(lambda: pair.server.turns.withholding)
    assert client.arrived() == []
    follower = pair.follow()
    assert client.receive() == OK
    for n in range(20):
        assert calls(client, f"SET a {n}", "GET a") == [OK, b"%d" % n]
        assert follower.get("a") == b"%d" % n
    assert len(calls(client, *["XADD orders * n 1"] * 50)) == 50
    assert follower.xlen("orders") == 50
    assert calls(client, "XLEN orders") == [50]


def test_two_followers_are_two(waiting: tuple[Pair, Client]) -> None:
    pair, client = waiting
    pair.follow("one")
    until(lambda: calls(client, "SET a 1") == [OK])
    wait_for(pair, 2, 20)
    late = ("-", b"NOREPLICAS stored here, confirmed by 1 of 2 followers")
    until(lambda: calls(client, "SET a 2") == [late])
    pair.follow("two")
    wait_for(pair, 2, 60_000)
    assert calls(client, "SET a 3") == [OK]


def test_no_limit(waiting: tuple[Pair, Client]) -> None:
    pair, client = waiting
    wait_for(pair, 1, 0)
    client.begin(b"SET", b"a", b"1")
    until(lambda: pair.server.turns.withholding)
    wait_for(pair, 1, 1)
    assert client.receive() == LATE


def test_replies_that_wait_when_the_option_ends_are_not_confirmed(
    waiting: tuple[Pair, Client],
) -> None:
    pair, client = waiting
    wait_for(pair, 1, 0)
    client.begin(b"SET", b"a", b"1")
    until(lambda: pair.server.turns.withholding)
    wait_for(pair, 0, 0)
    assert client.receive() == LATE
    assert calls(client, "GET a", "SET a 2") == [b"1", OK]


def test_blocked_reads_wait_too(waiting: tuple[Pair, Client]) -> None:
    pair, client = waiting
    client.begin(b"XREAD", b"BLOCK", b"0", b"STREAMS", b"orders", b"$")
    until(lambda: pair.server.blocked == 1)
    pair.db.xadd("orders", {"n": 1})
    assert client.receive() == LATE


def test_a_follower_does_not_wait_for_its_own_followers(pair: Pair) -> None:
    db = pair.open("follower")
    serving = pair.serve(
        db,
        replicaof=f"127.0.0.1 {pair.proxy.port}",
        replicate_before_reply=1,
        replicate_timeout=20,
    )
    server, port = serving.server, serving.port
    assert server is not None
    client = pair.client(port)
    until(lambda: client.info("replication")["master_link_status"] == "up")
    writer = pair.client()
    writer.set("a", 1)
    assert writer.wait(1, 60_000) == 1
    assert client.get("a") == b"1"
    client.execute_command("REPLICAOF", "NO", "ONE")
    with closing(connect(port)) as raw:
        assert calls(raw, "GET a") == [LATE]
        wait = pair.client(port)
        wait.config_set("replicate-timeout", 0)
        raw.begin(b"SET", b"a", b"2")
        until(lambda: server.turns.withholding)
        wait.execute_command("REPLICAOF", "127.0.0.1", str(pair.port))
        assert raw.receive() == LATE
