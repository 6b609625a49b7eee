"""The options of `tidelog.follow` for its link: each has its effect, and a wrong value is refused."""

from __future__ import annotations

import asyncio
import shutil
import time
from datetime import timedelta
from typing import Any

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal, last_lsn
from tests.until import until

import tidelog
from tidelog.replication.link import Link


def told(db: tidelog.Store) -> dict[str, Any]:
    found: dict[str, Any] = db.info()["replication"]
    return found


def passed(pair: Pair) -> list[int]:
    """A list to which the proxy adds the sizes of what comes from the leader."""
    sizes: list[int] = []

    def count(data: bytes, at: int) -> bytes:
        sizes.append(len(data))
        return data

    pair.proxy.change = count
    return sizes


def test_timeout(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 0})
    db = pair.follow(timeout=2)
    caught_up(pair.db, db)
    pair.proxy.open.clear()
    until(lambda: told(db)["link_failure"], "silence is not noticed")
    assert "2 s" in told(db)["link_failure"]
    pair.proxy.open.set()
    equal(pair.db, db)


@pytest.mark.parametrize("wanted", [True, False])
def test_compression(pair: Pair, wanted: bool) -> None:
    pair.client().config_set("repl-compression", "yes")
    sizes = passed(pair)
    pair.db.xadd("orders", {"n": "x" * 1_000_000})
    db = pair.follow(compression=wanted)
    equal(pair.db, db)
    assert (sum(sizes) < 100_000) == wanted


@pytest.mark.parametrize("wanted", [0, 3600, timedelta(hours=1)])
def test_surplus(pair: Pair, wanted: float | timedelta) -> None:
    """The leader's machine has lost power: it has what it had synced, and begins a new life."""
    pair.db.xadd("orders", {"n": 0})
    db = pair.follow(surplus=wanted)
    caught_up(pair.db, db)
    pair.db.barrier("fsynced")
    no_sockets = shutil.ignore_patterns("serve.sock")
    shutil.copytree(pair.root / "leader", pair.root / "synced", ignore=no_sockets)
    for number in range(2):
        pair.db.xadd("orders", {"n": number})
        at = time.time()
        until(lambda: time.time() > at + 0.01)
    caught_up(pair.db, db)
    lsn = last_lsn(db)
    pair.proxy.open.clear()
    synced = pair.open("synced")
    pair.proxy.leader = pair.serve(synced).port
    pair.proxy.cut()
    pair.proxy.open.set()
    synced.xadd("orders", {"n": 3})
    if wanted:
        aside = pair.root / "follower" / "quarantine"
        until(lambda: list(aside.glob("*/report.json")), "it does not give them up")
        until(lambda: told(db)["link"] == "connected")
        equal(synced, db)
    else:
        until(lambda: "REPLACE" in told(db)["link_failure"], "it does not stop")
        assert last_lsn(db) == lsn


def test_verify_every(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 0})
    db = pair.follow(verify_every=0.01)
    until(lambda: told(db)["verified_lsn"] > 0, "nothing is compared")


def test_an_open_store_gets_them_too(pair: Pair) -> None:
    url = f"tidelog://127.0.0.1:{pair.proxy.port}"
    wanted: dict[str, Any] = {"timeout": 7, "compression": True, "surplus": 8, "verify_every": 9}

    def settings(db: tidelog.Store | tidelog.AsyncStore) -> tuple[float, bool, float, float]:
        link = inside.core(db).link
        assert isinstance(link, Link)
        found = link.settings
        return found.timeout_s(), found.compress(), found.surplus_s(), found.verify_every_s()

    db = pair.open("other")
    tidelog.follow(db, url, **wanted)
    assert settings(db) == (7, True, 8, 9)
    with pytest.raises(tidelog.DataError):
        tidelog.follow(db, f"tidelog://{'a' * 300}:1")
    assert settings(db) == (7, True, 8, 9)
    tidelog.follow(db, url)
    assert settings(db) == (10, False, 10, 0)

    async def go() -> None:
        async with tidelog.afollow(pair.root / "third", url, **wanted) as third:
            assert settings(third) == (7, True, 8, 9)

    asyncio.run(go())


@pytest.mark.parametrize(
    "option, value",
    [
        ("timeout", 0.5),
        ("timeout", "10"),
        ("timeout", float("nan")),
        ("compression", 1),
        ("surplus", -1),
        ("surplus", None),
        ("verify_every", 0),
        ("verify_every", True),
    ],
)
def test_a_wrong_value_is_refused(pair: Pair, option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(tidelog.DataError, match=option):
        tidelog.follow(pair.root / "other", "tidelog://127.0.0.1:1", **given)
    assert not (pair.root / "other").exists()


def test_timeouts_longer_than_the_system_takes(pair: Pair) -> None:
    pair.client().config_set("repl-timeout", (1 << 31) - 1)
    db = pair.follow(timeout=timedelta(days=365))
    pair.db.xadd("orders", {"n": 0})
    equal(pair.db, db)
