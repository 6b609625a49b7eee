"""A running server for each test that asks for one: in a thread, over a store in tmp_path, on a free loopback port."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis

import tidelog
from tidelog.server.server import Server


class Running(NamedTuple):
    """A server, its store, and how to reach it."""

    db: tidelog.Store
    serving: tidelog.Serving
    port: int
    root: Path
    stack: ExitStack  # of what ends with the test

    @property
    def server(self) -> Server:
        """To look at; it lives in another thread."""
        server = self.serving.server
        assert server is not None
        return server

    def client(self, **options: Any) -> redis.Redis:
        """A redis-py client, closed at the end of the test. RESP2 unless `protocol=3`."""
        found = redis.Redis(port=self.port, **{"protocol": 2, **options})
        self.stack.callback(found.close)
        return found


Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server: `start(fsync="always", requirepass="secret")`. Options of the store by name, all others are the
    server's."""
    with ExitStack() as stack:
        count = 0

        def begin(root: Path | None = None, **options: Any) -> Running:
            nonlocal count
            count += 1
            where = root or tmp_path / f"store{count}"
            names = ("fsync", "memory_budget", "maxdisk", "save", "clock", "keep_snapshots")
            given = {name: options.pop(name) for name in names if name in options}
            db = stack.enter_context(tidelog.open(where, **{"fsync": "everysec", **given}))
            serving = stack.enter_context(tidelog.serve(db, **{"port": 0, **options}))
            return Running(db, serving, serving.port, where, stack)

        yield begin


@pytest.fixture
def server(start: Start) -> Running:
    """One with nothing but defaults."""
    return start()
