"""The latency of a message from XADD to the consumer, with clients in separate processes.

    measure(port, rate=10_000, seconds=5)        milliseconds: p50, p99, p99.9, and the rate that was reached
    measure(port, 10_000, 5, follower)           the same, read from a follower

One process adds messages at an even pace, each an XADD of its own; it never waits for a reply before the next one.
Another holds ten connections: consumers of one group that read with COUNT and BLOCK, and send XACK of what they got
together with the next read. Neither uses a client library, and both need little processor time: on a machine with few
processors, a message would otherwise wait for the clients. A message contains the time at which it was sent, by the
clock that all processes of the machine share. COUNT is that of the measurement in the Redis Streams introduction.
"""

from __future__ import annotations

import gc
import json
import select
import socket
import subprocess
import sys
import time
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidelog.tools.bench.wire import STREAM, connected, packed

if TYPE_CHECKING:
    from tidelog.tools.bench.processes.served import Served

GROUP = "billing"
CONSUMERS = 10
COUNT = 10_000
BLOCK_MS = 2_000
WARM_S = 0.5  # of each run; not counted
SLOWER = 10  # a run may take this many times as long as its messages should take
SECOND_NS = 1_000_000_000
LOOK_S = 0.01  # how often the producer looks at its replies
SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}


def prepare(server: Served) -> None:
    """An empty stream with its group."""
    server.client.flushall()
    server.client.xgroup_create(STREAM, GROUP, "0", mkstream=True)


def measure(port: int, rate: int, seconds: float, follower: int | None = None) -> dict[str, float]:
    """One run, after `prepare`. Raises RuntimeError if a client got an error, or too little in time.

    follower    port of a follower: one client reads the new entries there, with XREAD and no group
    """
    total = int(rate * seconds)
    patience = 5 + seconds * SLOWER
    if follower is None:
        consumer = _start("consume", port, total, patience)
    else:
        consumer = _start("read", follower, total, patience)
    producer = None
    try:
        if _line(consumer) != "ready":
            raise RuntimeError("the consumers did not start")
        producer = _start("produce", port, total, rate)
        sent = json.loads(_line(producer) or "null")
        found = json.loads(_line(consumer) or "null")
    finally:
        for process in (producer, consumer):
            if process is not None:
                process.kill()
                process.wait()
                assert process.stdout is not None
                process.stdout.close()
    if sent is None or found is None:
        raise RuntimeError("a client failed")
    spent_s = (found.pop("last") - sent["first"]) / SECOND_NS
    return {**found, "produced": sent["rate"], "carried": total / spent_s}


def summary(sent: Sequence[int], spent: Sequence[int]) -> dict[str, float]:
    """Milliseconds by share of the messages; those that were sent in the first WARM_S do not count."""
    begin = min(sent) + int(WARM_S * SECOND_NS)
    counted = sorted(ns for at, ns in zip(sent, spent, strict=True) if at >= begin)
    if not counted:
        raise ValueError("no message was sent after warming up")
    last = len(counted) - 1
    return {
        name: counted[min(last, int(share * len(counted)))] / 1e6 for name, share in SHARES.items()
    }


def _start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", __name__, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


# --- in the processes of the clients


def produce(port: int, total: int, rate: int) -> dict[str, float]:
    """Send `total` messages, `rate` a second; those that are due at the same time in one write."""
    line = connected(port)
    clock, pause, send = time.monotonic_ns, time.sleep, line.sendall
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
            replies += _replies(line, socket.MSG_DONTWAIT)
        left = first + sent * gap_ns - clock()
        if left > 0:
            pause(left / 1e9)
    last = clock()
    while replies < total:
        replies += _replies(line, 0)
    return {"first": first, "rate": total / ((last - first) / 1e9 + gap_ns / 1e9)}


def _replies(line: socket.socket, flags: int) -> int:
    """The number of IDs in the replies. Raises RuntimeError for an error reply."""
    try:
        data = line.recv(1 << 16, flags)
    except BlockingIOError:
        return 0
    if not data or data.startswith(b"-") or b"\n-" in data:
        raise RuntimeError(f"XADD failed: {data!r}")
    return data.count(b"$")


