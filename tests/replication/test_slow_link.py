"""A link of 1 KB a second is slow, and not silent: the follower catches up over one connection."""

from __future__ import annotations

import random
import threading

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal

TIMEOUT_S = 10


@pytest.mark.slow
def test_it_catches_up(pair: Pair) -> None:
    pair.client().config_set("repl-timeout", TIMEOUT_S)
    pair.db.xadd("orders", {"n": 0})
    pair.proxy.pace = 1000
    db = pair.follow(timeout=TIMEOUT_S)
    caught_up(pair.db, db)
    pair.db.xadd("orders", {"random": random.Random(1).randbytes(3 * TIMEOUT_S * 1000)})
    equal(pair.db, db)
    assert pair.proxy.count == 1


@pytest.mark.slow
def test_a_leader_that_is_far_ahead_of_it_keeps_the_link(pair: Pair) -> None:
    """More waits at the leader than the connection takes, for longer than the timeout."""
    pair.client().config_set("repl-timeout", TIMEOUT_S)
    pair.db.xadd("orders", {"n": 0})
    passed = threading.Event()

    def note(data: bytes, at: int) -> bytes:
        if at > 3 * TIMEOUT_S * 1000:
            passed.set()
        return data

    pair.proxy.pace, pair.proxy.change = 1000, note
    db = pair.follow(timeout=TIMEOUT_S)
    for _ in range(60):
        pair.db.xadd("orders", {"random": random.randbytes(100_000)})
    assert passed.wait(60)
    pair.proxy.pace = None
    equal(pair.db, db)
    assert pair.proxy.count == 1
