"""Durations of a queue are seconds or a timedelta, and what is wrong with one is said."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog import testing

RETRY_AFTER = 8.0

# fmt: off
CALLS: dict[str, tuple[bool, Callable[[Any, Any, Any], object]]] = {
    # whether 0 is allowed
    "retry_after": (False, lambda db, queue, value: db.queue("q", retry_after=value)),
    "block":       (True,  lambda db, queue, value: list(queue.consume("b", block=value))),
    "time_limit":  (False, lambda db, queue, value: list(queue.consume("b", block=0, time_limit=value))),
    "timeout":     (True,  lambda db, queue, value: queue.put(1, timeout=value)),
    "delay":       (True,  lambda db, queue, value: queue.get("c", block=0).nack("no", delay=value)),
    "seconds":     (False, lambda db, queue, value: queue.get("c", block=0).extend(value)),
    "older_than":  (True,  lambda db, queue, value: queue.dead.purge(older_than=value)),
}
# fmt: on


@pytest.mark.parametrize("name", CALLS)
def test_seconds_and_timedeltas_are_the_same(name: str, tmp_path: Path) -> None:
    zero, call = CALLS[name]
    with tidelog.open(tmp_path / "s", fsync="no") as db:
        queue: Any = db.queue("jobs", retry_after=timedelta(seconds=RETRY_AFTER))
        assert queue._options.retry_after == RETRY_AFTER
        queue.put_many(range(20))
        good: list[Any] = [0.001, timedelta(milliseconds=1)]
        bad: list[Any] = ["1", True, float("nan"), -1, timedelta(seconds=-1), 1e300, timedelta.max]
        (good if zero else bad).extend([0, timedelta()])
        for value in good:
            call(db, queue, value)
            queue.put_many(range(20))
        least = "at least 0" if zero else "more than 0"
        says = f"{name} must be (a number of seconds or a timedelta|{least} and at most 315360000 seconds), not"
        for value in bad:
            with pytest.raises(tidelog.DataError, match=says):
                call(db, queue, value)


def test_a_timedelta_is_waited_for(tmp_path: Path) -> None:
    clock = testing.Clock()
    with tidelog.queue(
        tmp_path / "s", "jobs", clock=clock, retry_after=timedelta(hours=1)
    ) as queue:
        queue.put(1)
        queue.get("anna", block=0).nack("no", delay=timedelta(minutes=2))  # type: ignore[union-attr]
        clock.advance(119)
        assert queue.get("anna", block=0) is None
        clock.advance(1)
        assert queue.get("anna", block=0) is not None