def consume(port: int, total: int, patience_s: float) -> dict[str, float]:
    """Read and acknowledge `total` messages with CONSUMERS connections."""
    import hiredis

    poll = select.epoll()
    lines: dict[int, tuple[socket.socket, Any, bytes]] = {}
    for number in range(CONSUMERS):
        line = connected(port)
        read = packed(
            *("XREADGROUP", "GROUP", GROUP, f"worker-{number}", "COUNT", str(COUNT)),
            *("BLOCK", str(BLOCK_MS), "STREAMS", STREAM, ">"),
        )
        lines[line.fileno()] = line, hiredis.Reader(), read
        line.sendall(read)
        poll.register(line.fileno(), select.EPOLLIN)
    acknowledged_in = packed("XACK", STREAM, GROUP).partition(b"\r\n")[2]
    print("ready", flush=True)
    sent, spent = array("q"), array("q")
    clock = time.monotonic_ns
    until = clock() + int(patience_s * SECOND_NS)
    acknowledged = 0
    last = 0
    while acknowledged < total:
        if clock() > until:
            raise TimeoutError(
                f"only {acknowledged} of {total} messages were acknowledged within {patience_s:g} s"
            )
        for fd, _ in poll.poll(BLOCK_MS / 1000):
            line, reader, read = lines[fd]
            reader.feed(line.recv(1 << 16))
            now = clock()
            while (reply := reader.gets()) is not False:
                if isinstance(reply, int):
                    acknowledged += reply
                elif reply is None:
                    line.sendall(read)
                elif isinstance(reply, list):
                    last = now
                    ids = []
                    for id, fields in reply[0][1]:
                        at = int(fields[1])
                        sent.append(at)
                        spent.append(now - at)
                        ids.append(id)
                    named = b"".join([b"$%d\r\n%b\r\n" % (len(id), id) for id in ids])
                    line.sendall(b"*%d\r\n%b%b%b" % (3 + len(ids), acknowledged_in, named, read))
                else:
                    raise RuntimeError(f"a consumer got {reply!r}")
    return {**summary(sent, spent), "last": last}


def read(port: int, total: int, patience_s: float) -> dict[str, float]:
    """Read `total` new messages with one connection, by XREAD."""
    import hiredis

    line, reader = connected(port), hiredis.Reader()
    line.sendall(packed("XREVRANGE", STREAM, "+", "-", "COUNT", "1"))
    at_end = _reply(line, reader)
    after = at_end[0][0] if at_end else b"0-0"
    before = packed(
        *("XREAD", "COUNT", str(COUNT), "BLOCK", str(BLOCK_MS), "STREAMS", STREAM, b"\0")
    ).split(b"$1\r\n\0")[0]
    print("ready", flush=True)
    sent, spent = array("q"), array("q")
    clock = time.monotonic_ns
    until = clock() + int(patience_s * SECOND_NS)
    last = 0
    while len(sent) < total:
        if clock() > until:
            raise TimeoutError(
                f"only {len(sent)} of {total} messages were read within {patience_s:g} s"
            )
        line.sendall(b"%b$%d\r\n%b\r\n" % (before, len(after), after))
        reply = _reply(line, reader)
        last = clock()
        if reply is None:
            continue
        if not isinstance(reply, list):
            raise RuntimeError(f"the reader got {reply!r}")
        for after, fields in reply[0][1]:
            at = int(fields[1])
            sent.append(at)
            spent.append(last - at)
    return {**summary(sent, spent), "last": last}


def _reply(line: socket.socket, reader: Any) -> Any:
    while (reply := reader.gets()) is False:
        reader.feed(line.recv(1 << 16))
    return reply


def main(what: str, port: str, total: str, last: str) -> None:
    gc.disable()  # its pauses would count as the server's
    if what == "produce":
        found = produce(int(port), int(total), int(last))
    elif what == "read":
        found = read(int(port), int(total), float(last))
    else:
        found = consume(int(port), int(total), float(last))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
