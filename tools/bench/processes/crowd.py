"""One client that asks for much, and one that asks for little beside many that never read their replies."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

from tidelog.tools.bench.baselines.redis_saved import feed
from tidelog.tools.bench.processes.served import Served
from tidelog.tools.bench.wire import STREAM, connected, packed

ENTRY_BYTES = 10_000
KEPT = 100
PIPELINES, PIPELINE = 40, 1_000
RANGES, RANGE = 20, 100_000
BATCH = 1_000
PAUSE_S = 0.002  # of the client that asks for little

# fmt: off
# name -> (number of clients, bytes that each sends, whether each sends them repeatedly)
CROWDS: dict[str, tuple[int, bytes, bool]] = {
    f"{PIPELINES} pipelines of GET":  (PIPELINES, packed("GET", "none") * PIPELINE, True),
    f"{PIPELINES} pipelines of XADD": (PIPELINES, packed("XADD", "other", "*", "f", "v") * PIPELINE, True),
    f"{RANGES} XRANGEs of {RANGE:,}": (RANGES, packed("XRANGE", STREAM, "-", "+", "COUNT", str(RANGE)), False),
}
# fmt: on


def _batches(count: int, command: Callable[[int], bytes]) -> Iterator[bytes]:
    for at in range(0, count, BATCH):
        yield b"".join(map(command, range(at, min(at + BATCH, count))))


def add_large(server: Served, count: int) -> None:
    """So many entries of ENTRY_BYTES."""
    add = packed("XADD", STREAM, "*", "f", "x" * ENTRY_BYTES)
    feed(server, _batches(count, lambda _: add))


def trim(server: Served) -> float:
    """Milliseconds of an XTRIM that keeps the last KEPT entries."""
    return _ms(server, packed("XTRIM", STREAM, "MAXLEN", str(KEPT)))


def delete(server: Served, count: int) -> float:
    """Milliseconds of one DEL of so many keys."""
    feed(server, _batches(count, lambda number: packed("SET", f"key:{number}", "v")))
    return _ms(server, packed("DEL", *[f"key:{number}" for number in range(count)]))


def _ms(server: Served, command: bytes) -> float:
    with closing(connected(server.port)) as line:
        start = time.perf_counter()
        line.sendall(command)
        reply = line.recv(64)
        spent = time.perf_counter() - start
    if not reply.startswith(b":") or reply == b":0\r\n":
        raise RuntimeError(f"{server.name} gave the unexpected reply {reply!r}")
    return spent * 1000


def fill(server: Served) -> None:
    """The entries that the long ranges read."""
    add = packed("XADD", STREAM, "*", "f", "v") * BATCH
    feed(server, (add for _ in range(RANGE // BATCH)))


def polite(server: Served, crowd: str, seconds: float) -> dict[str, float]:
    """Milliseconds of a PING of one client beside a crowd: the median, the 99th percentile and the worst."""
    clients, data, again = CROWDS[crowd]
    spent: list[float] = []
    ping = packed("PING")
    with closing(connected(server.port)) as line, _unread(server, clients, data, again):
        until = time.perf_counter() + seconds
        while (start := time.perf_counter()) < until or not spent:
            line.sendall(ping)
            line.recv(64)
            spent.append((time.perf_counter() - start) * 1000)
            time.sleep(PAUSE_S)
    spent.sort()
    return {"p50": spent[len(spent) // 2], "p99": spent[int(0.99 * len(spent))], "worst": spent[-1]}


@contextmanager
def _unread(server: Served, clients: int, data: bytes, again: bool) -> Iterator[None]:
    """Clients that send and never read."""
    ended = threading.Event()

    def send(line: socket.socket) -> None:
        try:
            line.sendall(data)
            while again and not ended.is_set():
                line.sendall(data)
        except OSError:
            pass  # shut down, in the middle of it

    with ExitStack() as closings:
        lines = [closings.enter_context(connected(server.port)) for _ in range(clients)]
        threads = [threading.Thread(target=send, args=(line,), daemon=True) for line in lines]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for line in lines:
                line.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()
