"""Limits of a queue that several processes share: the process that serves the store decides."""

from __future__ import annotations

from typing import Any

from tests.client.test_shared_queue import OPTIONS, Two, take, two

__all__ = ["two"]


def test_two_clients_have_one_limit(two: Two) -> None:
    queues: list[Any] = [
        two.bench.connect().queue("q", concurrency=2, rate="3/m", **OPTIONS) for _ in range(2)
    ]
    two.local.put_many(range(9))
    first, second = take(queues[0]), take(queues[1])
    assert queues[0].get(block=0) is queues[1].get(block=0) is None
    assert first.ack()
    third = take(queues[1])
    assert second.ack() and third.ack()
    assert queues[0].get(block=0) is None
    two.clock.advance(64)
    assert take(queues[0]).value == 3
