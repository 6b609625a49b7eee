"""The server beside a redis-server: throughput, latency from producer to consumer, idle clients.

The redis-server has the same appendfsync. Both are processes of their own, driven by the same clients over loopback.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from tidelog.tools.bench.baselines.redis_saved import adding_to_one, feed
from tidelog.tools.bench.baselines.redis_server import RedisPeer, RedisServer
from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.contenders.our_server import TidelogServer
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import BATCH, SMALL
from tidelog.tools.bench.processes import crowd, idle, stream_latency
from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.race import Contender
from tidelog.tools.bench.redis_benchmark import Load
from tidelog.tools.bench.wire import STREAM, packed

OURS, REDIS = "tidelog", "redis-server"
SLICE_TIMES = 5  # redis-benchmark needs some time to get going
# fmt: off
LOADS = {
    EVERYSEC: ((Load(50), 0.8), (Load(50, pipeline=16), 0.5), (Load(50, pipeline=100), 0.5)),
    ALWAYS:   ((Load(50), 0.75), (Load(200), 0.8)),
}
# fmt: on
PAGE = 100
COUNT = 10

# messages/s, tried in this order; the first rate that both servers reach is measured
RATES = 10_000, 7_500, 5_000, 2_500, 1_000
CARRIED = 0.97  # of the rate that was meant
TRIAL_S = 2.0
RUN_S, QUICK_RUN_S = 5.0, 2.0
RUNS, QUICK_RUNS = 7, 3
LATENCY_TIMES = 1.5
PENDING = 1_000_000

LARGE = 66_600  # entries, trimmed at once
KEYS = 1_000_000  # deleted at once
CROWD_S, QUICK_CROWD_S = 5.0, 2.0

IDLE_CLIENTS = 5_000
IDLE_S, QUICK_IDLE_S = 10.0, 3.0

Servers = dict[str, Served]


def rows(bench: Bench) -> Iterator[Figure]:
    try:
        yield from _throughput(bench)
    except FileNotFoundError as error:
        bench.missing["redis-benchmark"] = str(error)
    yield from _reading(bench)
    yield from _latency(bench)
    yield from _idle(bench)
    yield from _crowd(bench)


@contextmanager
def _servers(
    bench: Bench, appendfsync: str, where: dict[str, Path] | None = None
) -> Iterator[Servers]:
    """Ours, and a redis-server where there is one: new and empty, or in the directories of `where`, which are noted."""
    where = {} if where is None else where
    with ExitStack() as closing:
        servers: Servers = {}
        kinds: list[Callable[..., Served]] = [TidelogServer, RedisServer]
        for kind in kinds:
            try:
                path = where.get(kind.__name__) or bench.fresh("server")
                where[kind.__name__] = path
                server = kind(path, appendfsync)
            except FileNotFoundError as error:
                bench.missing[REDIS] = str(error)
                continue
            closing.callback(server.close)
            servers[server.name] = server
        yield servers


# --- commands per second


def _throughput(bench: Bench) -> Iterator[Figure]:
    for appendfsync, loads in LOADS.items():
        with _servers(bench, appendfsync) as servers:
            for load, share in loads:
                sides = [load.against(server) for server in servers.values()]
                rates = bench.race(sides, slice_times=SLICE_TIMES)
                yield Figure(
                    f"server: XADD, {appendfsync}, -c {load.clients} -P {load.pipeline}",
                    "/s",
                    rates.pop(OURS),
                    rates,
                    (Bound(share, REDIS),),
                    "redis-benchmark, two small fields",
                )


def _reading(bench: Bench) -> Iterator[Figure]:
    with _servers(bench, EVERYSEC) as servers:
        peers = {name: RedisPeer(server, SMALL) for name, server in servers.items()}
        ranging, taking = [], []
        for name, peer in peers.items():
            peer.name = name
            peer.add_batches(BATCH)
            ranging.append(_ranging(name, servers[name]))
            taking.append(peer.taking(COUNT))
        pages = bench.race(ranging)
        messages = bench.race(taking)
        for peer in peers.values():
            peer.close()
    yield Figure(
        f"server: XRANGE of {PAGE}", "/s", pages.pop(OURS), pages, (), "calls, by redis-py"
    )
    yield Figure(
        f"server: XREADGROUP COUNT {COUNT} + XACK {COUNT}, everysec",
        "/s",
        messages.pop(OURS),
        messages,
        (),
        "messages through both, by redis-py",
    )


def _ranging(name: str, server: Served) -> Contender:
    def run(calls: int) -> None:
        xrange = server.client.xrange
        for _ in range(calls):
            xrange(STREAM, count=PAGE)

    return Contender(name, run)


# --- from producer to consumer


def _latency(bench: Bench) -> Iterator[Figure]:
    for pending in (0, bench.scaled(PENDING)):
        beside = f", {pending:,} pending" if pending else ""
        with _servers(bench, EVERYSEC) as servers:
            for server in servers.values():
                stream_latency.prepare(server)
                _leave_pending(server, pending)
            rate = _carried(servers)
            target = Bound(LATENCY_TIMES, REDIS, most=True)
            yield from _latencies(_by_turns(bench, servers, rate), f"{rate:,}/s{beside}", target)
            if not pending:
                # Use a rate far below the machine's limit, so that no message waits for another.
                rate //= 2
                yield from _latencies(_by_turns(bench, servers, rate), f"{rate:,}/s")


def _latencies(found: dict[str, dict[str, float]], name: str, *bounds: Bound) -> Iterator[Figure]:
    carried = "; ".join(f"{side} carried {runs['carried']:,.0f}/s" for side, runs in found.items())
    halves = "; ".join(f"{side} p50 {runs['p50']:.2f} ms" for side, runs in found.items())
    for share in ("p99", "p99.9"):
        of = {side: runs[share] for side, runs in found.items()}
        yield Figure(
            f"server: XADD to consumer, {name}, {share}",
            "ms",
            of.pop(OURS),
            of,
            bounds,
            f"{stream_latency.CONSUMERS} consumers, COUNT {stream_latency.COUNT:,}, everysec; {carried}; {halves}",
        )


def _leave_pending(server: Served, count: int) -> None:
    """Leave so many entries delivered to a consumer and unacknowledged."""
    feed(server, adding_to_one(count))
    read = packed(
        *("XREADGROUP", "GROUP", stream_latency.GROUP, "gone", "COUNT", str(BATCH)),
        *("STREAMS", STREAM, ">"),
    )
    feed(server, (read for _ in range(count // BATCH)))
    pending: Any = server.client.xpending(STREAM, stream_latency.GROUP)
    if pending["pending"] != count:
        raise RuntimeError(
            f"{server.name} has {pending['pending']} pending entries instead of {count}"
        )


def _carried(servers: Servers) -> int:
    """The highest rate that every server reaches on this machine."""
    for rate in RATES:
        runs = [stream_latency.measure(server.port, rate, TRIAL_S) for server in servers.values()]
        if all(min(run["carried"], run["produced"]) >= rate * CARRIED for run in runs):
            return rate
    return RATES[-1]


def _by_turns(bench: Bench, servers: Servers, rate: int) -> dict[str, dict[str, float]]:
    """Medians of the runs, of each server."""
    runs, seconds = (QUICK_RUNS, QUICK_RUN_S) if bench.quick else (RUNS, RUN_S)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in servers}
    turns = list(servers.values())
    order = random.Random(runs)
    for _ in range(runs):
        order.shuffle(turns)
        for server in turns:
            found[server.name].append(stream_latency.measure(server.port, rate, seconds))
    return {
        name: {figure: median(run[figure] for run in of) for figure in of[0]}
        for name, of in found.items()
    }


# --- clients that wait


def _idle(bench: Bench) -> Iterator[Figure]:
    seconds = QUICK_IDLE_S if bench.quick else IDLE_S
    with (
        idle.many_files(bench.scaled(IDLE_CLIENTS)) as clients,
        _servers(bench, EVERYSEC) as servers,
    ):
        found = {name: idle.cost(server, clients, seconds) for name, server in servers.items()}
        waking = {name: idle.waking(server, clients) for name, server in servers.items()}
    each = {name: cost["each"] for name, cost in found.items()}
    cpu = {name: cost["cpu"] for name, cost in found.items()}
    cpu |= {f"{name}, no client": cost["alone"] for name, cost in found.items()}
    shown = f"{clients:,} clients blocked in XREAD"
    yield Figure("server: memory per blocked client", "B", each.pop(OURS), each, (), shown)
    yield Figure("server: CPU while they are idle", "ms/s", cpu.pop(OURS), cpu, (), shown)
    shown = f"{clients:,} consumers blocked in XREADGROUP; one gets it"
    yield Figure("server: an XADD that wakes one", "ms", waking.pop(OURS), waking, (), shown)


# --- one slow command, or many clients, and how long they delay the other clients


def _crowd(bench: Bench) -> Iterator[Figure]:
    count, keys = bench.scaled(LARGE), bench.scaled(KEYS)
    where: dict[str, Path] = {}
    with _servers(bench, EVERYSEC, where) as servers:
        deleted = {name: crowd.delete(server, keys) for name, server in servers.items()}
        for server in servers.values():
            crowd.add_large(server, count)
    # Start the servers anew, so that our server has no entry in memory.
    with _servers(bench, EVERYSEC, where) as servers:
        trimmed = {name: crowd.trim(server) for name, server in servers.items()}
    shown = (
        f"from the checkpoint, {count:,} of {crowd.ENTRY_BYTES:,} bytes; redis-server: from memory"
    )
    yield Figure("server: XTRIM of cold entries", "ms", trimmed.pop(OURS), trimmed, (), shown)
    yield Figure(
        f"server: DEL of {keys:,} keys", "ms", deleted.pop(OURS), deleted, (), "one command"
    )
    seconds = QUICK_CROWD_S if bench.quick else CROWD_S
    for name in crowd.CROWDS:
        with _servers(bench, EVERYSEC) as servers:
            for server in servers.values():
                crowd.fill(server)
            found = {side: crowd.polite(server, name, seconds) for side, server in servers.items()}
        worst = "; ".join(f"{side} worst {of['worst']:,.0f} ms" for side, of in found.items())
        p99 = {side: of["p99"] for side, of in found.items()}
        yield Figure(
            f"server: PING beside {name} that nobody reads, p99",
            "ms",
            p99.pop(OURS),
            p99,
            (),
            f"one at a time; {worst}",
        )
