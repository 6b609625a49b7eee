"""A leader whose copy was promoted after it learns of that when the copy asks to follow it."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.server.ports import free_port
from tests.until import until

import tidelog


def test_both_sides_say_which_one_is_superseded(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    old = pair.open("old")
    metrics = free_port()
    served = pair.serve(old, metrics_port=metrics)
    with tidelog.follow(pair.root / "new", f"tidelog://127.0.0.1:{served.port}") as new:
        old.xadd("orders", {"n": 1})
        caught_up(old, new)
        new.promote()
        new.xadd("orders", {"n": 2})
        client = pair.client(served.port)
        assert "superseded_by" not in client.info("replication")
        port = pair.serve(new).port
        other = pair.client(port)
        assert other.execute_command("REPLICAOF", "127.0.0.1", str(served.port)) == b"OK"

        until(lambda: "superseded_by" in client.info("replication"))
        name = f"127.0.0.1:{port}"
        assert name in str(client.info("replication")["superseded_by"])
        with urlopen(f"http://127.0.0.1:{metrics}/health", timeout=60) as answer:
            health = json.loads(answer.read())
        assert health["superseded_by"] == f"{name}, generation 1"
        until(lambda: "was promoted later" in str(other.info("replication")["master_link_failure"]))
        assert caplog.text.count("is superseded: its copy at") == 1

        # It follows, so it has that generation by then.
        assert other.execute_command("REPLICAOF", "NO", "ONE") == b"OK"
        assert client.execute_command("REPLICAOF", "127.0.0.1", str(port)) == b"OK"
        equal(new, old)
        assert "superseded_by" not in client.info("replication")
