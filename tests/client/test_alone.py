"""Jobs that were lost with their process run alone in one of several processes that share a store.

The clock stands still until a test moves it. A client here is this process; each plain connection is another one.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
import redis
from tests.client.conftest import Bench
from tests.until import until

from tidelog.engine import ids

LEASE = 30.0
OPTIONS: dict[str, Any] = {"retry_after": LEASE, "max_deliveries": 3, "codec": "bytes"}
WORDS = ("RETRYAFTER", int(LEASE * 1000), "MAXDELIVERIES", 3)


class Process:
    """A process of workers in another language, with one connection."""

    def __init__(self, bench: Bench) -> None:
        self._client: Any = redis.Redis(port=bench.serving.port, single_connection_client=True)

    def call(self, verb: str, *args: Any) -> Any:
        return self._client.execute_command("QUEUE", verb, "q", *args, *WORDS)

    def names(self, process: str) -> None:
        self._client.execute_command("TIDELOG", "CAPABILITIES", process)

    def take(self, count: int = 1) -> list[Any]:
        """[[value, deliveries], ...] of what it gets now."""
        found = self.call("TAKE", f"w{id(self)}", "COUNT", count) or []
        self.held = [[job, number] for job, number, _ in found]
        return [[row[1], number] for _, number, row in found]

    def done(self) -> None:
        for job in self.held:
            assert self.call("DONE", f"w{id(self)}", *job) == 1

    def die(self, bench: Bench, *living: Any) -> None:
        """Its connection ends, and the leases of its jobs run out, unlike those of clients with these queues."""
        self._client.close()
        known = bench.db.queue("q", **OPTIONS)._engine.known
        mine = {ids.parse(job) for job, _ in self.held}
        until(
            lambda: not any(mine & each.open.keys() for each in known.deliveries()),
            "the server keeps the jobs",
        )
        for _ in range(7):
            bench.clock.advance(LEASE / 6)
            for queue in living:
                queue._remote.keeper.beat(True)


def lost(bench: Bench, *values: bytes) -> Any:
    """A queue of a client, with jobs that were lost together."""
    queue = bench.connect().queue("q", **OPTIONS)
    for value in values:
        queue.put(value)
    process = Process(bench)
    assert len(process.take(len(values))) == len(values)
    process.die(bench)
    return queue


def test_all_connections_of_a_process_wait_for_its_suspect(bench: Bench) -> None:
    queue = lost(bench, b"lost")
    queue.put(b"new")
    suspect = queue.get(block=0)
    assert (suspect.value, suspect.deliveries) == (b"lost", 2)
    # another connection of the pool, and another pool of the same process
    other = bench.connect().queue("q", **OPTIONS)
    assert queue.get(block=0) is None and other.get(block=0) is None
    assert Process(bench).take() == [[b"new", 1]]
    assert suspect.ack()


def test_suspects_of_one_crash_run_one_in_each_process(bench: Bench) -> None:
    lost(bench, b"one", b"two", b"three")
    processes = [Process(bench) for _ in range(3)]
    found = [process.take(10) for process in processes]
    assert sorted(found) == [[[b"one", 2]], [[b"three", 2]], [[b"two", 2]]]
    assert [process.take(10) for process in processes] == [[], [], []]


def test_a_connection_can_name_its_process(bench: Bench) -> None:
    lost(bench, b"one", b"two")
    first, second, other = (Process(bench) for _ in range(3))
    first.names("p")
    second.names("p")
    assert first.take() == [[b"one", 2]] and second.take() == []
    assert other.take() == [[b"two", 2]]
    first.done()
    assert bench.connect().queue("q", **OPTIONS).put(b"new") and second.take() == [[b"new", 1]]


def test_the_name_of_a_process_is_short(bench: Bench) -> None:
    process = Process(bench)
    process.names("p" * 64)
    with pytest.raises(redis.ResponseError):
        process.names("p" * 65)


def test_another_process_takes_the_suspect_from_one_that_clears(bench: Bench) -> None:
    queue: Any = bench.connect().queue("q", **OPTIONS)
    queue.put(b"lost")
    process = Process(bench)
    assert process.take() == [[b"lost", 1]]
    queue.put(b"held")
    queue.put(b"new")
    held = queue.get(block=0)
    process.die(bench, queue)
    assert queue.get(block=0) is None
    assert Process(bench).take() == [[b"lost", 2]]
    new = queue.get(block=0)
    assert new.value == b"new" and held.ack() and new.ack()


def test_a_new_server_knows_which_process_holds_a_suspect(bench: Bench) -> None:
    queue = lost(bench, b"lost")
    suspect = queue.get(block=0)
    assert suspect.deliveries == 2
    bench.restart()
    with ExitStack() as stack:
        stack.callback(suspect.release)
        embedded = bench.db.queue("q", **OPTIONS)
        until(lambda: embedded._engine.known.alone.turns, "the lease is not renewed")
        queue.put(b"new")
        assert queue.get(block=0) is None
        assert Process(bench).take() == [[b"new", 1]]
