"""tidelog top on a real redis-server 7.0: the figures are those that the server tells."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
from tests.oracle.test_import import place
from tests.oracle.test_import_live import served

from tidelog.tools import cli

__all__ = ["place"]  # a fixture


def test_a_plain_redis(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(place) as (server, url), closing(server.connect()) as link:
        for n in range(4):
            link.call(b"XADD", b"s", b"%d-0" % (n + 1), b"n", b"1")
        link.call(b"XGROUP", b"CREATE", b"s", b"g", b"0")
        link.call(b"XREADGROUP", b"GROUP", b"g", b"anna", b"COUNT", b"3", b"STREAMS", b"s", b">")
        link.call(b"SET", b"k", b"1")
        assert cli.run(["top", url, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        (stream,) = told["streams"]
        assert (stream["length"], stream["added"], stream["lag"], stream["pending"]) == (4, 4, 1, 3)
        (group,) = stream["groups"]
        assert (group["name"], group["read"], group["pending"]) == ("g", 3, 3)
        assert group["oldest_ms"] <= told["time_ms"] + 60_000
        assert told["facts"]["version"].startswith("Redis 7.")
        assert told["facts"]["last_lsn"] is None and told["facts"]["exposed_bytes"] is None
        assert cli.run(["top", url, "--once"]) == 0
        assert "exposed ? for ? s" in capsys.readouterr().out
