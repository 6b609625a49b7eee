"""The latency of an entry from XADD to its consumer, with clients in processes of their own.

    measure(port, rate=10_000, seconds=5)        milliseconds: p50, p99, p99.9, and the rate that was reached
    measure(port, 10_000, 5, follower)           the same, read from a follower

One process adds entries at an even pace, each an XADD of its own; it never waits for a reply before the next one.
Another holds ten connections: consumers of one group that read with COUNT and BLOCK, and send XACK of what they got
together with the next read. Neither uses a client library, and both need little processor time: on a machine with few
processors, an entry would otherwise wait for the clients. An entry contains the time at which it was sent, by the
clock that all processes of the machine share. COUNT is that of the measurement in the Redis Streams introduction.
"""

from __future__ import annotations

import gc
import select
import socket
import time
from array import array
from collections.abc import Sequence
from typing import Any, Final

from bench.servers import Served
from bench.wire import GROUP, STREAM, connected, packed
from bench.worker import Worker

CONSUMERS: Final = 10
COUNT: Final = 10_000
BLOCK_MS: Final = 2_000
WARM_S: Final = 0.5  # of each run; not counted
SLOWER: Final = 10  # a run may take this many times as long as its entries should take
SECOND_NS: Final = 1_000_000_000
LOOK_S: Final = 0.01  # how often the producer looks at its replies
SHARES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def prepare(server: Served) -> None:
    """An empty stream with its group."""
    server.client.flushall()
    server.client.xgroup_create(STREAM, GROUP, "0", mkstream=True)


def measure(port: int, rate: int, seconds: float, follower: int | None = None) -> dict[str, float]:
    """One run, after `prepare`. Raises RuntimeError if a client got an error, or too little in time.

    follower    port of a follower: one client reads the new entries there, with XREAD and no group
    """
    total = int(rate * seconds)
    with (
        Worker("the consumers", Consumers, follower or port, follower is None) as consumers,
        Worker("the producer", Producer, port) as producer,
    ):
        consumers.begin("take", total, 5 + seconds * SLOWER)
        sent = producer.call("produce", total, rate)
        found: dict[str, float] = consumers.answer()
    spent_s = (found.pop("last") - sent["first"]) / SECOND_NS
    return {**found, "produced": sent["rate"], "carried": total / spent_s}


def summary(sent: Sequence[int], spent: Sequence[int]) -> dict[str, float]:
    """Milliseconds by share of the entries; those that were sent in the first WARM_S do not count."""
    begin = min(sent) + int(WARM_S * SECOND_NS)
    counted = sorted(ns for at, ns in zip(sent, spent, strict=True) if at >= begin)
    if not counted:
        raise ValueError("no entry was sent after warming up")
    last = len(counted) - 1
    return {
        name: counted[min(last, int(share * len(counted)))] / 1e6 for name, share in SHARES.items()
    }


class Producer:
    """One connection that adds."""

    def __init__(self, port: int) -> None:
        gc.disable()  # its pauses would count as the server's
        self._line = connected(port)

    def produce(self, total: int, rate: int) -> dict[str, float]:
        """Send `total` entries, `rate` a second; those that are due at the same time in one write."""
        clock, pause, send = time.monotonic_ns, time.sleep, self._line.sendall
        gap_ns = SECOND_NS / rate
        replies = sent = 0
        first = look = clock()
        before, after = packed("XADD", STREAM, "*", "at", b"\0", "qty", "7").split(b"$1\r\n\0")
        while sent < total:
            now = clock()
            due = min(total, int((now - first) / gap_ns) + 1)
            if due > sent:
                at = b"%d" % now
                message = b"%b$%d\r\n%b%b" % (before, len(at), at, after)
                send(message if due == sent + 1 else message * (due - sent))
                sent = due
            if now > look:
                look = now + int(LOOK_S * SECOND_NS)
                replies += self._replies(socket.MSG_DONTWAIT)
            left = first + sent * gap_ns - clock()
            if left > 0:
                pause(left / 1e9)
        last = clock()
        while replies < total:
            replies += self._replies(0)
        return {"first": first, "rate": total / ((last - first) / 1e9 + gap_ns / 1e9)}

    def _replies(self, flags: int) -> int:
        """The number of IDs in the replies. Raises RuntimeError for an error reply."""
        try:
            data = self._line.recv(1 << 16, flags)
        except BlockingIOError:
            return 0
        if not data or data.startswith(b"-") or b"\n-" in data:
            raise RuntimeError(f"XADD failed: {data!r}")
        return data.count(b"$")

    def close(self) -> None:
        self._line.close()


class Consumers:
    """Connections that wait for the next entries: CONSUMERS of a group, or one reader without a group."""

    def __init__(self, port: int, grouped: bool) -> None:
        # here: only clients that parse many replies need it
        import hiredis

        gc.disable()  # its pauses would count as the server's
        self._grouped = grouped
        self._last = b"0-0"  # that the reader without a group has
        self._poll = select.epoll()
        self._lines: dict[int, tuple[socket.socket, Any, str]] = {}
        for number in range(CONSUMERS if grouped else 1):
            line, reader = connected(port), hiredis.Reader()
            if not grouped:
                line.sendall(packed("XREVRANGE", STREAM, "+", "-", "COUNT", "1"))
                while (newest := reader.gets()) is False:
                    reader.feed(line.recv(1 << 16))
                self._last = newest[0][0] if newest else self._last
            self._lines[line.fileno()] = line, reader, f"worker-{number}"
            self._poll.register(line.fileno(), select.EPOLLIN)
            line.sendall(self._read(f"worker-{number}"))

    def _read(self, name: str) -> bytes:
        asked = ("COUNT", str(COUNT), "BLOCK", str(BLOCK_MS), "STREAMS", STREAM)
        if self._grouped:
            return packed("XREADGROUP", "GROUP", GROUP, name, *asked, ">")
        return packed("XREAD", *asked, self._last)

    def take(self, total: int, patience_s: float) -> dict[str, float]:
        """Read `total` entries, and acknowledge those of a group. Raises TimeoutError, RuntimeError."""
        acknowledged_in = packed("XACK", STREAM, GROUP).partition(b"\r\n")[2]
        sent, spent = array("q"), array("q")
        clock = time.monotonic_ns
        until = clock() + int(patience_s * SECOND_NS)
        done = last = 0
        while done < total:
            if clock() > until:
                raise TimeoutError(f"only {done} of {total} entries were done in {patience_s:g} s")
            for fd, _ in self._poll.poll(BLOCK_MS / 1000):
                line, reader, name = self._lines[fd]
                reader.feed(line.recv(1 << 16))
                now = clock()
                while (reply := reader.gets()) is not False:
                    if isinstance(reply, int):
                        done += reply
                    elif reply is None:
                        line.sendall(self._read(name))
                    elif isinstance(reply, list):
                        last = now
                        ids = []
                        for id, fields in reply[0][1]:
                            at = int(fields[1])
                            sent.append(at)
                            spent.append(now - at)
                            ids.append(id)
                        acknowledgement = b""
                        if self._grouped:
                            named = b"".join([b"$%d\r\n%b\r\n" % (len(id), id) for id in ids])
                            acknowledgement = b"*%d\r\n%b%b" % (
                                3 + len(ids),
                                acknowledged_in,
                                named,
                            )
                        else:
                            self._last, done = ids[-1], done + len(ids)
                        line.sendall(acknowledgement + self._read(name))
                    else:
                        raise RuntimeError(f"a consumer got {reply!r}")
        return {**summary(sent, spent), "last": last}

    def close(self) -> None:
        for line, _, _ in self._lines.values():
            line.close()
