"""Each wait for a job that the owner answers makes the ticks that are due, whatever its queue is, and whatever it gets.

So a tick that no such wait made, though it was the latest, is a fault.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from tests.client.conftest import Bench
from tests.client.kills.queues import KINDS, PLANS

PLAN = next(plan for plan in PLANS if plan.given["catch_up"] == "one")


@pytest.mark.parametrize("seed", range(2))
def test_each_wait_makes_the_latest_tick(bench: Bench, seed: int) -> None:
    pick = random.Random(seed)
    store = bench.connect()
    following = store.schedule(PLAN.name, queue="ticks", **PLAN.given).next_at
    assert following is not None
    queues = {
        kind.name: store.queue(kind.name, **kind.options_of(retry_after=600.0)) for kind in KINDS
    }
    made, held = 0, []
    for number in range(150):
        kind = pick.choice(KINDS)
        queue: Any = queues[kind.name]
        if pick.random() < 0.6:
            place = {"priority": pick.choice(kind.priorities), "key": pick.choice(kind.keys)}
            queue.put(number, delay=pick.choice((None, 1.5)), timeout=0, **place)
        bench.clock.advance(pick.choice((0.0, 0.003, 0.4, 0.998, 2.6)))
        held.append(queue.get(pick.choice("abc"), block=0))
        if bench.clock.now() >= following:
            made += 1
            following = bench.clock.now().replace(microsecond=0) + timedelta(seconds=1)
        (shown,) = store.schedules.list()
        assert (shown.ticks, shown.next_at) == (made, following), f"after a wait of {kind.name}"
        if pick.random() < 0.7 and (job := held.pop(pick.randrange(len(held)))) is not None:
            job.ack() if pick.random() < 0.7 else job.nack("again", delay=pick.choice((0, 0.5)))
    assert made > 50
