"""A limit on jobs of one key, after another client took away what held them. Through every face of a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

FACE_OPTIONS = {"concurrency_per_key": 1}


def destroyed(db: Any, lane: str) -> None:
    assert db.xgroup_destroy(lane, "workers") == 1


def made_again(db: Any, lane: str) -> None:
    destroyed(db, lane)
    db.xgroup_create(lane, "workers", "0")


def deleted(db: Any, lane: str) -> None:
    assert db.delete(lane) == 1


@pytest.mark.parametrize("priority", [0, 4])
@pytest.mark.parametrize("gone", [destroyed, made_again, deleted])
def test_a_group_that_is_gone_blocks_no_key(
    face: Any, gone: Callable[[Any, str], None], priority: int
) -> None:
    """Jobs of it were in progress, set aside, and paused."""
    for value, key in enumerate("kkkll"):
        face.put(b"%d" % value, key=key, priority=priority)
    running, failed = face.take("workers", "anna", 2, None)
    assert (running[2], failed[2]) == (b"0", b"3")
    assert face.end("workers", failed[0], "nack")
    gone(face.db, f"q:priority:{priority}" if priority else "q")
    assert not face.end("workers", running[0], "ack")
    face.put(b"after", key="k", priority=priority)
    found = []
    while taken := face.take("workers", "carl", 1, None):
        ((id, deliveries, value, *_),) = taken
        assert deliveries == 1
        assert face.end("workers", id, "ack")
        found.append(value)
    left = [] if gone is deleted else [b"0", b"1", b"2", b"3", b"4"]
    assert found == [*left, b"after"]
