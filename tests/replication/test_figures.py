"""INFO, /metrics and /health agree on the log that followers lack, the log kept for them, and surpluses."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.server.ports import free_port
from tests.until import until

import tidelog
from tidelog.replication.feed import Feed
from tidelog.replication.protocol import Ack
from tidelog.server.monitoring import kept


class Watched:
    """A second server of a store, with metrics."""

    def __init__(self, pair: Pair, port: int, http: int) -> None:
        self.client = pair.client(port)
        self.url = f"http://127.0.0.1:{http}"

    def info(self) -> dict[str, Any]:
        found: dict[str, Any] = self.client.info("replication")
        return found

    def health(self) -> dict[str, Any]:
        """With status 503, too, as while the store loads."""
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=60) as got:
                body = got.read()
        except urllib.error.HTTPError as error:
            body = error.read()
        found: dict[str, Any] = json.loads(body)
        return found

    def metrics(self) -> dict[str, float]:
        """By name; one value of each."""
        with urllib.request.urlopen(self.url + "/metrics", timeout=60) as got:
            families = text_string_to_metric_families(got.read().decode())
            return {each.name: each.value for family in families for each in family.samples}


def watched_leader(pair: Pair) -> tuple[tidelog.Store, Watched]:
    """Another leader, to which the proxy leads from now on."""
    db, http = pair.open("watched"), free_port()
    port = pair.serve(db, metrics_port=http).port
    pair.proxy.leader = port
    return db, Watched(pair, port, http)


def test_a_follower_that_lags(pair: Pair) -> None:
    db, watched = watched_leader(pair)
    db.xadd("orders", {"n": 0})
    follower = pair.follow()
    equal(db, follower)
    until(lambda: watched.health()["followers_lag_bytes"] == 0)
    assert watched.metrics()["tidelog_follower_lag_bytes"] == 0
    assert watched.info()["slave0"]["behind_bytes"] == 0
    pair.proxy.open.clear()
    for number in range(100):
        db.xadd("orders", {"n": number, "pad": "x" * 1000})

    def behind() -> set[float]:
        return {
            watched.info()["slave0"]["behind_bytes"],
            watched.health()["followers_lag_bytes"],
            watched.metrics()["tidelog_follower_lag_bytes"],
        }

    # A sign of life, of which there is one a second, may come amid the writes.
    until(lambda: len(found := behind()) == 1 and 100_000 < found.pop() < 130_000)
    until(lambda: watched.info()["slave0"]["behind"] > 0)
    until(lambda: watched.health()["followers_lag_seconds"] > 0)

    def retained() -> set[float]:
        return {
            watched.info()["repl_backlog_histlen"],
            watched.health()["retained_bytes"],
            watched.metrics()["tidelog_replication_retained_bytes"],
        }

    until(lambda: len(found := retained()) == 1 and found.pop() > 100_000, "they do not agree")
    pair.proxy.open.set()
    caught_up(db, follower)
    until(lambda: watched.info()["slave0"]["behind_bytes"] == 0)


def test_a_follower_tells_of_its_link_and_its_surplus(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 0})
    http = free_port()
    db, port = pair.follower(metrics_port=http)
    watched = Watched(pair, port, http)
    until(lambda: watched.metrics().get("tidelog_link_up") == 1)
    caught_up(pair.db, db)
    assert watched.health()["link"] == watched.info()["master_link_status"] == "up"
    # it leads, writes, and is told to give that up
    watched.client.execute_command("REPLICAOF", "NO", "ONE")
    watched.client.xadd("orders", {"n": "surplus"})
    other = pair.follow("other")
    caught_up(pair.db, other)
    other.promote()
    other.xadd("orders", {"n": 1})
    pair.proxy.leader = pair.serve(other).port
    watched.client.execute_command("REPLICAOF", "127.0.0.1", pair.proxy.port, "REPLACE")
    watched.client = pair.client(port)
    until(lambda: watched.info()["surpluses"] == 1)
    records = watched.info()["surplus_records"]
    assert records >= 1
    until(lambda: watched.health().get("surpluses") == 1, "/health does not tell")
    assert watched.health()["surplus_records"] == records
    until(lambda: watched.metrics().get("tidelog_replication_surpluses") == 1)
    assert watched.metrics()["tidelog_replication_surplus_records"] == records


def test_a_server_without_replication_looks_rarely(pair: Pair, monkeypatch: Any) -> None:
    looks: list[object] = []
    until(lambda: pair.server.replicating.feeding._looking._next_look)
    monkeypatch.setattr(kept, "in_thread", looks.append)
    monkeypatch.setattr(kept, "LOOK_S", 0.0)
    ticks: list[object] = []
    real = kept.Looking.tick

    def tick(self: kept.Looking) -> None:
        ticks.append(self)
        real(self)

    monkeypatch.setattr(kept.Looking, "tick", tick)
    until(lambda: len(ticks) > 3)
    assert not looks


class Endless:
    def read(self, nbytes_max: int, good: tuple[int, int]) -> bytes:
        return b""

    def at_end(self, good: tuple[int, int]) -> bool:
        return True


def test_bytes_between_two_signs_of_life_are_shared_out() -> None:
    nbytes = 1000
    feed = Feed(Endless(), 10, 0.0, log_bytes=lambda: nbytes, begin=(0, 0))

    def beat(now: float, last: int) -> None:
        feed.send(now, 0, (1, 0), (last, 0), last, 1 << 16)

    def reach(lsn: int) -> int:
        feed.receive(Ack(lsn, lsn).pack(), 0.0)
        return feed.lag_bytes(20)

    beat(0.0, 10)
    assert feed.lag_bytes(10) == 1000
    nbytes = 3000
    beat(1.0, 20)
    assert feed.lag_bytes(20) == 3000
    assert [reach(lsn) for lsn in (5, 10, 15, 20)] == [2500, 2000, 1000, 0]
    beat(2.0, 20)
    nbytes = 3100
    assert feed.lag_bytes(21) == 100
