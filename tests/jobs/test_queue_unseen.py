"""A delivery that no worker saw goes back with its count, in any order of cancellation, hand-out, wake-up."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.jobs.interrupts import QueueCallTrap, QueueTrap
from tests.jobs.leases import LEASE, pass_time
from tests.rounds import some_and_all

import tidelog
from tidelog import testing
from tidelog.api.queue import face

LONG = 60  # seconds of real time after which a test gives up
LIVES = 3  # as many as the deliveries that a job has
WORKERS = 5


async def turn_until(true: Callable[[], object]) -> None:
    """Let other tasks run until something holds."""
    while not true():
        await asyncio.sleep(0)


def waits(queue: Any) -> int:
    """How many workers wait for a job."""
    return len(inside.waiters(queue))


class Team:
    """Workers that finish nothing: each keeps its job until it is cancelled."""

    def __init__(self, queue: Any, jobs: int, batch: int, named: bool = True) -> None:
        self.queue, self.batch, self.named = queue, batch, named
        self.in_hand: list[str] = []
        self.holders = jobs if batch == 1 else 1

    async def work(self, number: int) -> None:
        name = f"worker-{number}" if self.named else None
        async for job in self.queue.consume(name, self.batch):
            async with job:
                self.in_hand.append(job.id)
                await asyncio.Event().wait()

    def all(self) -> list[Coroutine[Any, Any, None]]:
        return [self.work(number) for number in range(WORKERS)]

    async def is_busy(self) -> None:
        """Until every job that can be is in hand, and all others wait."""
        await turn_until(
            lambda: (
                len(self.in_hand) == self.holders and waits(self.queue) == WORKERS - self.holders
            )
        )


def nothing_was_used_up(path: Path, total: int) -> None:
    """In the next life all jobs are there, and the first delivery of each is its first."""
    with tidelog.queue(path, "jobs", max_deliveries=LIVES) as queue:
        assert queue.dead.list() == []
        stats = queue.stats()
        assert (stats.depth, stats.in_flight) == (total, {})
        with queue.consume("heir", block=0) as jobs:
            assert [job.deliveries for job in jobs] == [1] * total


# --- all workers cancelled at once, life after life

Life = Callable[[Team], Awaitable[Any]]


async def in_a_gather(team: Team) -> Any:
    tasks = list(map(asyncio.create_task, team.all()))
    gathered = asyncio.gather(*tasks)
    await team.is_busy()
    gathered.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await gathered
    return await asyncio.gather(*tasks, return_exceptions=True)


async def in_a_task_group(team: Team) -> Any:
    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            for work in team.all():
                tasks.create_task(work)

    task = asyncio.create_task(group())
    await team.is_busy()
    task.cancel()
    return await asyncio.gather(task, return_exceptions=True)


async def one_after_the_other(team: Team) -> Any:
    tasks = list(map(asyncio.create_task, team.all()))
    await team.is_busy()
    for task in tasks:
        task.cancel()
        await asyncio.sleep(0)
    return await asyncio.gather(*tasks, return_exceptions=True)


async def in_a_lifespan(team: Team) -> Any:
    """An application as a server of ASGI drives it: workers begin at its startup and are cancelled at its shutdown."""
    tasks: list[asyncio.Task[None]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan" and (await receive())["type"] == "lifespan.startup"
        tasks.extend(map(asyncio.create_task, team.all()))
        await send({"type": "lifespan.startup.complete"})
        assert (await receive())["type"] == "lifespan.shutdown"
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await send({"type": "lifespan.shutdown.complete"})

    events, told = asyncio.Queue[Any](), asyncio.Queue[Any]()
    running = asyncio.create_task(application({"type": "lifespan"}, events.get, told.put))
    await events.put({"type": "lifespan.startup"})
    assert (await told.get())["type"] == "lifespan.startup.complete"
    await team.is_busy()
    await events.put({"type": "lifespan.shutdown"})
    assert (await told.get())["type"] == "lifespan.shutdown.complete"
    await running
    return tasks


@pytest.mark.parametrize(("jobs", "batch"), [(1, 1), (3, 1), (1, 4), (3, 4)])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("life", [in_a_gather, in_a_task_group, one_after_the_other, in_a_lifespan])
def test_workers_that_are_cancelled_use_up_no_delivery(
    life: Life, named: bool, jobs: int, batch: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with tidelog.aqueue(tmp_path / "s", "jobs", max_deliveries=LIVES) as queue:
            if not (await queue.stats()).depth:
                await queue.put_many(range(jobs))
            # What the tasks raised is kept until the store is closed: its frames keep their consumers.
            kept = await asyncio.wait_for(life(Team(queue, jobs, batch, named)), LONG)
            assert kept

    for _ in range(LIVES):
        asyncio.run(main())
    nothing_was_used_up(tmp_path / "s", jobs)


PROGRAM = """
import asyncio, signal, sys, tidelog

