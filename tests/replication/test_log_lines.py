"""The log of a server has one line for each change of its role, and when writes are refused or taken again."""

from __future__ import annotations

import logging

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up
from tests.until import until


def lines(caplog: pytest.LogCaptureFixture, part: str) -> list[str]:
    return [found.message for found in caplog.records if part in found.message]


def test_changes_of_the_role(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.replication")
    pair.db.xadd("orders", {"n": 1})
    db, port = pair.follower()
    root = str(pair.root / "follower")
    caught_up(pair.db, db)
    leader = f"127.0.0.1:{pair.proxy.port}"
    assert lines(caplog, root + " follows") == [
        f"{root} follows {leader} (followed by the option replicaof)"
    ]
    client = pair.client(port)
    assert client.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
    until(lambda: lines(caplog, root + " leads"))
    client.execute_command("REPLICAOF", "NO", "ONE")  # nothing changes
    assert client.execute_command("REPLICAOF", "127.0.0.1", str(pair.port)) == b"OK"
    until(lambda: len(lines(caplog, root + " follows")) == 2)
    assert lines(caplog, root + " leads") == [
        f"{root} leads, in generation 1 or a later one (promoted by REPLICAOF NO ONE)"
    ]
    assert not lines(caplog, str(pair.root / "leader") + " leads")  # it always did


def test_writes_that_are_refused(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    client = pair.client()
    client.config_set("min-replicas-to-write", 1)
    assert len(lines(caplog, "writes of clients are refused")) == 1
    pair.follow()
    until(lambda: lines(caplog, "writes of clients are taken again"))
    client.xadd("orders", {"n": 1})
