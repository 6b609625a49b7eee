"""One queue for several processes: two put while two consume and acknowledge. And the way from a put to its delivery.

All systems run one after the other, in rounds; a figure is the median. The processes of tidelog connect to a path, as
those of huey and litequeue open one file; redis-py and RQ go to a redis-server. honker is not among them: it has no
wheel for every machine, and its sdist needs a Rust toolchain.
"""

from __future__ import annotations

import importlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidelog
from bench.baselines import sharing
from bench.figure import OURS, Bound, Figure
from bench.race import Value, medians
from bench.run import ALWAYS, EVERYSEC, Run
from bench.worker import Worker

# fmt: off
PEERS: dict[str, type[sharing.Shared]] = {
    "huey": sharing.Huey, "litequeue": sharing.Lite, "rq": sharing.Rq, "redis-py": sharing.Redis,
}
# fmt: on
LIBRARIES = {"huey": "huey", "litequeue": "litequeue", "rq": "rq", "redis-py": "redis"}
ON_REDIS = ("rq", "redis-py")
SECONDS, QUICK_SECONDS = 2.0, 0.2
WORK = ("puts", "puts", "takes", "takes")
CONNECTS = 20


@dataclass(frozen=True)
class System:
    """One queue, of one version."""

    name: str
    version: int
    kind: type[sharing.Shared]


class Connecting:
    """A process that connects to a path, again and again."""

    def __init__(self, directory: str) -> None:
        self._directory = Path(directory)
        self._number = 0

    def connects(self) -> list[float]:
        """Milliseconds of the first connection, which starts the owner, and of the mean of the next ones."""
        self._number += 1
        place = self._directory / f"store-{self._number}"
        start = time.perf_counter()
        with tidelog.connect(place):
            first = (time.perf_counter() - start) * 1000
            start = time.perf_counter()
            for _ in range(CONNECTS):
                tidelog.connect(place).close()
            again = (time.perf_counter() - start) * 1000 / CONNECTS
        end_owner(place)
        return [first, again]

    def close(self) -> None: ...


def end_owner(place: Path) -> None:
    """End the process that serves this path, which would go on for a minute."""
    os.kill(int((place / "LOCK").read_text()), signal.SIGTERM)


def rows(run: Run) -> Iterator[Figure]:
    for fsync in (EVERYSEC, ALWAYS):
        yield from _working(run, fsync)
    yield from _latency(run)
    with run.sides(Connecting) as ours:
        names = ("first", "again")
        found = run.by_turns(
            ours, run.rounds, lambda side: dict(zip(names, side.call("connects"), strict=True))
        )
    first, again = Bound(500, most=True), Bound(5, most=True)
    yield Figure.of("connect, first: the owner starts", "ms", found["first"], first)
    yield Figure.of("connect to a running owner", "ms", found["again"], again)


def _systems(run: Run, names: tuple[str, ...]) -> list[System]:
    """Every version of ours, and those of the others that can run here."""
    systems = [System(OURS, version, sharing.Tidelog) for version in range(len(run.versions))]
    for name in () if run.compares else names:
        try:
            importlib.import_module(LIBRARIES[name])
            if name in ON_REDIS:
                run.redis_server(EVERYSEC)
            systems.append(System(name, 0, PEERS[name]))
        except (ImportError, FileNotFoundError) as error:
            run.missing[name] = str(error)
    return systems


def _working(run: Run, fsync: str) -> Iterator[Figure]:
    seconds = QUICK_SECONDS if run.quick else SECONDS

    def measure(system: System) -> dict[str, float]:
        counts = _work(run, system, WORK, fsync, seconds)
        return {"put": sum(counts[:2]) / seconds, "consume and ack": sum(counts[2:]) / seconds}

    found = run.by_turns(_systems(run, tuple(PEERS)), run.rounds, measure)
    for what, rates in found.items():
        yield from figures(what, rates, fsync)


def figures(what: str, rates: dict[str, Value], fsync: str) -> Iterator[Figure]:
    """A row beside other queues, and one beside the bare commands."""
    name = f"shared queue: {what} one by one, 2 + 2 processes, {fsync}"
    note = "huey has no ack, its dequeue deletes"
    bare = rates.pop("redis-py", None)
    fastest = sorted(rates, key=lambda each: -rates[each].this)
    queues = [each for each in fastest if each != OURS]
    # One bound is enough for a row, so it is against the fastest of them.
    bounds = [Bound(2.0, each) for each in queues[:1]] if what == "put" else []
    beside = {each: rates[each] for each in (OURS, *queues)}
    yield Figure.of(f"{name}, beside queues", "/s", beside, *bounds, note=note)
    if bare is not None:
        pair = {OURS: rates[OURS], "redis-py": bare}
        yield Figure.of(f"{name}, beside redis-py", "/s", pair, Bound(0.7, "redis-py"))


def _latency(run: Run) -> Iterator[Figure]:
    seconds = QUICK_SECONDS if run.quick else SECONDS
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(run.rounds):
        for system in _systems(run, ("redis-py",)):
            _, latencies = _work(run, system, ("pings", "pongs"), EVERYSEC, seconds)
            found.setdefault((system.name, system.version), []).extend(latencies)
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        at = {side: [sorted(of)[int(share * len(of))] * 1000] for side, of in found.items()}
        bound = Bound(0.5, most=True) if name == "p50" else Bound(1.5, "redis-py", most=True)
        yield Figure.of(
            f"shared queue: put to delivered in another process, {name}",
            "ms",
            medians(at),
            bound,
            note="everysec, idle otherwise",
        )


def _work(
    run: Run, system: System, methods: tuple[str, ...], fsync: str, seconds: float
) -> list[Any]:
    """The answers of processes that work at the same time, or nothing of a system that is missing here."""
    place = run.fresh(f"shared-{system.name}")
    named: object = place
    if system.name in ON_REDIS:
        server = run.redis_server(fsync)
        server.client.flushall()
        named = server.port
    if system.name == OURS:
        named = place / "store"
    source = run.versions[system.version].source
    with ExitStack() as stack:
        workers = [
            stack.enter_context(
                Worker(
                    system.name, system.kind, named, fsync, source=source, version=system.version
                )
            )
            for _ in methods
        ]
        for worker, method in zip(workers, methods, strict=True):
            worker.begin(method, seconds)
        answers = [worker.answer() for worker in workers]
    if system.name == OURS:
        end_owner(place / "store")
    run.forget(place)
    return answers