async def work(queue, number):
    async for job in queue.consume(f"worker-{number}", int(sys.argv[2])):
        async with job:
            print("in hand", flush=True)
            await asyncio.Event().wait()

async def main():
    global tasks
    queue = await tidelog.aqueue(sys.argv[1], "jobs", max_deliveries=3)
    tasks = [asyncio.create_task(work(queue, number)) for number in range(5)]
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, lambda: [task.cancel() for task in tasks])
    while len(queue._core.waiting.waiters()) < 4:
        await asyncio.sleep(0)
    print("ready", flush=True)
    await asyncio.wait(tasks)
    if sys.argv[3] == "closes":
        await queue.aclose()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("batch", "end"),
    [
        *(("1", "forgets to close"), ("4", "closes")),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (("1", "closes"), ("4", "forgets to close"))
        ),
    ],
)
def test_sigterm_uses_up_no_delivery(batch: str, end: str, tmp_path: Path) -> None:
    jobs = 1 if batch == "1" else 3
    with tidelog.queue(tmp_path / "s", "jobs") as queue:
        queue.put_many(range(jobs))
    for _ in range(LIVES):
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path / "s"), batch, end],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert child.stdout is not None
            assert {child.stdout.readline(), child.stdout.readline()} == {"in hand\n", "ready\n"}
            child.send_signal(signal.SIGTERM)
            _, errors = child.communicate(timeout=LONG)
        finally:
            child.kill()
            child.wait()
        assert (child.returncode, errors) == (0, "")
    nothing_was_used_up(tmp_path / "s", jobs)


# --- one worker, in every order


async def counts(queue: Any) -> list[tuple[str, int]]:
    """The owners of the delivered jobs, and how often each was delivered."""
    found = await queue.store.xpending_range("jobs", "workers", "-", "+", 100)
    return [(row["consumer"].decode(), row["times_delivered"]) for row in found]


ORDERS = ["cancelled, put", "put, cancelled", "put, woken, cancelled"]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("batch", [1, 4])
def test_a_cancelled_wait_gives_back_what_it_was_handed(
    order: str, batch: int, tmp_path: Path
) -> None:
    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="no") as db:
            queue: Any = db.queue("jobs")
            consumer = queue.consume("worker", batch)
            task = asyncio.ensure_future(consumer.__anext__())
            await turn_until(lambda: waits(queue))
            if order == "cancelled, put":
                task.cancel()
                await queue.put(1)
                assert await counts(queue) == [], "it was handed to a worker that had gone"
            else:
                await queue.put(1)
                assert await counts(queue) == [("worker", 1)]
                if order == "put, woken, cancelled":
                    await asyncio.sleep(0)
                task.cancel()
            kept = await asyncio.gather(task, return_exceptions=True)
            if not isinstance(kept[0], asyncio.CancelledError):
                assert order == "put, woken, cancelled"
                await task.result().release()
            # At once, while what was raised is kept, and the consumer with it.
            job = await queue.get("heir", block=0)
            assert job is not None and job.deliveries == 1
            await job.ack()
            # And the consumer is none the worse for it.
            await queue.put(2)
            job = await consumer.__anext__()
            assert (job.value, job.deliveries) == (2, 1)

    asyncio.run(asyncio.wait_for(main(), LONG))


