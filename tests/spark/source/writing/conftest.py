"""Servers to write to: tidelog's own and a real redis-server 7.0, each behind a proxy that can break connections."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
import redis
from pyspark.sql import types as T
from tests.server.real_redis import real_redis
from tests.spark.source.writing.faulty import Proxy

import tidelog
from tidelog.spark.source.writing import chunks, sink

SCHEMA = T.StructType([T.StructField("stream", T.StringType()), T.StructField("n", T.LongType())])


class Target(NamedTuple):
    """A server to write to."""

    client: Any  # redis.Redis, whose types say little
    proxy: Proxy

    def task(self, schema: T.StructType = SCHEMA, **options: str) -> sink.Task:
        return sink.writer(
            {"url": self.proxy.url, "retrySeconds": "20", **options}, schema, False
        ).task

    def numbers(self, stream: str = "s") -> list[int]:
        """The field `n` of all entries."""
        entries: Any = self.client.xrange(stream)
        return [int(fields[b"n"]) for _, fields in entries]


def batches(numbers: Sequence[int], size: int = 25, stream: str = "s") -> Iterator[pa.RecordBatch]:
    """Rows with these numbers, in batches."""
    for first in range(0, len(numbers), size):
        part = numbers[first : first + size]
        yield pa.record_batch([pa.array([stream] * len(part)), pa.array(part)], ["stream", "n"])


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "PAUSE_S", 0)


@pytest.fixture(scope="module", params=["tidelog", "redis"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """(how to connect, address for a client)"""
    if request.param == "redis":
        with real_redis() as (real, _):
            path = str(real.socket)

            def by_path() -> socket.socket:
                link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                link.connect(path)
                return link

            yield by_path, {"unix_socket_path": path}
        return
    place: Path = tmp_path_factory.mktemp("served") / "store"
    with tidelog.open(place, fsync="everysec") as db, tidelog.serve(db, port=0) as serving:
        address = ("127.0.0.1", serving.port)

        def by_port() -> socket.socket:
            link = socket.create_connection(address)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return link

        yield by_port, {"port": serving.port}


@pytest.fixture
def target(server: Any) -> Iterator[Target]:
    connect, address = server
    proxy = Proxy(connect)
    client = redis.Redis(protocol=2, **address)
    client.flushall()
    yield Target(client, proxy)
    client.close()
    proxy.close()
