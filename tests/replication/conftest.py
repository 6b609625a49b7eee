"""A served leader and a follower in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
from tests.replication.proxy import Proxy
from tests.server.ports import free_port

import tidelog
from tidelog.server.server import Server

# No link ends because a busy machine keeps it silent. A test of such ends gives a shorter time.
LINK_TIMEOUT_S = 60


class Pair:
    """A leader `db`, served on `port`, and a proxy in front of it."""

    def __init__(self, root: Path, stack: ExitStack, **options: Any) -> None:
        """The options are the leader's."""
        self.root = root
        self._stack = stack
        self.db = self.open("leader", **options)
        self.serving = self.serve(self.db, repl_timeout=LINK_TIMEOUT_S)
        self.port = self.serving.port
        self.proxy = Proxy(self.port)
        stack.callback(self.proxy.close)

    def open(self, name: str, **options: Any) -> tidelog.Store:
        """A store that is closed at the end."""
        given = {"fsync": "everysec", **options}
        return self._stack.enter_context(tidelog.open(self.root / name, **given))

    def serve(self, db: tidelog.Store, **options: Any) -> tidelog.Serving:
        """A server that ends at the end. Another one may be started on its port."""
        return self._stack.enter_context(tidelog.serve(db, **{"port": free_port(), **options}))

    def follow(self, name: str = "follower", **options: Any) -> tidelog.Store:
        """An embedded follower, through the proxy."""
        given = {"fsync": "everysec", "timeout": LINK_TIMEOUT_S, **options}
        url = f"tidelog://127.0.0.1:{self.proxy.port}"
        return self._stack.enter_context(tidelog.follow(self.root / name, url, **given))

    def follower(self, name: str = "follower", **options: Any) -> tuple[tidelog.Store, int]:
        """A follower that is a server: its store and port. It follows through the proxy."""
        db = self.open(name)
        given = {"repl_timeout": LINK_TIMEOUT_S, **options}
        serving = self.serve(db, replicaof=f"127.0.0.1 {self.proxy.port}", **given)
        return db, serving.port

    @property
    def server(self) -> Server:
        """The leader's, to look at; it lives in another thread."""
        assert self.serving.server is not None
        return self.serving.server

    def client(self, port: int | None = None, **options: Any) -> Any:
        """A redis.Redis of the leader, or of the server on this port."""
        client = redis.Redis(
            port=port or self.port, **{"protocol": 2, "socket_timeout": 90, **options}
        )
        self._stack.callback(client.close)
        return client


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(tmp_path, stack)