def test_a_cancelled_read_gets_nothing_that_came_later(tmp_path: Path) -> None:
    """XREADGROUP of the store itself: what it got before it was cancelled is pending, as with Redis; nothing later."""

    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="no") as db:
            await db.xgroup_create("s", "g", mkstream=True)
            for cancelled_first in (True, False):
                task = asyncio.ensure_future(db.xreadgroup("g", "anna", {"s": ">"}, block=0))
                await turn_until(inside.waiting(db).waiters)
                if cancelled_first:
                    task.cancel()
                await db.xadd("s", {"n": "1"})
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                found = await db.xreadgroup("g", "ben", {"s": ">"})
                assert bool(found) is cancelled_first
            (row,) = await db.xpending_range("s", "g", "-", "+", 10, "anna")
            assert row["times_delivered"] == 1

    asyncio.run(asyncio.wait_for(main(), LONG))


@pytest.mark.parametrize("way", ["cancelled", "closed", "collected"])
def test_a_generator_around_a_consumer_keeps_no_job(way: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with tidelog.aopen(tmp_path / "s", fsync="no") as db:
            queue: Any = db.queue("jobs")

            async def values() -> AsyncIterator[Any]:
                async for job in queue.consume("worker", batch=4):
                    async with job:
                        yield job.value

            await queue.put_many(range(3))
            generator: Any = values()
            assert await anext(generator) == 0
            if way == "cancelled":
                for expected in (1, 2):
                    assert await anext(generator) == expected
                task = asyncio.ensure_future(anext(generator))
                await turn_until(lambda: waits(queue))
                await queue.put(3)
                task.cancel()
                kept = await asyncio.gather(task, return_exceptions=True)
                assert isinstance(kept[0], asyncio.CancelledError)
            elif way == "closed":
                await generator.aclose()
            else:
                del generator
                gc.collect()
                await asyncio.sleep(0.01)  # the loop closes it
            job = await queue.get("heir", block=0)
            assert (job.value, job.deliveries) == (3 if way == "cancelled" else 0, 1)

    asyncio.run(asyncio.wait_for(main(), LONG))


# --- threads


@pytest.mark.parametrize("every", some_and_all(5, 1))
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("priority", [0, 5])
@pytest.mark.parametrize("kind", [QueueTrap, QueueCallTrap])
def test_an_interrupt_gives_back_what_was_fetched(
    kind: type[QueueTrap], priority: int, batch: int, every: int, tmp_path: Path
) -> None:
    """At every line of `next`: either the caller has the job, or the next worker gets it at once, as its first."""
    at = 0
    while True:
        with tidelog.queue(tmp_path / f"{at}", "jobs", fsync="no", clock=testing.Clock()) as queue:
            queue.put_many(range(2), priority=priority)
            consumer = queue.consume("worker", batch, block=0)
            got: list[Any] = []
            trap = kind(at)
            trap.breaks(lambda: got.append(next(consumer)))
            if not trap.where:
                assert got
                break
            if not trap.swallowed:
                assert not got
                with queue.consume("heir", block=0) as heirs:
                    found = [(job.value, job.deliveries) for job in heirs]
                with consumer:  # it is living, so what it fetched and did not hand out is its own
                    found += [(job.value, job.deliveries) for job in consumer]
                assert sorted(found) == [(0, 1), (1, 1)], trap.where
        at += every
    assert at > 10


def test_an_interrupt_after_a_job_was_made(
    clock: testing.Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its consumer has it as before, although Python has freed the object, and hands it out again."""

    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        tidelog.Job(*args)
        raise KeyboardInterrupt

    with testing.store(clock) as db:
        queue = db.queue("jobs", retry_after=LEASE)
        queue.put_many(range(3))
        consumer = queue.consume("anna", batch=3, block=0)
        monkeypatch.setattr(face, "Job", interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(consumer)
        pass_time(clock, 3 * LEASE)
        assert queue.get("ben", block=0) is None
        for job in consumer:
            with job:
                assert job.deliveries == 1
        assert len(queue) == 0


# --- many orders, at random


class Shuffled(asyncio.SelectorEventLoop):
    """A loop whose callbacks of one turn run in an order that dice decide; some of them a turn later."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__()
        self._dice = dice

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        shuffled = list(ready)
        ready.clear()
        self._dice.shuffle(shuffled)
        ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]


async def live(queue: Any, dice: random.Random, jobs: int) -> Any:
    """Workers come, take, finish, are cancelled; at the end all are. A job not done by then used up no delivery."""
    left = jobs

    async def work(batch: int) -> None:
        nonlocal left
        async for job in queue.consume(dice.choice(("anna", "ben", None)), batch):
            assert job.deliveries == 1, (
                "a delivery that nobody saw, or that was released, was counted"
            )
            async with job:
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0)
                if dice.random() < 0.5:
                    await asyncio.Event().wait()
                left -= 1  # from here on it is done, though the wait for the disk may be cancelled

    async def get_for_a_while() -> None:
        nonlocal left
        try:
            job = await asyncio.wait_for(queue.get(), 0.0005)
        except asyncio.TimeoutError:
            return
        if job is not None:
            assert job.deliveries == 1
            async with job:
                await asyncio.sleep(0)
                left -= 1

    tasks = []
    for _ in range(dice.randrange(2, 7)):
        if dice.random() < 0.8:
            tasks.append(asyncio.create_task(work(dice.choice((1, 1, 3)))))
        else:
            tasks.append(asyncio.create_task(get_for_a_while()))
    unput = list(range(jobs))
    living = list(tasks)
    while unput or living:
        for _ in range(dice.randrange(3)):
            await asyncio.sleep(0)
        if unput and (not living or dice.random() < 0.5):
            await queue.put(unput.pop())
        elif living:
            living.pop(dice.randrange(len(living))).cancel()
    kept = await asyncio.gather(*tasks, return_exceptions=True)
    for found in kept:
        assert found is None or isinstance(found, asyncio.CancelledError), found
    return left, kept


