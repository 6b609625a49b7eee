"""A leader and its follower beside a redis-server and its replica: cost, lag, confirmations, catching up, failover.

All are processes on this machine, with appendfsync everysec. Clients, leader and follower share its processors, so the
cost is told as processor time, too.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from statistics import median
from typing import Any

import redis

import tidelog
from bench import latency
from bench.figure import OURS, Bound, Figure
from bench.messages import BATCH, SMALL
from bench.ours import BY_HAND
from bench.pair import Pair, Starter, attach, offset
from bench.race import WALL, Contender, medians
from bench.run import EVERYSEC, REDIS, Run
from bench.servers import Load, Served, TidelogServer, adding
from bench.wire import STREAM, connected, packed

ALONE, REDIS_ALONE = "without", "redis-server without"

# load, how much the leader's processor time per XADD may grow by one follower
LOADS = ((Load(50), 1.10), (Load(50, pipeline=16), 1.05))
LOAD_S, QUICK_LOAD_S = 2.0, 0.6  # of each slice
LOAD_ROUNDS, QUICK_LOAD_ROUNDS = 7, 3
FALL = 0.05  # by so much more than redis-server's may the rate fall

SECONDS, QUICK_SECONDS = 5.0, 1.0  # of a run of an embedded leader
THREADS = ((1, 2_500), (16, 15_000))  # and how many calls a second are wanted
COPIED = 1_000_000  # entries
TIMES = 3

RATE = 5_000
RUNS, QUICK_RUNS = 5, 2
RUN_S, QUICK_RUN_S = 5.0, 2.0
CLIENTS = (1, 50)
HANDOVERS, QUICK_HANDOVERS = 5, 2
WRITERS = 20
AGAIN_S = 0.002  # pause of a client that was refused
BESIDE_S = 0.5  # of writes, before and after each handover
WAIT = packed("XADD", STREAM, "*", "user", "100042", "qty", "7") + packed("WAIT", "1", "5000")
STALLED_S = 10.0


def rows(run: Run) -> Iterator[Figure]:
    def pair(start: Starter) -> Pair:
        return Pair(start, run.fresh("leader"), run.fresh("follower"), EVERYSEC)

    with run.servers(pair) as pairs:
        try:
            yield from _cost(run, pairs)
        except FileNotFoundError as error:
            run.missing["redis-benchmark"] = str(error)
        yield from _latency(run, pairs)
        yield from _confirmed(run, pairs)
    yield from _embedded(run)
    yield from _catching_up(run)
    with run.servers(pair) as pairs:
        yield _handover(run, pairs)


# --- a leader under load


class Loaded:
    """A server under load, with a follower or without, as a side that takes turns."""

    def __init__(self, name: str, server: Served, catch_up: Callable[[], object]) -> None:
        self.name, self.version = name, server.version
        self._server, self._catch_up = server, catch_up

    def run(self, load: Load, calls: int) -> dict[str, float]:
        """Microseconds of processor time per call until the follower has everything, and calls per second."""
        before = self._server.cpu_s()
        rate = load.run(self._server.port, calls)
        self._catch_up()
        spent = self._server.cpu_s() - before
        self._server.client.delete(STREAM)
        self._catch_up()
        return {"cost": spent * 1e6 / calls, "rate": rate}


def _cost(run: Run, pairs: list[Pair]) -> Iterator[Figure]:
    """Each leader with its follower, and a server of its kind without, take turns."""
    rounds, seconds = (QUICK_LOAD_ROUNDS, QUICK_LOAD_S) if run.quick else (LOAD_ROUNDS, LOAD_S)
    with run.servers(lambda start: start(run.fresh("alone"), EVERYSEC)) as servers:
        sides = [Loaded(pair.name, pair.leader, pair.catch_up) for pair in pairs]
        for server in servers:
            name = ALONE if server.name == OURS else REDIS_ALONE
            sides.append(Loaded(name, server, lambda: None))
        for load, most in LOADS:
            calls = {side: int(side.run(load, 20_000)["rate"] * seconds) for side in sides}
            found = run.by_turns(sides, rounds, lambda side: side.run(load, calls[side]))
            cost, rate = found["cost"], found["rate"]
            yield Figure.of(
                f"replication: leader's processor time per XADD, {load.shown}",
                "us",
                cost,
                Bound(most, ALONE, most=True),
                note="one follower; until it has everything",
            )
            bounds = []
            if REDIS in rate:
                share = rate[REDIS].this / rate[REDIS_ALONE].this - FALL
                bounds.append(Bound(round(share, 2), ALONE))
            note = "redis-benchmark; one follower; the bound is redis-server's share less 0.05"
            yield Figure.of(f"replication: XADD, {load.shown}", "/s", rate, *bounds, note=note)


def _latency(run: Run, pairs: list[Pair]) -> Iterator[Figure]:
    runs, seconds = (QUICK_RUNS, QUICK_RUN_S) if run.quick else (RUNS, RUN_S)

    def measure(pair: Pair) -> dict[str, float]:
        found = latency.measure(pair.leader.port, RATE, seconds, pair.follower.port)
        pair.leader.client.delete(STREAM)
        pair.catch_up()
        return found

    found = run.by_turns(pairs, runs, measure)
    carried = (f"{name} carried {at.this:,.0f}/s" for name, at in found["carried"].items())
    note = "one reader; " + "; ".join(carried)
    for share, bound in (("p50", Bound(2, most=True)), ("p99", Bound(1.5, REDIS, most=True))):
        name = f"replication: XADD to XREAD on the follower, {RATE:,}/s, {share}"
        yield Figure.of(name, "ms", found[share], bound, note=note)


def _confirmed(run: Run, pairs: list[Pair]) -> Iterator[Figure]:
    for clients in CLIENTS:
        with ExitStack() as closings:
            sides = [confirming(pair.leader, clients, closings) for pair in pairs]
            rates = run.race(sides, slice_times=2, clock=WALL)
        name = f"replication: XADD and WAIT 1 in one write, -c {clients}"
        yield Figure.of(name, "/s", rates, Bound(0.6, REDIS))


def confirming(server: Served, clients: int, closings: ExitStack) -> Contender:
    """Connections that send an XADD and WAIT 1 in one write, and the next one after both replies."""
    lines = [closings.enter_context(connected(server.port)) for _ in range(clients)]

    def slice(calls: int) -> tuple[float, float]:
        start = time.perf_counter()
        add_confirmed(lines, calls)
        return time.perf_counter() - start, 0.0

    return Contender(server.name, slice, quantum=clients, version=server.version)


def add_confirmed(lines: list[socket.socket], calls: int) -> None:
    """Let the connections make `calls` calls together. Raises RuntimeError if a write was not confirmed."""
    by_fd = {line.fileno(): line for line in lines}
    replies = dict.fromkeys(by_fd, b"")
    sent = confirmed = 0
    with closing(select.epoll()) as poll:
        for fd, line in by_fd.items():
            poll.register(fd, select.EPOLLIN)
            if sent < calls:
                line.sendall(WAIT)
                sent += 1
        while confirmed < calls:
            ready = poll.poll(STALLED_S)
            if not ready:
                raise RuntimeError(f"only {confirmed} of {calls} calls were answered")
            for fd, _ in ready:
                data = replies[fd] + by_fd[fd].recv(1 << 16)
                if data.count(b"\r\n") < 3:  # the ID of a bulk reply has two of them
                    replies[fd] = data
                    continue
                if not data.startswith(b"$") or not data.endswith(b"\r\n:1\r\n"):
                    raise RuntimeError(f"a write was not confirmed: {data!r}")
                replies[fd] = b""
                confirmed += 1
                if sent < calls:
                    by_fd[fd].sendall(WAIT)
                    sent += 1


# --- an embedded leader


class Leading:
    """An open store in a process of its own: threads add without pause, and a follower is served beside it."""

    def __init__(self, directory: str) -> None:
        self._db: Any = tidelog.open(Path(directory) / "store", fsync=EVERYSEC, **BY_HAND)
        self._serving: Any = None

    def serve(self) -> list[int]:
        """The port, and the offset of what there is."""
        self._serving = tidelog.serve(self._db, port=0)
        self._db.xadd(STREAM, SMALL.fields[0])
        return [self._serving.port, self._db.info()["next_lsn"] - 1]

    def add_for(self, seconds: float) -> float:
        """Entries per second of one thread."""
        xadd, fields, added = self._db.xadd, SMALL.some(BATCH), 0
        start = time.perf_counter()
        while time.perf_counter() < start + seconds:
            for each in fields:
                xadd(STREAM, each)
            added += BATCH
        return added / (time.perf_counter() - start)

    def confirmed_for(self, seconds: float, threads: int) -> float:
        """Entries per second of threads that add one by one at the level `replicated`."""
        view, fields = self._db.at("replicated", timeout=60), SMALL.fields[0]
        view.xadd(STREAM, fields)
        added = [0] * threads
        start = time.perf_counter()

        def add(number: int) -> None:
            while time.perf_counter() < start + seconds:
                view.xadd(STREAM, fields)
                added[number] += 1

        adding = [threading.Thread(target=add, args=(number,)) for number in range(threads)]
        for thread in adding:
            thread.start()
        for thread in adding:
            thread.join()
        return sum(added) / (time.perf_counter() - start)

    def close(self) -> None:
        if self._serving is not None:
            self._serving.close()
        self._db.close()


def _embedded(run: Run) -> Iterator[Figure]:
    seconds = QUICK_SECONDS if run.quick else SECONDS
    with run.sides(Leading) as leaders, ExitStack() as closings:
        alone = run.by_turns(leaders, 1, lambda side: {"": side.call("add_for", seconds)})
        for leader in leaders:
            source = run.versions[leader.version].source
            follower = TidelogServer(run.fresh("follower"), EVERYSEC, source, leader.version)
            closings.callback(follower.close)
            attach(follower, *leader.call("serve"))
        served = run.by_turns(leaders, 3, lambda side: {"": side.call("add_for", seconds)})
        rates = {**served[""], ALONE: alone[""][OURS]}
        note = "one thread, no pause; the follower is a process"
        name = "replication: XADD of an embedded leader"
        yield Figure.of(name, "/s", rates, Bound(0.8, ALONE), note=note)
        for threads, target in THREADS:
            found = run.by_turns(
                leaders, 3, lambda side: {"": side.call("confirmed_for", seconds, threads)}
            )
            name = f'replication: XADD at("replicated"), {threads} thread{"s" * (threads > 1)}'
            note = (
                "an embedded leader; each call waits until the follower, a process, has its entry"
            )
            yield Figure.of(name, "/s", found[""], Bound(target), note=note)


# --- a follower that comes late, and one that takes over


def _catching_up(run: Run) -> Iterator[Figure]:
    """Empty followers of leaders that have entries and rest."""
    count = run.scaled(COPIED) // BATCH * BATCH

    def start_in(name: str) -> Callable[[Starter], Served]:
        return lambda start: start(run.fresh(name), EVERYSEC)

    spent: dict[tuple[str, int], list[float]] = {}
    with run.servers(start_in("leader")) as leaders:
        for leader in leaders:
            leader.feed(adding(count))
        for _ in range(1 if run.quick else TIMES):
            with run.servers(start_in("follower")) as copies:
                for leader, copy in zip(leaders, copies, strict=True):
                    seconds = attach(copy, leader.port, offset(leader))
                    if copy.client.xlen(STREAM) != count:
                        raise RuntimeError(f"the follower of {leader.name} has not all entries")
                    spent.setdefault((copy.name, copy.version), []).append(count / seconds)
    yield Figure.of(
        "replication: an empty follower catches up",
        "/s",
        medians(spent),
        note=f"{count:,} entries of two small fields; the leader is idle; redis-server sends an RDB file",
    )


class Writers:
    """Threads that write one entry at a time to the server that takes it. `at`: when each write was confirmed."""

    def __init__(self, servers: tuple[Served, Served], count: int) -> None:
        self.at: list[float] = []
        self._ports = [server.port for server in servers]
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        clients: list[Any] = [redis.Redis(port=port, protocol=2) for port in self._ports]
        now = 0
        while not self._ended.is_set():
            try:
                clients[now].xadd(STREAM, {"qty": "7"}, maxlen=1000)
                self.at.append(time.perf_counter())
            except (redis.ReadOnlyError, redis.ConnectionError):
                now = 1 - now
                time.sleep(AGAIN_S)
        for client in clients:
            client.close()

    def end(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def stood_still_ms(leader: Served, follower: Served, clients: int, times: int) -> float:
    """Median milliseconds, over handovers back and forth, of the longest time without a confirmed write."""
    found = []
    for _ in range(times):
        writers = Writers((leader, follower), clients)
        time.sleep(BESIDE_S)
        begun = time.perf_counter()
        leader.command("FAILOVER")
        while follower.client.info("replication")["role"] != "master":
            time.sleep(AGAIN_S)
        time.sleep(BESIDE_S)
        writers.end()
        at = sorted(moment for moment in writers.at if moment > begun - BESIDE_S / 2)
        found.append(max(later - earlier for earlier, later in zip(at, at[1:], strict=False)))
        leader, follower = follower, leader
        while follower.client.info("replication").get("master_link_status") != "up":
            time.sleep(AGAIN_S)
        while not leader.client.info("replication")["connected_slaves"]:
            time.sleep(AGAIN_S)
    return median(found) * 1000


def _handover(run: Run, pairs: list[Pair]) -> Figure:
    times = QUICK_HANDOVERS if run.quick else HANDOVERS
    found = run.by_turns(
        pairs, 1, lambda pair: {"": stood_still_ms(pair.leader, pair.follower, WRITERS, times)}
    )
    return Figure.of(
        f"replication: writes stand still in a FAILOVER, {WRITERS} clients",
        "ms",
        found[""],
        Bound(300, most=True),
        note="the longest time between two confirmed writes of any client; median of several handovers",
    )
