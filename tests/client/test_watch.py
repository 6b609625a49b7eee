"""WATCH through a shared store: it holds for one connection."""

from __future__ import annotations

import pytest
from tests.client.conftest import Bench

import tidelog


def test_a_watch_ends_with_its_connection(bench: Bench) -> None:
    """A transaction is not run without the watch that it relies on."""
    db = bench.connect()
    pipe = db.pipeline()
    pipe.watch("a")
    bench.restart()
    pipe.multi()
    pipe.set("a", "mine")
    with pytest.raises(tidelog.WatchError, match="has ended"):
        pipe.execute()
    assert db.get("a") is None
    pipe.watch("a")
    pipe.multi()
    pipe.set("a", "mine")
    assert pipe.execute() == [True]
