"""Jobs that were lost with their process run alone: a job that kills its process takes no other job along.

A process ends here by closing its store while jobs are held. The time stands still until a test moves it.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.until import parked

import tidelog
from tidelog import testing
from tidelog.jobs.work import alone

LEASE = 30.0
MOST = 3


class Life:
    """A store that is opened again and again."""

    def __init__(self, root: Path, stack: ExitStack) -> None:
        self.clock = testing.Clock()
        self._root, self._stack = root, stack
        self._lost: list[Any] = []
        self.begin()

    def begin(self) -> None:
        """Open the store: a process begins."""
        self.db: Any = tidelog.open(self._root, fsync="no", clock=self.clock)
        self._stack.callback(self.db.close, 0)

    def queue(self, name: str = "q", **options: Any) -> Any:
        """A queue of it."""
        return self.db.queue(name, **{"retry_after": LEASE, "max_deliveries": MOST, **options})

    def die(self, *held: Any, after: float = LEASE) -> None:
        """The process ends with these jobs in its hands, and another one begins. Leases run out."""
        self._lost += held  # else they would count as dropped
        self.db.close(0)
        self.begin()
        self.clock.advance(after + 1)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    with ExitStack() as stack:
        yield Life(tmp_path / "s", stack)


def take(queue: Any, worker: str | None = None) -> Any:
    job = queue.get(worker, block=0)
    assert job is not None, "no job came"
    return job


def none_comes(queue: Any) -> bool:
    return queue.get(block=0) is None


# --- which jobs die


def test_neighbours_of_a_poison_live(life: Life) -> None:
    queue = life.queue()
    queue.put_many(["poison", "one", "two", "three"])
    life.die(*[take(queue) for _ in range(4)])
    done: list[str] = []
    for _ in range(20):
        queue = life.queue()
        job = queue.get(block=0)
        if job is None:
            break
        assert none_comes(queue)
        if job.value == "poison":
            life.die(job)
        else:
            done.append(job.value)
            job.ack()
    assert sorted(done) == ["one", "three", "two"]
    (dead,) = life.queue().dead
    assert (dead.value, dead.deliveries) == ("poison", MOST)
    assert dead.reason == f"given up after {MOST} deliveries: never finished"


def test_a_last_delivery_that_was_lost_with_others_does_not_kill(life: Life) -> None:
    queue = life.queue()
    queue.put_many(["honest", "other"])
    for _ in range(MOST - 1):
        job = take(queue)
        assert job.value == "honest" and job.nack("fails", delay=0)
    held = take(queue), take(queue)
    assert (held[0].value, held[0].deliveries) == ("honest", MOST)
    life.die(*held)
    job = take(life.queue())
    assert (job.value, job.deliveries) == ("honest", MOST + 1)
    life.die(job)
    other = take(life.queue())
    assert other.value == "other" and other.ack() and none_comes(life.queue())
    (dead,) = life.queue().dead
    assert dead.value == "honest" and dead.deliveries == MOST + 1
    assert dead.reason == f"given up after {MOST + 1} deliveries: never finished"


def test_one_delivery_at_most_stays_one(life: Life) -> None:
    queue = life.queue(max_deliveries=1)
    queue.put_many(range(2))
    life.die(take(queue), take(queue))
    queue = life.queue(max_deliveries=1)
    assert none_comes(queue)
    assert [job.deliveries for job in queue.dead] == [1, 1]


def test_a_suspect_that_was_given_back_is_one_still(life: Life) -> None:
    queue = life.queue()
    queue.put("suspect")
    life.die(take(queue))
    queue = life.queue()
    assert take(queue).release()
    queue.put("new")
    suspect = take(queue)
    assert (suspect.value, suspect.deliveries) == ("suspect", 2) and none_comes(queue)
    assert suspect.ack() and take(queue).value == "new"


# --- which jobs are suspects


def test_jobs_that_were_dropped_are_no_suspects(life: Life) -> None:
    queue = life.queue()
    queue.put_many(range(2))
    take(queue), take(queue)
    gc.collect()
    life.clock.advance(2 * LEASE)
    held = take(queue), take(queue)
    assert [job.deliveries for job in held] == [2, 2]


def test_jobs_beyond_their_time_limit_are_no_suspects(life: Life) -> None:
    queue = life.queue()
    queue.put_many(range(2))
    slow = [next(queue.consume(block=0, time_limit=1)) for _ in range(2)]
    life.clock.advance(2 * LEASE)
    held = take(queue), take(queue)
    assert [job.deliveries for job in held] == [2, 2]
    assert not any(job.ack() for job in slow)


# --- alone


def test_a_batch_has_no_suspect_beside_others(life: Life) -> None:
    queue = life.queue()
    queue.put_many(range(3))
    life.die(*[take(queue) for _ in range(3)])
    queue = life.queue()
    queue.put("new")
    found: list[Any] = []
    with queue.consume(batch=10, block=0) as jobs:
        for job in jobs:
            with job:
                assert none_comes(queue)
                found.append(job.deliveries)
    assert found == [2, 2, 2, 1] and queue.stats().depth == 0


def test_jobs_of_a_batch_that_was_lost_come_one_by_one(life: Life) -> None:
    queue = life.queue()
    queue.put_many(range(5))
    with queue.consume(batch=5, block=0) as jobs:
        life.die(*[next(jobs) for _ in range(5)])
    queue = life.queue()
    for _ in range(5):
        job = take(queue)
        assert none_comes(queue) and job.deliveries == 2 and job.ack()


def test_a_named_worker_gets_its_jobs_back_one_by_one(life: Life) -> None:
    queue = life.queue()
    queue.put_many(range(3))
    held = [take(queue, "anna") for _ in range(3)]
    queue.put("new")
    life.die(*held, after=0)
    queue = life.queue()
    with queue.consume("anna", block=0) as jobs:
        found = []
        for job in jobs:
            assert none_comes(queue)
            found.append((job.value, job.deliveries))
            job.ack()
    assert found == [(0, 2), (1, 2), (2, 2), ("new", 1)]


@pytest.mark.parametrize("other", ["q", "r"])
def test_a_process_with_jobs_takes_no_more_until_it_can_take_the_suspect(
    life: Life, other: str
) -> None:
    queue = life.queue()
    queue.put("suspect")
    life.die(take(queue), after=0)
    queue, others = life.queue(), life.queue(other)
    others.put_many(["new", "newer"])
    held = take(others)
    life.clock.advance(LEASE + 1)
    assert none_comes(queue)
    assert none_comes(others)
    assert held.ack()
    suspect = take(queue)
    assert suspect.value == "suspect" and none_comes(queue) and none_comes(others)
    assert suspect.ack()
    assert take(others).value == "newer"


def test_a_process_that_clears_waits_for_one_lease_at_most(life: Life) -> None:
    queue = life.queue()
    queue.put("suspect")
    life.die(take(queue), after=0)
    queue = life.queue()
    queue.put_many(["hangs", "new"])
    hangs = take(queue)
    life.clock.advance(LEASE + 1)
    assert none_comes(queue)
    for _ in range(int(LEASE)):
        life.clock.advance(1)
    suspect = take(queue)
    assert suspect.value == "suspect" and none_comes(queue)
    assert suspect.ack() and take(queue).value == "new"
    assert hangs.ack()


def test_other_jobs_wait_for_one_lease_at_most(life: Life) -> None:
    queue = life.queue()
    queue.put_many(["one", "two"])
    life.die(take(queue), take(queue))
    queue = life.queue()
    queue.put_many(["new", "newer"])
    hangs = take(queue)
    assert hangs.deliveries == 2 and none_comes(queue)
    for _ in range(int(LEASE)):
        assert none_comes(queue)
        life.clock.advance(1)
    assert take(queue).value == "new"
    assert take(queue).value == "newer"
    # the other suspect does not join it
    assert none_comes(queue)
    assert hangs.ack()


def test_other_jobs_come_first_for_as_long_as_a_suspect_ran(life: Life) -> None:
    queue = life.queue()
    queue.put_many(["one", "two"])
    life.die(take(queue), take(queue))
    queue = life.queue()
    queue.put_many(range(5))
    suspect = take(queue)
    assert suspect.deliveries == 2
    life.clock.advance(8)
    assert suspect.ack()
    for number in range(4):
        job = take(queue)
        assert (job.value, job.deliveries) == (number, 1) and job.ack()
        life.clock.advance(2)
    suspect = take(queue)
    assert suspect.deliveries == 2 and suspect.ack() and take(queue).value == 4


def test_a_short_lease_makes_no_short_window(life: Life) -> None:
    queue = life.queue(retry_after=0.5)
    queue.put("suspect")
    life.die(take(queue))
    queue = life.queue(retry_after=0.5)
    queue.put("new")
    suspect = take(queue)
    life.clock.advance(alone.WINDOW_SECONDS_MIN - 1)
    assert none_comes(queue)
    life.clock.advance(1)
    assert take(queue).value == "new" and suspect.ack()


# --- waits


def test_a_thread_that_waits_for_a_suspect_goes_on_when_it_is_done(life: Life) -> None:
    queue = life.queue()
    queue.put("suspect")
    life.die(take(queue))
    queue = life.queue()
    suspect = take(queue)
    queue.put("new")
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(queue.get()))
    waiting.start()
    parked(life.db)
    assert not found
    assert suspect.ack()
    waiting.join(60)
    assert found[0].value == "new"


@pytest.mark.parametrize("end", ["nack", "fail", "release", "result", "done_and"])
def test_every_end_of_a_suspect_lets_others_in(life: Life, end: str) -> None:
    queue = life.queue()
    queue.put("suspect")
    life.die(take(queue))
    queue = life.queue()
    suspect = take(queue)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(queue.get()))
    queue.put("new")
    waiting.start()
    parked(life.db)
    ways: dict[str, Any] = {
        "nack": lambda: suspect.nack("no", delay=60),
        "fail": lambda: suspect.fail("no"),
        "release": suspect.release,
        "result": lambda: suspect.ack("result"),
        "done_and": lambda: suspect.done_and(queue.new("newer")),
    }
    assert ways[end]()
    waiting.join(60)
    assert found[0].value == ("suspect" if end == "release" else "new")


def test_a_consumer_that_waits_for_a_suspect_can_be_closed(life: Life) -> None:
    queue = life.queue()
    queue.put("suspect")
    life.die(take(queue))
    queue = life.queue()
    suspect = take(queue)
    queue.put("new")
    consumer = queue.consume()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.extend(consumer))
    waiting.start()
    parked(life.db)
    consumer.close()
    waiting.join(60)
    assert not waiting.is_alive() and found == [] and suspect.ack()


def test_a_suspect_that_is_dropped_lets_others_in(life: Life) -> None:
    queue = life.queue()
    queue.put("suspect")
    life.die(take(queue))
    queue = life.queue()
    suspect = take(queue)
    queue.put("new")
    assert none_comes(queue)
    del suspect
    gc.collect()
    assert take(queue).value == "new"


def test_a_task_that_waits_for_a_suspect_goes_on_when_it_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        clock = testing.Clock()
        options: dict[str, Any] = {"retry_after": LEASE, "max_deliveries": MOST}
        before = await tidelog.aopen(tmp_path / "s", clock=clock)
        queue = before.queue("q", **options)
        await queue.put("suspect")
        lost = await queue.get(block=0)
        await before.aclose(0)
        clock.advance(LEASE + 1)
        async with tidelog.aopen(tmp_path / "s", clock=clock) as store:
            queue = store.queue("q", **options)
            suspect = await queue.get(block=0)
            assert suspect is not None and suspect.deliveries == 2
            await queue.put("new")
            waiting = asyncio.create_task(queue.get())
            await asyncio.sleep(0)
            assert await queue.get(block=0) is None and not waiting.done()
            assert await suspect.ack()
            job = await asyncio.wait_for(waiting, 60)
            assert job is not None and job.value == "new" and await job.ack()
        del lost

    asyncio.run(main())


def test_nothing_of_it_is_left(life: Life) -> None:
    queue = life.queue()
    queue.put_many(range(3))
    life.die(*[take(queue) for _ in range(3)])
    queue = life.queue()
    for _ in range(3):
        assert take(queue).ack()
    for _ in range(2):
        life.clock.advance(1)
        assert none_comes(queue)
    assert not queue._engine.known.alone.turns
