"""Workloads of queues: one driver for both faces, as the same calls have to come to the same records."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from typing import Any, Final

from tests.guard.world import World

import tidelog
from tidelog.jobs.verbs.stats import MORE

WORKERS: Final = ("anna", "ben", "carl")


async def settled(value: Any) -> Any:
    """The result of a call of either face."""
    return await value if inspect.isawaitable(value) else value


class Driver:
    """Workers of one queue, each with the jobs in its hands."""

    def __init__(self, world: World, db: Any, name: str, **options: Any) -> None:
        self.world = world
        self.db = db
        self.mails = db.queue(name, **options)
        self.other = db.queue("other", codec="bytes")
        self.held: list[Any] = []
        self.consumers: dict[tuple[str, int], Any] = {}
        self.put_count = 0

    async def step(self) -> None:
        """One call."""
        r = self.world.r
        calls = (
            (5, self.put), (3, self.put_once), (2, self.put_many), (9, self.take), (5, self.ack), (3, self.nack),
            (1, self.fail), (2, self.release), (2, self.extend), (2, self.done_and), (1, self.drop), (2, self.leave),
            (3, self.look), (1, self.dead), (4, self.wait), (1, self.purge), (3, self.batch),
        )  # fmt: skip
        weights = [weight for weight, _ in calls]
        call = r.choices([call for _, call in calls], weights)[0]
        try:
            answer = await call()
        except tidelog.TidelogError as error:
            answer = error
        self.world.told(call.__name__, answer)

    def value(self) -> dict[str, Any]:
        self.put_count += 1
        return {"n": self.put_count, "to": "x" * self.world.r.randrange(30)}

    def job(self) -> Any:
        """One of the jobs in hand, which its worker then lets go."""
        return self.held.pop(self.world.r.randrange(len(self.held))) if self.held else None

    async def put(self) -> Any:
        headers = {"trace": f"t{self.put_count}"} if self.world.r.random() < 0.3 else None
        return await settled(self.mails.put(self.value(), headers=headers, timeout=0))

    async def put_once(self) -> Any:
        dedup_id = f"d{self.world.r.randrange(12)}"
        return await settled(self.mails.put(self.value(), dedup_id=dedup_id, timeout=0))

    async def put_many(self) -> Any:
        values = [self.value() for _ in range(self.world.r.choice((1, 3, 20)))]
        return await settled(self.mails.put_many(values, timeout=0))

    async def take(self) -> Any:
        worker = self.world.r.choice(WORKERS)
        job = await settled(self.mails.get(worker, 0))
        if job is None:
            return None
        self.held.append(job)
        return [job.id, job.deliveries, job.value, job.headers, job.origin, job.enqueued_at]

    async def batch(self) -> Any:
        """Jobs that are fetched and acknowledged together."""
        r = self.world.r
        worker, size = r.choice(WORKERS), r.choice((2, 10))
        consumer = self.mails.consume(f"{worker}-{size}", size, 0)
        done = []
        for _ in range(r.choice((1, 4, 12))):
            if isinstance(self.mails, tidelog.Queue):
                job = next(consumer, None)
                if job is None:
                    break
                with job:
                    done.append(job.id)
            else:
                job = await anext(consumer, None)
                if job is None:
                    break
                async with job:
                    done.append(job.id)
        await settled(consumer.close())
        return done

    async def ack(self) -> Any:
        job = self.job()
        return None if job is None else [job.id, await settled(job.ack())]

    async def nack(self) -> Any:
        job = self.job()
        delay = self.world.r.choice((None, None, 0, 3))
        return None if job is None else [job.id, await settled(job.nack("not now", delay))]

    async def fail(self) -> Any:
        job = self.job()
        return None if job is None else [job.id, await settled(job.fail("no"))]

    async def release(self) -> Any:
        job = self.job()
        return None if job is None else [job.id, await settled(job.release())]

    async def extend(self) -> Any:
        if not self.held:
            return None
        return await settled(self.held[0].extend(self.world.r.choice((1, 60))))

    async def done_and(self) -> Any:
        job = self.job()
        if job is None:
            return None
        puts = (self.mails.new(self.value()), self.other.new(b"next", headers={"a": "b"}))
        return [job.id, await settled(job.done_and(*puts))]

    async def drop(self) -> Any:
        """A job that nobody holds any more."""
        job = self.job()
        return None if job is None else job.id

    async def leave(self) -> Any:
        """The block of a job ends; half of them with an error that has no traceback."""
        job = self.job()
        if job is None:
            return None
        if self.world.r.random() < 0.5:
            return [job.id, await settled(job.nack(ValueError("broken")))]
        if isinstance(self.mails, tidelog.Queue):
            with job:
                pass
        else:
            async with job:
                pass
        return [job.id, job.state]

    async def look(self) -> Any:
        stats = await settled(self.mails.stats())
        waiting = await settled(self.mails.peek(3))
        failures = await settled(self.mails.failures(count=3))
        return [
            {name: fact for name, fact in stats.as_dict().items() if name not in MORE},
            [[job.id, job.value, job.headers, job.raw] for job in waiting],
            [[f.job_id, f.at, f.worker, f.deliveries, f.error] for f in failures],
        ]

    async def dead(self) -> Any:
        dead = self.mails.dead
        found = await settled(dead.list(5))
        told = [[job.id, job.original_id, job.raw, job.deliveries, job.workers] for job in found]
        if found and self.world.r.random() < 0.5:
            return [told, "redriven", await settled(dead.redrive([found[0].id]))]
        if found and self.world.r.random() < 0.3:
            return [told, "purged", await settled(dead.purge(older_than=5))]
        return told

    async def wait(self) -> Any:
        """Time passes: leases are renewed, pauses end, what was dropped goes to others."""
        seconds = self.world.r.choice((0.001, 0.2, 1, 4, 11, 40))
        self.world.clock.advance(seconds)
        return seconds

    async def purge(self) -> Any:
        return await settled(self.mails.purge()) if self.world.r.random() < 0.2 else None


OPTIONS: Final[tuple[dict[str, Any], ...]] = (
    {"retry_after": 10, "max_deliveries": 3},
    {"retry_after": 30, "keep": 5, "max_depth": 40, "max_failures": 10},
    {"retry_after": 5, "keep": timedelta(seconds=60), "codec": "msgpack", "max_deliveries": 2},
)


async def in_one_life(world: World, db: Any, steps: int, life: int) -> None:
    driver = Driver(world, db, "mails", **OPTIONS[world.seed % len(OPTIONS)])
    for number in range(steps):
        await driver.step()
        if number % 97 == 96:
            world.told("checkpoint", await settled(db.checkpoint()))
        if number % 61 == 60:
            await settled(db.barrier("fsynced"))
    world.told("held", len(driver.held))
    world.states.append(await settled(db.digest()))
    world.copy()


def for_threads(world: World, fsync: str, steps: int) -> None:
    for life in range(3):
        with world.open(fsync=fsync) as db:
            asyncio.run(in_one_life(world, db, steps // 3, life))


def for_tasks(world: World, fsync: str, steps: int) -> None:
    async def run() -> None:
        for life in range(3):
            async with tidelog.aopen(world.root, **world.options(fsync=fsync)) as db:
                await in_one_life(world, db, steps // 3, life)

    asyncio.run(run())
