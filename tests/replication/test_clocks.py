"""Clocks of leader and follower that are an hour apart: nothing expires early, and nothing late, over a real link."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.until import until

from tidelog.testing import Clock


@pytest.mark.parametrize("hours", [-1, 1])
def test_keys_expire_by_the_leaders_clock(tmp_path: Path, hours: int) -> None:
    here = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    there = Clock(here + timedelta(hours=hours))
    with ExitStack() as stack:
        pair = Pair(tmp_path, stack, clock=there)
        db = pair.follow(clock=Clock(here))
        pair.db.set("k", "v", px=60_000)
        pair.db.set("longer", "v", px=90_000)
        pair.db.xadd("orders", {"n": 1})
        equal(pair.db, db)
        until(lambda: db.info()["replication"]["lag"] == 0)
        assert db.get("k") == b"v"
        there.advance(61)
        until(lambda: db.get("k") is None, "the leader's clock does not come")
        assert db.get("longer") == b"v"
        there.advance(30)
        until(lambda: db.get("longer") is None)
        pair.db.dbsize()
        caught_up(pair.db, db)
        assert db.xlen("orders") == 1
