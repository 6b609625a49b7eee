"""The cost of clients in a blocking read for a server, while they are idle and when an entry arrives."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.wire import STREAM, connected, packed

RESERVED = 200  # file descriptors that a process needs besides those of blocked clients
BLOCKED_S_MAX = 60.0
SETTLED_S = 0.5
GROUP = "billing"
WAKES = 50


@contextmanager
def many_files(clients: int) -> Iterator[int]:
    """Raise the soft limit of open files of this process, and of those it starts meanwhile.

    Returns the number of clients that it is enough for, which the hard limit may lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, clients + RESERVED)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    try:
        yield min(clients, wanted - RESERVED)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def cost(server: Served, clients: int, idle_s: float) -> dict[str, float]:
    """Of so many blocked in XREAD of one stream: bytes of memory for each, ms of processor time in a second for all.

    `alone`: the ms in a second before they came. Raises RuntimeError if the server does not have them all blocked.
    """
    before = server.anonymous()
    alone = _cpu_ms(server, idle_s)
    read = packed("XREAD", "BLOCK", "0", "STREAMS", STREAM, "$")
    with _blocked(server, [read] * clients):
        cpu = _cpu_ms(server, idle_s)
        each = (server.anonymous() - before) / clients
    _wait_until_blocked(server, 0)
    return {"each": each, "cpu": cpu, "alone": alone}


def waking(server: Served, consumers: int) -> float:
    """Median milliseconds of an XADD that wakes one of so many blocked consumers of a group."""
    server.client.delete(STREAM)
    server.client.xgroup_create(STREAM, GROUP, "0", mkstream=True)
    reads = [
        packed(*f"XREADGROUP GROUP {GROUP} worker-{n} BLOCK 0 STREAMS {STREAM} >".split())
        for n in range(consumers)
    ]
    spent = []
    with _blocked(server, reads):
        for _ in range(min(WAKES, consumers)):
            start = time.perf_counter()
            server.client.xadd(STREAM, {"qty": "7"})
            spent.append((time.perf_counter() - start) * 1_000)
    _wait_until_blocked(server, 0)
    server.client.delete(STREAM)
    return median(spent)


@contextmanager
def _blocked(server: Served, reads: Sequence[bytes]) -> Iterator[None]:
    """A client for each blocking read, until it ends."""
    with ExitStack() as closing:
        for read in reads:
            closing.enter_context(connected(server.port)).sendall(read)
        _wait_until_blocked(server, len(reads))
        time.sleep(SETTLED_S)
        yield


def _wait_until_blocked(server: Served, clients: int) -> None:
    until = time.monotonic() + BLOCKED_S_MAX
    while (blocked := server.client.info("clients")["blocked_clients"]) != clients:
        if time.monotonic() > until:
            raise RuntimeError(f"{server.name} has {blocked} blocked clients instead of {clients}")
        time.sleep(0.05)


def _cpu_ms(server: Served, seconds: float) -> float:
    used, start = server.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (server.cpu_s() - used) * 1_000 / (time.monotonic() - start)
