"""A disk that is full for a while takes no job from a worker that lives. Through every face of a queue with objects."""

from __future__ import annotations

from typing import Any

from tests.client.faces.faces import RETRY_AFTER
from tests.jobs.full_disk import Room


def test_leases_last_and_what_is_done_is_written_later(methods: Any) -> None:
    """Also for another queue, whose batch is finished meanwhile: its acknowledgements wait for room."""
    room, queue = Room(methods.disk), methods.queue
    other = methods.store.queue("other", codec="bytes", retry_after=RETRY_AFTER)
    queue.put(b"long")
    other.put_many([b"1", b"2"])
    job = queue.get("anna", block=0)
    batch = other.consume("anna", batch=2, block=0)
    first, second = next(batch), next(batch)
    room.fill(methods.db)
    with first, second:
        pass
    for _ in range(9):
        methods.pass_time(RETRY_AFTER / 3)
    room.full = False
    methods.pass_time(1)
    assert queue.get("bert", block=0) is None and other.get("bert", block=0) is None
    assert job.ack() and job.deliveries == 1
    methods.end_consumer(batch)
    assert len(queue) == len(other) == 0
