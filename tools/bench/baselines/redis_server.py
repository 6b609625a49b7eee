"""redis-py with hiredis, on a redis-server that the bench starts on this machine."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from tidelog.tools.bench.contenders.peer import Peer
from tidelog.tools.bench.messages import BATCH, Messages
from tidelog.tools.bench.processes.served import Served, free_port
from tidelog.tools.bench.wire import STREAM

GROUP, CONSUMER = "billing", "worker-1"


class RedisServer(Served):
    """A new redis-server: free loopback port, AOF in `directory`, no RDB unless requested.

    With `aof=False` it loads the RDB file of that directory. Raises FileNotFoundError if redis-server is not
    installed.
    """

    def __init__(self, directory: Path, appendfsync: str, *, aof: bool = True) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise FileNotFoundError("redis-server is not in PATH")
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        # fmt: off
        options = {
            "port": str(port), "bind": "127.0.0.1", "dir": str(directory), "save": "",
            "appendonly": "yes" if aof else "no", "appendfsync": appendfsync, "auto-aof-rewrite-percentage": "0",
            "enable-debug-command": "yes", "logfile": "redis.log",
        }
        # fmt: on
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        super().__init__("redis-server", [program, *arguments], port)

    def rss_bytes(self) -> int:
        info: dict[str, Any] = self.client.info("memory")
        return int(info["used_memory_rss"])


class RedisPeer(Peer):
    """Streams of a server, driven by redis-py."""

    def __init__(self, server: Served, messages: Messages) -> None:
        self.name = "redis-py"
        self._client = server.connect()
        self._messages = messages
        self._client.flushall()
        self._client.xgroup_create(STREAM, GROUP, "0", mkstream=True)

    def add(self, count: int) -> None:
        xadd = self._client.xadd
        for fields in self._messages.some(count):
            xadd(STREAM, fields)  # type: ignore[arg-type]

    def add_batches(self, count: int) -> None:
        messages = self._messages.some(count)
        for start in range(0, count, BATCH):
            pipeline = self._client.pipeline(transaction=False)
            for fields in messages[start : start + BATCH]:
                pipeline.xadd(STREAM, fields)  # type: ignore[arg-type]
            pipeline.execute()

    def take(self, count: int, at_once: int) -> None:
        client = self._client
        for _ in range(count // at_once):
            reply: Any = client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=at_once)
            client.xack(STREAM, GROUP, *[id for id, _ in reply[0][1]])

    def scan(self, pages: int, size: int) -> float:
        """Entries per second through XRANGE, page by page from the beginning."""
        start = time.perf_counter()
        last, found = "-", 0
        for _ in range(pages):
            page: Any = self._client.xrange(STREAM, min=last, count=size)
            found += len(page)
            last = f"({page[-1][0].decode()}"
        return found / (time.perf_counter() - start)

    def close(self) -> None:
        self._client.close()


class RedisQueue(RedisPeer):
    """The same streams used as a work queue: a done message is deleted in the transaction of its ack."""

    def take(self, count: int, at_once: int) -> None:
        client = self._client
        for _ in range(count // at_once):
            reply: Any = client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=at_once)
            ids = [id for id, _ in reply[0][1]]
            pipeline = client.pipeline()
            pipeline.xack(STREAM, GROUP, *ids)
            pipeline.xdel(STREAM, *ids)
            pipeline.execute()
