"""A leader and its follower beside a redis-server and its replica: cost, lag, catching up, confirmations, faults.

All are processes on this machine, with appendfsync everysec. Clients, leader and follower share its processors, so the
cost is told as processor time, too.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import tidelog
from tidelog.tools.bench.baselines.redis_saved import adding_to_one, feed
from tidelog.tools.bench.baselines.redis_server import RedisServer
from tidelog.tools.bench.bench import EVERYSEC, Bench
from tidelog.tools.bench.contenders.our_server import TidelogServer
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import BATCH, RANDOM, SMALL
from tidelog.tools.bench.processes import confirmed, handing, stream_latency
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.leading import Leading
from tidelog.tools.bench.processes.opened import BY_HAND
from tidelog.tools.bench.processes.pair import (
    Kind,
    Pair,
    attach,
    hasten,
    offset,
    reached,
    replication,
    wait_for,
)
from tidelog.tools.bench.processes.relay import Relay
from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.redis_benchmark import Load
from tidelog.tools.bench.wire import STREAM, packed

OURS, REDIS = "tidelog", "redis-server"
ALONE, REDIS_ALONE = "without", "redis-server without"
REPLAY = "replay alone"
MIB = 1 << 20

# load, how much the leader's processor time per XADD may grow by one follower
LOADS = ((Load(50), 1.10), (Load(50, pipeline=16), 1.05))
LOAD_S, QUICK_LOAD_S = 2.0, 0.6  # of each slice
LOAD_ROUNDS, QUICK_LOAD_ROUNDS = 7, 3
FALL = 0.05  # by so much more than redis-server's may the rate fall

EMBEDDED_S, QUICK_EMBEDDED_S = 10.0, 2.0
EMBEDDED_RUNS, QUICK_EMBEDDED_RUNS = 3, 1
LEVEL_S, QUICK_LEVEL_S = 5.0, 2.0
THREADS = ((1, 2_500), (16, 15_000))  # and how many calls a second are wanted
KEPT_UP_S, QUICK_KEPT_UP_S = 60.0, 4.0
GROWN_MIB_MAX = 32

CAUGHT_UP = 1_000_000  # records
FRAME = 256
# records per frame, records per second, and the share of the rate at which an open replays the same log: the host of
# the absolute figure replays 544,000 and 1,070,000
CATCHING_UP = ((1, 350_000, 0.64), (FRAME, 700_000, 0.65))

COPIED, QUICK_COPIED = 5_000_000, 200_000  # entries
COPIED_MB_S = 150
COPIED_S, COPIED_AGAIN_S = 15.0, 8.0
COPIED_TIMES = 2.5  # as long as redis-server
SEGMENT_BYTES = 1 << 20  # small, so that the checkpoint releases the beginning of the log
COPY_POLLED_S = 0.01

RATE = 5_000
LATENCY_RUNS, QUICK_LATENCY_RUNS = 5, 2
LATENCY_S, QUICK_LATENCY_S = 5.0, 2.0

CLIENTS = (1, 50)

CUT_S = 1.0
CUTS, QUICK_CUTS = 5, 2
POLLED_S = 0.002

PROMOTED = 10_000_000  # entries
HANDED_OVER, QUICK_HANDED_OVER = 5, 2  # handovers
WRITERS = 20
IDLE_S, QUICK_IDLE_S = 20.0, 5.0


def rows(bench: Bench) -> Iterator[Figure]:
    with _pairs(bench) as pairs:
        try:
            yield from _cost(bench, pairs)
            yield from _keeping_up(bench, pairs[OURS])
        except FileNotFoundError as error:
            bench.missing["redis-benchmark"] = str(error)
        yield from _latency(bench, pairs)
        yield from _confirmed(bench, pairs)
        yield from _idle(bench, pairs)
    yield from _embedded(bench)
    yield from _replicated(bench)
    yield from _catching_up(bench)
    yield from _resync(bench)
    yield from _cut(bench)
    yield from _promotion(bench)
    yield from _handover(bench)


@contextmanager
def _pairs(bench: Bench) -> Iterator[dict[str, Pair]]:
    """Ours, and a redis-server with its replica where there is one."""
    with ExitStack() as closings:
        pairs: dict[str, Pair] = {}
        for kind in _kinds():
            try:
                pair = Pair(kind, bench.fresh("leader"), bench.fresh("follower"), EVERYSEC)
            except FileNotFoundError as error:
                bench.missing[REDIS] = str(error)
                continue
            pairs[pair.name] = closings.enter_context(pair)
        yield pairs


def _kinds() -> tuple[Kind, Kind]:
    return TidelogServer, RedisServer


# --- a leader under load


def _cost(bench: Bench, pairs: dict[str, Pair]) -> Iterator[Figure]:
    """Four sides take turns: each leader with its follower, and a server of its kind without."""
    with ExitStack() as closings:
        sides: dict[str, Callable[[Load, int], tuple[float, float]]] = {}
        for name, kind in zip((OURS, REDIS), _kinds(), strict=True):
            if name in pairs:
                alone = closings.enter_context(closing(kind(bench.fresh("alone"), EVERYSEC)))
                sides[name] = _loaded(pairs[name].leader, pairs[name].catch_up)
                sides[ALONE if name == OURS else REDIS_ALONE] = _loaded(alone, lambda: None)
        for load, most in LOADS:
            cost, rate = _by_turns(bench, load, sides)
            shown = f"-c {load.clients} -P {load.pipeline}"
            yield Figure(
                f"replication: leader's processor time per XADD, {shown}",
                "us",
                cost.pop(OURS),
                cost,
                (Bound(most, ALONE, most=True),),
                "one follower; until it has everything",
            )
            bounds: tuple[Bound, ...] = ()
            if REDIS in rate:
                bounds = (Bound(round(rate[REDIS] / rate[REDIS_ALONE] - FALL, 2), ALONE),)
            note = "redis-benchmark; one follower; the bound is redis-server's share less 0.05"
            yield Figure(f"replication: XADD, {shown}", "/s", rate.pop(OURS), rate, bounds, note)


def _loaded(
    server: Served, catch_up: Callable[[], object]
) -> Callable[[Load, int], tuple[float, float]]:
    """A function that makes so many calls. It returns microseconds of processor time per call, and calls per second."""

    def run(load: Load, calls: int) -> tuple[float, float]:
        before = server.cpu_s()
        rate = load.run(server.port, calls)
        catch_up()
        spent = server.cpu_s() - before
        server.client.delete(STREAM)
        catch_up()
        return spent * 1e6 / calls, rate

    return run


def _by_turns(
    bench: Bench, load: Load, sides: dict[str, Callable[[Load, int], tuple[float, float]]]
) -> tuple[dict[str, float], dict[str, float]]:
    """Medians of processor time and of rate, of each side."""
    rounds, seconds = (QUICK_LOAD_ROUNDS, QUICK_LOAD_S) if bench.quick else (LOAD_ROUNDS, LOAD_S)
    calls = {}
    for name, run in sides.items():
        _, rate = run(load, 20_000)
        calls[name] = int(rate * seconds)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        turns = list(sides.items())
        for name, run in turns if number % 2 else reversed(turns):
            found[name].append(run(load, calls[name]))
    cost = {name: median(run[0] for run in runs) for name, runs in found.items()}
    return cost, {name: median(run[1] for run in runs) for name, runs in found.items()}


def _keeping_up(bench: Bench, pair: Pair) -> Iterator[Figure]:
    load = LOADS[-1][0]
    seconds = QUICK_KEPT_UP_S if bench.quick else KEPT_UP_S
    with closing(TidelogServer(bench.fresh("alone"), EVERYSEC)) as alone:
        calls = int(load.run(pair.leader.port, 50_000) * seconds)
        pair.catch_up()
        servers = {"leader": pair.leader, "follower": pair.follower, ALONE: alone}
        before = {name: server.anonymous() for name, server in servers.items()}
        load.run(pair.leader.port, calls)
        behind = pair.catch_up()
        load.run(alone.port, calls)
        grown = {
            name: (server.anonymous() - before[name]) / MIB for name, server in servers.items()
        }
    yield Figure(
        "replication: a follower is equal after the load",
        "s",
        behind,
        {},
        (Bound(1, most=True),),
        f"{calls:,} XADDs, -c {load.clients} -P {load.pipeline}",
    )
    most = max(grown.pop("leader"), grown["follower"])
    grown = {ALONE: grown[ALONE], "the follower": grown["follower"]}
    yield Figure(
        "replication: growth of anonymous memory, leader or follower",
        "MiB",
        most,
        grown,
        (Bound(GROWN_MIB_MAX, ALONE, most=True, over=True),),
        f"the same {calls:,} XADDs",
    )
    pair.leader.client.delete(STREAM)
    pair.catch_up()


def _embedded(bench: Bench) -> Iterator[Figure]:
    runs, seconds = (
        (QUICK_EMBEDDED_RUNS, QUICK_EMBEDDED_S) if bench.quick else (EMBEDDED_RUNS, EMBEDDED_S)
    )
    alone, served, lags = [], [], []
    for _ in range(runs):
        with Fresh(Leading, bench.fresh("embedded") / "store") as leader:
            alone.append(leader.call("add_for", seconds)["rate"])
            port = leader.call("serve")
            with closing(TidelogServer(bench.fresh("follower"), EVERYSEC)) as follower:
                attach(follower, port, 1)
                leader.call("add_for", 0.1)
                wait_for(follower, leader.call("add_for", 0.1)["lsn"])
                found = leader.call("add_for", seconds)
                served.append(found["rate"])
                lags.append(wait_for(follower, int(found["lsn"])))
    note = "one thread, no pause; the follower is a process"
    yield Figure(
        "replication: XADD of an embedded leader",
        "/s",
        median(served),
        {ALONE: median(alone)},
        (Bound(0.8, ALONE),),
        note,
    )
    yield Figure(
        "replication: the follower's lag behind it", "s", median(lags), {}, (Bound(0.5, most=True),)
    )


def _replicated(bench: Bench) -> Iterator[Figure]:
    """Calls of an embedded leader that wait for its follower."""
    seconds = QUICK_LEVEL_S if bench.quick else LEVEL_S
    with Fresh(Leading, bench.fresh("embedded") / "store") as leader:
        port = leader.call("serve")
        with closing(TidelogServer(bench.fresh("follower"), EVERYSEC)) as follower:
            attach(follower, port, 1)
            for threads, target in THREADS:
                yield Figure(
                    f'replication: XADD at("replicated"), {threads} thread{"s" * (threads > 1)}',
                    "/s",
                    leader.call("confirmed_for", seconds, threads),
                    {},
                    (Bound(target),),
                    "an embedded leader; each call waits until the follower, a process, has its entry",
                )


# --- a follower


def _catching_up(bench: Bench) -> Iterator[Figure]:
    count = bench.scaled(CAUGHT_UP) // FRAME * FRAME
    redis = _redis_sync(bench, count)
    for per_frame, target, share in CATCHING_UP:
        leader, follower, alone = (bench.fresh(name) for name in ("leader", "follower", "alone"))
        _write(leader / "store", count, per_frame, alone / "store")
        replayed = _replayed(alone / "store", count)
        with (
            closing(TidelogServer(leader, EVERYSEC)) as ours,
            closing(TidelogServer(follower, EVERYSEC)) as copy,
        ):
            spent = attach(copy, ours.port, offset(ours))
            if copy.client.xlen(STREAM) + copy.client.xlen("returns") != count:
                raise RuntimeError("the follower has not all entries")
        yield Figure(
            f"replication: catching up from disk, frames of {per_frame}",
            "/s",
            count / spent,
            {REPLAY: replayed, **redis},
            (Bound(target), Bound(share, REPLAY)),
            f"{count:,} records; the leader is idle; redis-server sends an RDB file",
        )


def _write(path: Path, count: int, per_frame: int, copy: Path) -> None:
    """A log of so many records, and a copy of it without a checkpoint."""
    db: Any = tidelog.open(path, fsync=EVERYSEC, **BY_HAND)
    for _ in range(count // FRAME):
        # Alternate between two streams, because consecutive XADDs to one stream would become one record.
        pipeline = db if per_frame == 1 else db.pipeline(transaction=False)
        for fields in SMALL.some(FRAME // 2):
            pipeline.xadd(STREAM, fields)
            pipeline.xadd("returns", fields)
        if per_frame > 1:
            pipeline.execute()
    shutil.copytree(path, copy)
    db.close()


def _replayed(path: Path, count: int) -> float:
    """Records per second of an open that replays so many."""
    start = time.perf_counter()
    db: Any = tidelog.open(path, fsync=EVERYSEC, **BY_HAND)
    spent = time.perf_counter() - start
    found = db.xlen(STREAM) + db.xlen("returns")
    db.close()
    if found != count:
        raise RuntimeError(f"{path}: {found} entries after the replay, but {count} were logged")
    return count / spent


def _redis_sync(bench: Bench, count: int) -> dict[str, float]:
    """Entries per second of a redis-server's full resync."""
    try:
        with (
            closing(RedisServer(bench.fresh("redis-leader"), EVERYSEC)) as leader,
            closing(RedisServer(bench.fresh("redis-replica"), EVERYSEC)) as replica,
        ):
            hasten(leader)
            feed(leader, adding_to_one(count))
            return {REDIS: count // BATCH * BATCH / attach(replica, leader.port, offset(leader))}
    except FileNotFoundError as error:
        bench.missing[REDIS] = str(error)
        return {}


def _resync(bench: Bench) -> Iterator[Figure]:
    entries = QUICK_COPIED if bench.quick else COPIED
    redis = _redis_copy(bench, entries)
    path = bench.fresh("leader")
    options = {**BY_HAND, "segment_bytes": SEGMENT_BYTES, "retain_bytes": 0}
    db: Any = tidelog.open(path / "store", fsync=EVERYSEC, **options)
    messages = RANDOM.some(BATCH)
    for _ in range(entries // BATCH):
        db.xadd_many(STREAM, messages)
    db.checkpoint()
    db.close()
    with closing(TidelogServer(path, EVERYSEC)) as leader:
        first_s, mb_s = _copied(bench, leader, entries)
        again_s, _ = _copied(bench, leader, entries)
    note = f"{entries:,} entries of 100 random bytes; the log does not begin with LSN 1"
    yield Figure(
        "replication: a copy of the leader's data, on the link",
        "MB/s",
        mb_s,
        {},
        () if bench.quick else (Bound(COPIED_MB_S),),
        note,
    )
    limits = [COPIED_S, *(COPIED_TIMES * spent for spent in redis.values())]
    for what, spent, limit in (
        ("a copy of the leader's data", first_s, min(limits)),
        ("the same with a snapshot that is there", again_s, COPIED_AGAIN_S),
    ):
        yield Figure(
            f"replication: REPLICAOF to up, {what}",
            "s",
            spent,
            redis,
            () if bench.quick else (Bound(round(limit, 1), most=True),),
            f"{note}; redis-server sends an RDB file",
        )


def _copied(bench: Bench, leader: Served, entries: int) -> tuple[float, float]:
    """Seconds until a new follower has everything by a copy, and the megabytes per second that came meanwhile."""
    came = 0
    with closing(TidelogServer(bench.fresh("follower"), EVERYSEC)) as follower:
        start = began = ended = time.perf_counter()
        follower.command("REPLICAOF", "127.0.0.1", str(leader.port))
        while not reached(follower, offset(leader)):
            nbytes = int(replication(follower).get("master_sync_read_bytes", 0))
            if nbytes > came:
                ended, came = time.perf_counter(), nbytes
            elif not came:
                began = time.perf_counter()
            time.sleep(COPY_POLLED_S)
        spent = time.perf_counter() - start
        if follower.client.xlen(STREAM) != entries:
            raise RuntimeError("the follower has not all entries")
    if not came:
        raise RuntimeError("the follower got the log and not a copy")
    return spent, came / 1e6 / (ended - began)


def _redis_copy(bench: Bench, entries: int) -> dict[str, float]:
    """Seconds of a redis-server's full resync of the same entries."""
    batch = b"".join(
        packed("XADD", STREAM, "*", *(word for pair in fields.items() for word in pair))
        for fields in RANDOM.some(BATCH)
    )
    try:
        with (
            closing(RedisServer(bench.fresh("redis-leader"), EVERYSEC)) as leader,
            closing(RedisServer(bench.fresh("redis-replica"), EVERYSEC)) as replica,
        ):
            hasten(leader)
            feed(leader, (batch for _ in range(entries // BATCH)))
            return {REDIS: attach(replica, leader.port, offset(leader))}
    except FileNotFoundError as error:
        bench.missing[REDIS] = str(error)
        return {}


def _latency(bench: Bench, pairs: dict[str, Pair]) -> Iterator[Figure]:
    runs, seconds = (
        (QUICK_LATENCY_RUNS, QUICK_LATENCY_S) if bench.quick else (LATENCY_RUNS, LATENCY_S)
    )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in pairs}
    for _ in range(runs):
        for name, pair in pairs.items():
            found[name].append(
                stream_latency.measure(pair.leader.port, RATE, seconds, pair.follower.port)
            )
            pair.leader.client.delete(STREAM)
            pair.catch_up()
    carried = {name: median(run["carried"] for run in of) for name, of in found.items()}
    note = "one reader; " + "; ".join(f"{name} carried {at:,.0f}/s" for name, at in carried.items())
    for share, bound in (
        ("p50", Bound(2, most=True)),
        ("p99", Bound(1.5, REDIS, most=True)),
    ):
        of = {name: median(run[share] for run in runs) for name, runs in found.items()}
        yield Figure(
            f"replication: XADD to XREAD on the follower, {RATE:,}/s, {share}",
            "ms",
            of.pop(OURS),
            of,
            (bound,),
            note,
        )


def _confirmed(bench: Bench, pairs: dict[str, Pair]) -> Iterator[Figure]:
    for clients in CLIENTS:
        with ExitStack() as closings:
            sides = [
                confirmed.confirming(pair.leader, clients, closings) for pair in pairs.values()
            ]
            rates = bench.race(sides, slice_times=2)
        yield Figure(
            f"replication: XADD and WAIT 1 in one write, {clients} client{'s' * (clients > 1)}",
            "/s",
            rates.pop(OURS),
            rates,
            (Bound(0.6, REDIS),),
        )


def _idle(bench: Bench, pairs: dict[str, Pair]) -> Iterator[Figure]:
    seconds = QUICK_IDLE_S if bench.quick else IDLE_S
    with closing(TidelogServer(bench.fresh("alone"), EVERYSEC)) as alone:
        servers = {
            **{f"{name}'s leader": pair.leader for name, pair in pairs.items()},
            **{f"{name}'s follower": pair.follower for name, pair in pairs.items()},
            ALONE: alone,
        }
        before = {name: server.cpu_s() for name, server in servers.items()}
        start = time.monotonic()
        time.sleep(seconds)
        passed = time.monotonic() - start
        found = {
            name: (server.cpu_s() - before[name]) * 1000 / passed
            for name, server in servers.items()
        }
    for side in ("leader", "follower"):
        baselines = {ALONE: found[ALONE]}
        if REDIS in pairs:
            baselines[REDIS] = found[f"{REDIS}'s {side}"]
        yield Figure(
            f"replication: an idle link, {side}",
            "ms/s",
            found[f"{OURS}'s {side}"],
            baselines,
            (Bound(5, ALONE, most=True, over=True),),
        )


# --- faults and promotion


def _cut(bench: Bench) -> Iterator[Figure]:
    found: dict[str, float] = {}
    for name, kind in zip((OURS, REDIS), _kinds(), strict=True):
        try:
            found[name] = _back_s(bench, kind) * 1000
        except FileNotFoundError as error:
            bench.missing[REDIS] = str(error)
    yield Figure(
        f"replication: a link that was cut for {CUT_S:g} s has what was added meanwhile",
        "ms",
        found.pop(OURS),
        found,
        (Bound(100, most=True),),
        "from when the leader can be reached again",
    )


def _back_s(bench: Bench, kind: Kind) -> float:
    """Median seconds."""
    spent = []
    with (
        closing(kind(bench.fresh("leader"), EVERYSEC)) as leader,
        closing(kind(bench.fresh("follower"), EVERYSEC)) as follower,
        Relay(leader.port) as relay,
    ):
        hasten(leader)
        leader.client.xadd(STREAM, {"qty": "7"})
        attach(follower, relay.port, offset(leader))
        for _ in range(QUICK_CUTS if bench.quick else CUTS):
            relay.cut()
            leader.client.xadd(STREAM, {"qty": "7"})
            time.sleep(CUT_S)
            end = offset(leader)
            if reached(follower, end):
                raise RuntimeError(f"{leader.name}: the link was not cut")
            relay.mend()
            spent.append(wait_for(follower, end))
            time.sleep(CUT_S)  # so that each cut is one of a link that was up
    return median(spent)


def _promotion(bench: Bench) -> Iterator[Figure]:
    entries = bench.scaled(PROMOTED) // BATCH * BATCH
    path = bench.fresh("leader")
    db: Any = tidelog.open(path / "store", fsync=EVERYSEC, **BY_HAND)
    messages = SMALL.some(BATCH)
    for _ in range(entries // BATCH):
        db.xadd_many(STREAM, messages)
    db.close()
    found: dict[str, float] = {}
    with (
        closing(TidelogServer(path, EVERYSEC)) as leader,
        closing(TidelogServer(bench.fresh("follower"), EVERYSEC)) as follower,
    ):
        attach(follower, leader.port, offset(leader))
        found[OURS] = _promoted_ms(follower)
    yield Figure(
        f"replication: REPLICAOF NO ONE to the first XADD, {entries:,} entries",
        "ms",
        found.pop(OURS),
        {},
        (Bound(50, most=True),),
    )


def _promoted_ms(follower: Served) -> float:
    """Milliseconds of a promotion and the first write."""
    start = time.perf_counter()
    follower.command("REPLICAOF", "NO", "ONE")
    follower.client.xadd(STREAM, {"qty": "7"})
    return (time.perf_counter() - start) * 1000


def _handover(bench: Bench) -> Iterator[Figure]:
    found: dict[str, float] = {}
    for name, kind in zip((OURS, REDIS), _kinds(), strict=True):
        try:
            with Pair(kind, bench.fresh("leader"), bench.fresh("follower"), EVERYSEC) as pair:
                times = QUICK_HANDED_OVER if bench.quick else HANDED_OVER
                found[name] = handing.stood_still_s(pair.leader, pair.follower, WRITERS, times)
        except FileNotFoundError as error:
            bench.missing[REDIS] = str(error)
    yield Figure(
        f"replication: writes stand still in a FAILOVER, {WRITERS} clients",
        "ms",
        found.pop(OURS) * 1000,
        {name: seconds * 1000 for name, seconds in found.items()},
        (Bound(300, most=True),),
        "the longest time between two confirmed writes of any client; median of several handovers",
    )
