"""An exception that nobody expects ends a connection and is told of. It never leaves a link that looks connected."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal, last_lsn
from tests.until import until

import tidelog
from tidelog.replication import link as links
from tidelog.replication.embedded import _LinkThread
from tidelog.replication.feed import Feed
from tidelog.replication.follower import Follower
from tidelog.replication.link import Link

FAULT = "a fault of tidelog: ZeroDivisionError('planted')"


def broken(*args: Any, **options: Any) -> Any:
    raise ZeroDivisionError("planted")


def following(pair: Pair) -> tidelog.Store:
    """A follower whose link is up."""
    pair.db.xadd("orders", {"n": 0})
    db = pair.follow()
    caught_up(pair.db, db)
    return db


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log lines that have the traceback of the planted fault."""
    return [
        found.message
        for found in caplog.records
        if found.exc_info is not None and found.exc_info[0] is ZeroDivisionError
    ]


@pytest.mark.parametrize(
    "owner, name",
    [
        (Follower, "check"),
        (Follower, "hello"),
        (Follower, "answered"),
        (Follower, "receive"),
        (Follower, "work"),
        (Follower, "send"),
        (Follower, "overdue"),
        (_LinkThread, "timeout_s"),
        (links, "greeting"),
        (Link, "came_up"),
        (Link, "verify_if_due"),
    ],
)
def test_the_follower_tells_of_it_and_goes_on_afterwards(
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    owner: object,
    name: str,
) -> None:
    monkeypatch.setattr(links, "REFUSED_PAUSE_S", 0.01)
    db = following(pair)

    def told() -> dict[str, Any]:
        found: dict[str, Any] = db.info()["replication"]
        return found

    with monkeypatch.context() as planted:
        planted.setattr(owner, name, broken)
        pair.proxy.cut()
        pair.db.xadd("orders", {"n": 1})
        until(lambda: told()["link_failure"] == FAULT, f"{name} is not told of")
        until(lambda: told()["link"] != "connected")
        before = attempts(db)
        until(lambda: attempts(db) > before, "it gives up")
    assert last_lsn(db) <= last_lsn(pair.db)
    equal(pair.db, db)
    until(lambda: told()["link"] == "connected" and not told()["link_failure"])
    found = [line for line in tracebacks(caplog) if "the link to the leader" in line]
    assert found and all(line.endswith(FAULT) for line in found)


def test_the_same_fault_again_is_told_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(links, "REFUSED_PAUSE_S", 0.001)
    monkeypatch.setattr(links, "PAUSE_S", 0.001)
    db = following(pair)
    with monkeypatch.context() as planted:
        planted.setattr(Follower, "hello", broken)
        before = attempts(db)
        pair.proxy.cut()
        until(lambda: attempts(db) > before + 5)
    caught_up(pair.db, db)
    assert len(tracebacks(caplog)) == 1


def attempts(db: tidelog.Store) -> int:
    """How often the follower has tried to connect."""
    link = inside.core(db).link
    assert isinstance(link, Link)
    return link.attempts


def test_a_comparison_that_fails_is_told_of(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_LinkThread, "verify_every_s", lambda self: 0.001)
    monkeypatch.setattr(Link, "_compare", broken)
    db = pair.follow()
    until(lambda: "was not compared with its leader: ZeroDivisionError('planted')" in caplog.text)
    monkeypatch.undo()
    equal(pair.db, db)


def test_the_leader_closes_the_link_and_serves_on(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tidelog.replication")
    db = following(pair)
    client = pair.client()
    with monkeypatch.context() as planted:
        planted.setattr(Feed, "send", broken)
        client.xadd("orders", {"n": 1})
        until(lambda: tracebacks(caplog), "the leader does not tell")
        assert client.xadd("orders", {"n": 2})
    equal(pair.db, db)
