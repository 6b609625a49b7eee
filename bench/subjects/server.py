"""The server beside a redis-server: throughput, and latency from producer to consumer.

The redis-server has the same appendfsync. Both are processes of their own, driven by the same clients over loopback.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from bench import latency
from bench.baselines.redis_peer import RedisPeer
from bench.figure import Bound, Figure
from bench.messages import BATCH
from bench.race import WALL, Value, each
from bench.run import ALWAYS, EVERYSEC, REDIS, Run
from bench.servers import Load, Served, adding
from bench.wire import GROUP, STREAM, packed
from bench.worker import Worker

SLICE_TIMES = 5  # redis-benchmark needs some time to get going
# fmt: off
LOADS = {
    EVERYSEC: ((Load(50), 0.8), (Load(50, pipeline=16), 0.5), (Load(50, pipeline=100), 0.5)),
    ALWAYS:   ((Load(50), 0.75), (Load(200), 0.8)),
}
# fmt: on
PAGE = 100
COUNT = 10

# entries/s, tried in this order; the first rate that all servers reach is measured
RATES = 10_000, 7_500, 5_000, 2_500, 1_000
CARRIED = 0.97  # of the rate that was meant
TRIAL_S = 2.0
RUN_S, QUICK_RUN_S = 5.0, 2.0
RUNS, QUICK_RUNS = 7, 3
PENDING = 1_000_000


def rows(run: Run) -> Iterator[Figure]:
    try:
        yield from _throughput(run)
    except FileNotFoundError as error:
        run.missing["redis-benchmark"] = str(error)
    yield from _reading(run)
    yield from _latency(run)


def _servers(run: Run, appendfsync: str) -> AbstractContextManager[list[Served]]:
    """Ours, and a redis-server where there is one, new and empty."""
    return run.servers(lambda start: start(run.fresh("server"), appendfsync))


# --- commands per second


def _throughput(run: Run) -> Iterator[Figure]:
    for appendfsync, loads in LOADS.items():
        with _servers(run, appendfsync) as servers:
            for load, share in loads:
                sides = [load.against(server) for server in servers]
                rates = run.race(sides, slice_times=SLICE_TIMES)
                yield Figure.of(
                    f"server: XADD, {appendfsync}, {load.shown}",
                    "/s",
                    rates,
                    Bound(share, REDIS),
                    note="redis-benchmark, two small fields",
                )


def _reading(run: Run) -> Iterator[Figure]:
    with _servers(run, EVERYSEC) as servers, ExitStack() as closing:
        peers = [
            closing.enter_context(
                Worker(server.name, RedisPeer, server.port, "SMALL", version=server.version)
            )
            for server in servers
        ]
        for peer in peers:
            peer.call("add_batches", BATCH)
        pages = run.race(each(peers, "pages", size=PAGE), clock=WALL)
        entries = run.race(each(peers, "take", quantum=COUNT, at_once=COUNT), clock=WALL)
    yield Figure.of(f"server: XRANGE of {PAGE}", "/s", pages, note="calls, by redis-py")
    name = f"server: XREADGROUP COUNT {COUNT} + XACK {COUNT}, everysec"
    yield Figure.of(name, "/s", entries, note="entries through both, by redis-py")


# --- from producer to consumer


def _latency(run: Run) -> Iterator[Figure]:
    for pending in (0, run.scaled(PENDING)):
        beside = f", {pending:,} pending" if pending else ""
        with _servers(run, EVERYSEC) as servers:
            for server in servers:
                latency.prepare(server)
                leave_pending(server, pending)
            rate = carried(servers)
            target = Bound(1.5, REDIS, most=True)
            yield from _latencies(_by_turns(run, servers, rate), f"{rate:,}/s{beside}", target)
            if not pending:
                # A rate far below the machine's limit, so that no entry waits for another.
                rate //= 2
                yield from _latencies(_by_turns(run, servers, rate), f"{rate:,}/s")


def _latencies(found: dict[str, dict[str, Value]], name: str, *bounds: Bound) -> Iterator[Figure]:
    shown = "; ".join(
        f"{side} carried {at.this:,.0f}/s, p50 {found['p50'][side].this:.2f} ms"
        for side, at in found["carried"].items()
    )
    for share in ("p99", "p99.9"):
        yield Figure.of(
            f"server: XADD to consumer, {name}, {share}",
            "ms",
            found[share],
            *bounds,
            note=f"{latency.CONSUMERS} consumers, COUNT {latency.COUNT:,}, everysec; {shown}",
        )


def leave_pending(server: Served, count: int) -> None:
    """Leave entries delivered to a consumer and unacknowledged."""
    server.feed(adding(count))
    read = packed(
        *("XREADGROUP", "GROUP", GROUP, "gone", "COUNT", str(BATCH), "STREAMS", STREAM, ">")
    )
    server.feed(read for _ in range(count // BATCH))
    pending: Any = server.client.xpending(STREAM, GROUP)
    if pending["pending"] != count:
        raise RuntimeError(
            f"{server.name} has {pending['pending']} pending entries instead of {count}"
        )


def carried(servers: Sequence[Served]) -> int:
    """The highest rate that every server reaches on this machine."""
    for rate in RATES:
        runs = [latency.measure(server.port, rate, TRIAL_S) for server in servers]
        if all(min(found["carried"], found["produced"]) >= rate * CARRIED for found in runs):
            return rate
    return RATES[-1]


def _by_turns(run: Run, servers: list[Served], rate: int) -> dict[str, dict[str, Value]]:
    runs, seconds = (QUICK_RUNS, QUICK_RUN_S) if run.quick else (RUNS, RUN_S)
    return run.by_turns(servers, runs, lambda server: latency.measure(server.port, rate, seconds))
