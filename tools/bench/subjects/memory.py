"""Memory: growth of the resident set of a fresh process, for a million entries and a million pending ones.

All of the process counts, the mapped part of the log too.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.tools.bench.baselines.redis_server import GROUP, RedisServer
from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import BATCH, RANDOM, SMALL, Messages
from tidelog.tools.bench.processes.child import ask
from tidelog.tools.bench.wire import STREAM

ENTRIES = 1_000_000


def rows(bench: Bench) -> Iterator[Figure]:
    entries = bench.scaled(ENTRIES)
    for messages, kind, most in ((SMALL, "small", 24), (RANDOM, "random", 118)):
        ours = ask("memory", bench.fresh("tidelog"), kind, entries)
        redis = _redis(bench, messages, entries, pending=kind == "small")
        yield Figure(
            f"memory per entry, {messages.name}",
            "B",
            ours["entry"],
            {"redis-server": redis["entry"]} if redis else {},
            (Bound(most, most=True),),
            f"{entries:,} entries",
        )
        if kind == "small":
            yield Figure(
                "memory per pending entry",
                "B",
                ours["pending"],
                {"redis-server": redis["pending"]} if redis else {},
                (Bound(80, most=True),),
                f"{entries:,} delivered by 100",
            )


def _redis(
    bench: Bench, messages: Messages, entries: int, *, pending: bool
) -> dict[str, float] | None:
    """The same in a redis-server of its own, whose memory nothing else has touched."""
    try:
        server = RedisServer(bench.fresh("redis-memory"), "everysec")
    except FileNotFoundError as error:
        bench.missing["redis-py"] = str(error)
        return None
    try:
        client = server.client
        client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
        start = server.rss_bytes()
        batch = messages.some(BATCH)
        for _ in range(entries // BATCH):
            pipeline = client.pipeline(transaction=False)
            for fields in batch:
                pipeline.xadd(STREAM, fields)  # type: ignore[arg-type]
            pipeline.execute()
        stored = server.rss_bytes()
        if pending:
            for _ in range(entries // 100):
                client.xreadgroup(GROUP, "worker-1", {STREAM: ">"}, count=100)
        return {
            "entry": (stored - start) / entries,
            "pending": (server.rss_bytes() - stored) / entries,
        }
    finally:
        server.close()