@pytest.mark.parametrize("orders", some_and_all(60, 1000))
def test_shuffled_orders(tmp_path: Path, orders: int) -> None:
    """A job that was not done has used up no delivery, in this life and in the next."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    with tidelog.open(tmp_path / "seen", fsync="no") as first:
        path = inside.core(first).root.parent
    for number in range(orders):
        one_order(
            path / f"{number % 50}", random.Random(f"{seed} {number}"), f"jobs-{number}", seed
        )


def one_order(path: Path, dice: random.Random, name: str, seed: int) -> None:
    jobs = dice.randrange(1, 5)
    policy = dice.choice(("no", "always"))
    ends_first = dice.random() < 0.5

    async def main() -> int:
        async with tidelog.aqueue(path, name, fsync=policy) as queue:
            left, kept = await live(queue, dice, jobs)
            if ends_first:
                del kept  # the consumers go before the store
            return int(left)

    loop = Shuffled(dice)
    try:
        left = loop.run_until_complete(asyncio.wait_for(main(), LONG))
        with tidelog.queue(path, name, fsync="no") as queue:
            stats = queue.stats()
            assert (stats.depth, stats.in_flight, stats.dead) == (left, {}, 0)
            with queue.consume("heir", block=0) as found:
                assert [job.deliveries for job in found] == [1] * left
    except BaseException as error:
        error.add_note(f"seed {seed}, {name}")
        raise
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
