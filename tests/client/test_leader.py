"""Which of several servers a shared store uses: the one that leads. And the calls about leaders and followers."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.server.ports import free_port
from tests.until import until

import tidelog
from tidelog.client.address import Address, addresses_of
from tidelog.client.tls import Tls


def receipt_of(view: tidelog.Store) -> str:
    """The token of the last write through a view."""
    assert view.last_receipt is not None
    return view.last_receipt.token


class Pair:
    """A leader and a follower in this process, and a Redis client of each."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.ports: list[int] = []
        self.clients: list[Any] = []
        self.stores: list[tidelog.Store] = []
        for name in "ab":
            db = stack.enter_context(tidelog.open(folder / name, fsync="no"))
            self.stores.append(db)
            self.ports.append(stack.enter_context(tidelog.serve(db, port=0)).port)
            client: Any = redis.Redis(port=self.ports[-1], protocol=2)
            stack.callback(client.close)
            self.clients.append(client)
        self.follow(1, 0)

    def url(self, number: int) -> str:
        return f"redis://127.0.0.1:{self.ports[number]}"

    def follow(self, follower: int, leader: int) -> None:
        """One follows the other; returns once it answers."""
        self.clients[leader].execute_command("REPLICAOF", "NO", "ONE")
        self.clients[follower].execute_command("REPLICAOF", "127.0.0.1", self.ports[leader])
        until(lambda: self.reads(follower), "the follower does not answer")

    def reads(self, number: int) -> bool:
        try:
            self.clients[number].get("k")
        except redis.BusyLoadingError:
            return False
        return True


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(tmp_path, stack)


@pytest.fixture
def sentinel(tmp_path: Path) -> Iterator[Any]:
    """A client of a real Sentinel."""
    port = free_port()
    place = tmp_path / "sentinel.conf"
    place.write_text(f"port {port}\nbind 127.0.0.1\ndir {tmp_path}\nlogfile {tmp_path / 'log'}\n")
    with subprocess.Popen(["redis-server", str(place), "--sentinel"]) as process:
        client: Any = redis.Redis(port=port, protocol=2)

        def answers() -> bool:
            assert process.poll() is None, (tmp_path / "log").read_text()
            try:
                return bool(client.execute_command("PING"))
            except redis.ConnectionError:
                return False

        try:
            until(answers, "the Sentinel does not begin")
            yield client
        finally:
            client.close()
            process.kill()
            process.wait(60)


def test_the_leader_that_sentinels_know(pair: Pair, sentinel: Any) -> None:
    port = sentinel.connection_pool.connection_kwargs["port"]
    url = f"redis+sentinel://127.0.0.1:1,127.0.0.1:{port}/orders/2"
    with pytest.raises(tidelog.Unreachable, match="knows no 'orders'"):
        tidelog.connect(url, timeout=0.05)
    sentinel.execute_command("SENTINEL", "MONITOR", "orders", "127.0.0.1", pair.ports[0], 1)
    with tidelog.connect(url) as db:
        assert db.set("k", "v") and pair.stores[0].db(2).get("k") == b"v"
        pair.follow(0, 1)
        sentinel.execute_command("SENTINEL", "REMOVE", "orders")
        sentinel.execute_command("SENTINEL", "MONITOR", "orders", "127.0.0.1", pair.ports[1], 1)
        assert db.set("k", "w") and pair.stores[1].db(2).get("k") == b"w"


def test_it_says_who_leads(pair: Pair) -> None:
    leader = f"127.0.0.1:{pair.ports[0]}"
    with tidelog.connect(pair.url(1)) as db:
        with pytest.raises(
            tidelog.ResponseError, match=f"read only replica. Its leader is {leader}"
        ):
            db.set("k", "v")
        with pytest.raises(
            tidelog.ResponseError, match=f"read only replica. Its leader is {leader}"
        ):
            db.queue("q").put(1)
    with pytest.raises(tidelog.Unreachable, match=f"none of them leads; .* follows {leader}"):
        tidelog.connect([pair.url(1), pair.url(1)], timeout=0.05)


def test_a_follower_waits_for_a_write_and_is_promoted(pair: Pair) -> None:
    with tidelog.connect(pair.url(0)) as one, tidelog.connect(pair.url(1)) as two:
        view = pair.stores[0].receipts()
        view.set("k", "v")
        token = receipt_of(view)
        two.wait_for(token)
        assert two.get("k") == b"v"
        one.wait_for(token, timeout=0)
        two.promote()
        assert two.set("k", "w") and one.get("k") == b"v"
        with pytest.raises(tidelog.DataError):
            two.wait_for(token, timeout=-1)
        with pytest.raises(tidelog.TidelogError):
            two.wait_for("no token")

    async def work() -> None:
        async with tidelog.aconnect(pair.url(1)) as db:
            await db.promote()
            await db.wait_for(token)
            made = await db.snapshot()
            assert made.path.is_dir() and (made.manifest.counts.streams, made.existed) == (0, False)
            assert await db.snapshot() == made._replace(existed=True)

    asyncio.run(work())


def test_a_write_that_does_not_come(pair: Pair) -> None:
    view = pair.stores[0].receipts()
    view.set("k", "v")
    with tidelog.connect(pair.url(1)) as two:
        two.wait_for(receipt_of(view))
        pair.clients[1].execute_command("REPLICAOF", "NO", "ONE")
        view.set("k", "w")
        with pytest.raises((tidelog.TokenLate, tidelog.TokenLost)):
            two.wait_for(receipt_of(view), timeout=0.01)


@pytest.mark.parametrize(
    ("url", "found"),
    [
        (
            "redis+sentinel://me:pw@a,b:1/orders/3",
            [Address(None, host, port, None, "me", "pw", 3, "orders") for host, port in (("a", 26379), ("b", 1))],
        ),
        ("rediss+sentinel://[::1]/o%20p", [Address(None, "::1", 26379, Tls(), service="o p")]),
        ("redis+sentinel://[::1]:5/o", [Address(None, "::1", 5, service="o")]),
    ],
)  # fmt: skip
def test_urls_of_sentinels(url: str, found: list[Address]) -> None:
    assert addresses_of(url) == found


@pytest.mark.parametrize(
    "url",
    ["redis+sentinel://", "redis+sentinel://a", "redis+sentinel://a/", "redis+sentinel:///o",
     "redis+sentinel://a/o/16", "redis+sentinel://a,,b/o", "redis+sentinel://a:x/o", "unix+sentinel://a/o"],
)  # fmt: skip
def test_bad_urls_of_sentinels(url: str) -> None:
    with pytest.raises(tidelog.DataError):
        addresses_of(url)
