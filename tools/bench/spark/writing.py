"""Writing: rows per second from one task to a served store and to a redis-server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

from tidelog.tools.bench.baselines.redis_server import RedisServer
from tidelog.tools.bench.bench import EVERYSEC
from tidelog.tools.bench.contenders.our_server import TidelogServer
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import BATCH
from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.spark.setting import Setting, fields

ROWS = 200_000
STREAM = "written"
OURS, REDIS, PIPELINE = "tidelog", "redis-server", "redis-py, pipelines of 1,000"


def rows(setting: Setting) -> Iterator[Figure]:
    count = setting.bench.scaled(ROWS)
    kinds: list[Callable[..., Served]] = [TidelogServer, RedisServer]
    with ExitStack() as closing:
        servers = []
        for kind in kinds:
            try:
                server = kind(setting.bench.fresh("spark-written"), EVERYSEC)
            except FileNotFoundError as error:
                setting.bench.missing[REDIS] = str(error)
                continue
            closing.callback(server.close)
            servers.append(server)
        rates: dict[str, list[float]] = {server.name: [] for server in servers}
        piped: dict[str, list[float]] = {server.name: [] for server in servers}
        for turn in range(setting.runs + 1):
            for server in servers:
                rate = count / _written(setting, server, count)
                pipe = count / _piped(server, count)
                if turn:
                    rates[server.name].append(rate)
                    piped[server.name].append(pipe)
    of = {name: median(each) for name, each in rates.items()}
    for name, rate in of.items():
        beside = {PIPELINE: median(piped[name])}
        beside |= {other: of[other] for other in of if other != name}
        yield Figure(
            f"Spark, writing to {name}'s server" if name == OURS else f"Spark, writing to {name}",
            "/s",
            rate,
            beside,
            (Bound(25_000),),
            f"{count:,} rows of three columns from one task, everysec",
        )


def _written(setting: Setting, server: Served, count: int) -> float:
    url = f"redis://127.0.0.1:{server.port}/0"
    seconds: float = setting.spark.call("write", url, STREAM, count)
    _check(server, count)
    return seconds


def _piped(server: Served, count: int) -> float:
    """Seconds in which a client that cannot be run again adds as many."""
    start = time.perf_counter()
    for _ in range(count // BATCH):
        pipe = server.client.pipeline(transaction=False)
        for row in fields(BATCH):
            pipe.xadd(STREAM, row)  # type: ignore[arg-type]
        pipe.execute()
    seconds = time.perf_counter() - start
    _check(server, count)
    return seconds


def _check(server: Served, count: int) -> None:
    found = server.client.xlen(STREAM)
    if found != count:
        raise RuntimeError(f"{server.name} has {found} entries of {count}")
    server.client.delete(STREAM)
