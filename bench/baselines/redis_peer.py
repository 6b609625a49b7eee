"""redis-py with hiredis, on a redis-server of the run, or on a served store."""

from __future__ import annotations

from typing import Any

import redis

from bench.baselines.peer import Peer
from bench.messages import BATCH
from bench.wire import GROUP, STREAM

CONSUMER = "worker-1"


class RedisPeer(Peer):
    """A stream of a server and its group. The server is emptied first."""

    def __init__(self, port: int, messages: str) -> None:
        super().__init__(messages)
        self._client: Any = redis.Redis(port=port, protocol=2, socket_timeout=60)
        self._client.flushall()
        self._client.xgroup_create(STREAM, GROUP, "0", mkstream=True)

    def add(self, count: int) -> None:
        xadd = self._client.xadd
        for fields in self.messages.some(count):
            xadd(STREAM, fields)

    def add_batches(self, count: int) -> None:
        messages = self.messages.some(count)
        for start in range(0, count, BATCH):
            pipeline = self._client.pipeline(transaction=False)
            for fields in messages[start : start + BATCH]:
                pipeline.xadd(STREAM, fields)
            pipeline.execute()

    def take(self, count: int, at_once: int) -> None:
        for _ in range(count // at_once):
            reply = self._client.xreadgroup(GROUP, CONSUMER, {STREAM: ">"}, count=at_once)
            self._done([id for id, _ in reply[0][1]])

    def _done(self, ids: list[bytes]) -> None:
        self._client.xack(STREAM, GROUP, *ids)

    def pages(self, calls: int, size: int) -> None:
        """Call XRANGE `calls` times for the first entries."""
        for _ in range(calls):
            self._client.xrange(STREAM, count=size)

    def close(self) -> None:
        self._client.close()


class RedisQueue(RedisPeer):
    """The same stream used as a work queue: a done message is deleted in the transaction of its ack."""

    def _done(self, ids: list[bytes]) -> None:
        pipeline = self._client.pipeline()
        pipeline.xack(STREAM, GROUP, *ids)
        pipeline.xdel(STREAM, *ids)
        pipeline.execute()
