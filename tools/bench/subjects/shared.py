"""One queue for several processes: two put while two consume and acknowledge. And the way from a put to its delivery.

All systems run at the same time of the machine's day, one after the other, in rounds; a figure is the median. The
processes of tidelog connect to a path, as those of huey and litequeue open one file; redis-py and RQ go to a
redis-server. honker is not among them: it has no wheel for every machine, and its sdist needs a Rust toolchain.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tidelog
from tidelog.tools.bench.bench import ALWAYS, EVERYSEC, Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.processes.sharing import Peer

SYSTEMS = ("tidelog", "huey", "litequeue", "rq", "redis-py")
ON_REDIS = ("rq", "redis-py")
SECONDS = 2.0
ROLES = ("put", "put", "take", "take")
CONNECTS = 20


def rows(bench: Bench) -> Iterator[Figure]:
    for fsync in (EVERYSEC, ALWAYS):
        yield from _working(bench, fsync)
    yield from _latency(bench)
    yield from _connecting(bench)


def _working(bench: Bench, fsync: str) -> Iterator[Figure]:
    put: dict[str, list[float]] = {}
    done: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        for system in SYSTEMS:
            answers = _run(bench, system, ROLES, fsync)
            put.setdefault(system, []).append(sum(answers[:2]) / _seconds(bench))
            done.setdefault(system, []).append(sum(answers[2:]) / _seconds(bench))
    for what, found in (("put", put), ("consume and ack", done)):
        rates = {system: statistics.median(each) for system, each in found.items()}
        ours = rates.pop("tidelog")
        name = f"shared queue: {what} one by one, 2 + 2 processes, {fsync}"
        note = "huey has no ack, its dequeue deletes"
        bare = rates.pop("redis-py", None)
        peers = {each: rates[each] for each in sorted(rates, key=rates.__getitem__, reverse=True)}
        if what == "put":
            # One bound is enough for a row, so it is against the fastest of them.
            bounds = tuple(Bound(2.0, each) for each in list(peers)[:1])
            yield Figure(f"{name}, beside queues", "/s", ours, peers, bounds, note)
        else:
            yield Figure(f"{name}, beside queues", "/s", ours, peers, (), note)
        if bare is not None:
            beside = {"redis-py": bare}
            yield Figure(f"{name}, beside redis-py", "/s", ours, beside, (Bound(0.7, "redis-py"),))


def _latency(bench: Bench) -> Iterator[Figure]:
    found: dict[str, list[float]] = {}
    for _ in range(bench.rounds):
        for system in ("tidelog", "redis-py"):
            _, latencies = _run(bench, system, ("ping", "pong"), EVERYSEC)
            found.setdefault(system, []).extend(latencies)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        at = {system: sorted(each)[int(share * len(each))] * 1000 for system, each in found.items()}
        bound = Bound(0.5, most=True) if name == "p50" else Bound(1.5, "redis-py", most=True)
        yield Figure(
            f"shared queue: put to delivered in another process, {name}",
            "ms",
            at.pop("tidelog"),
            at,
            (bound,),
            "everysec, idle otherwise",
        )


def _connecting(bench: Bench) -> Iterator[Figure]:
    first: list[float] = []
    again: list[float] = []
    for _ in range(bench.rounds):
        place = bench.fresh("shared") / "store"
        start = time.perf_counter()
        with tidelog.connect(place):
            first.append((time.perf_counter() - start) * 1000)
            for _ in range(CONNECTS):
                start = time.perf_counter()
                tidelog.connect(place).close()
                again.append((time.perf_counter() - start) * 1000)
        _end_owner(place)
    yield Figure(
        "connect, first: the owner starts",
        "ms",
        statistics.median(first),
        {},
        (Bound(500, most=True),),
    )
    yield Figure(
        "connect to a running owner", "ms", statistics.median(again), {}, (Bound(5, most=True),)
    )


def _seconds(bench: Bench) -> float:
    return SECONDS / 10 if bench.quick else SECONDS


def _run(bench: Bench, system: str, roles: tuple[str, ...], fsync: str) -> list[Any]:
    """The answers of processes that work at the same time."""
    place = str(bench.fresh(f"shared-{system}"))
    if system in ON_REDIS:
        server = bench.redis_server(fsync)
        server.client.flushall()
        place = str(server.port)
    if system == "tidelog":
        place += "/store"
    with ExitStack() as stack:
        peers = [
            stack.enter_context(Peer(system, role, place, fsync, _seconds(bench))) for role in roles
        ]
        for peer in peers:
            peer.go()
        answers = [peer.answer() for peer in peers]
    if system == "tidelog":
        _end_owner(Path(place))
    return answers


def _end_owner(place: Path) -> None:
    """The owner would go on for a minute."""
    os.kill(int((place / "LOCK").read_text()), signal.SIGTERM)
