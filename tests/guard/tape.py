"""The tape of a script: it drives one store over two lives, and notes each call with its answer.

A script is an async function that exercises one option of the queue, step by step. It draws nothing at random, so a
reader can tell what it does; the world's seed still decides about the uuid, the incarnations and the jitter. The same
script runs through three faces of the store:

    threads    the embedded store; the second life begins with the log alone
    tasks      the embedded store for asyncio; the second life begins with a checkpoint
    shared     a store that a server in this process serves; the calls go through the client of shared stores

The tape keeps every job that a worker got until the life ends: a job whose last reference goes is given back, and in
the shared store by a thread, at a moment of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final

from tests.guard.queues import settled
from tests.guard.world import World, shown

import tidelog

# The classes of answers by their names, without `Async` and `Shared`, and what is noted of each.
FIELDS: Final = {
    name: fields.split()
    for name, fields in {
        "Job": "id deliveries value headers origin priority key enqueued_at",
        "DeadJob": "id original_id raw headers deliveries reason workers errors codec group priority key",
        "Failure": "job_id at worker deliveries error",
        "WaitingJob": "id value headers raw problem due_at priority key",
        "JobStatus": "id state present_id value headers priority key deliveries worker due_at reason failures result",
        "FoundJobs": "jobs until",
        "WorkerStatus": "name held jobs seen_at got_at",
        "Schedule": "name queue cron tz every catch_up raw next_at paused ticks priority",
        "Stats": "name group depth waiting in_flight paused scheduled dead failures kept oldest_seconds put_per_second"
        " done_per_second by_priority",
    }.items()
}

Script = Callable[["Tape"], Awaitable[None]]
SCRIPTS: Final[dict[str, Script]] = {}


def script(run: Script) -> Script:
    """Add a script to the list, under the name of its function."""
    SCRIPTS[run.__name__.replace("_", "-")] = run
    return run


def kind_of(answer: object) -> str:
    """The name of an answer's class, the same in every face."""
    return type(answer).__name__.removeprefix("Async").removeprefix("Shared")


def plain(answer: object) -> object:
    """An answer, or an argument, as values that `shown` takes."""
    if kind_of(answer) in ("Put", "object") or callable(answer):
        return getattr(answer, "__name__", kind_of(answer))
    if isinstance(answer, tidelog.QueueFull | tidelog.EncodeError):
        return [type(answer).__name__, answer.stored]
    if isinstance(answer, list | tuple):
        return [plain(each) for each in answer]
    if isinstance(answer, dict):
        return {name: plain(each) for name, each in answer.items()}
    if isinstance(answer, tidelog.RetryPolicy):
        return str(answer)
    if isinstance(answer, timedelta):
        return f"{answer.total_seconds():g} s"
    fields = FIELDS.get(kind_of(answer))
    return answer if fields is None else [plain(getattr(answer, field)) for field in fields]


class Noted:
    """An object of the program. A call of one of its methods is awaited, and noted with its answer.

    The result is the answer; None for an error; another `Noted` for a job, and for the job that `get` did not find.
    """

    def __init__(self, tape: Tape, about: str, target: Callable[[], Any]) -> None:
        self.tape, self.about, self.target = tape, about, target

    def new(self, *args: Any, **given: Any) -> Any:
        """A job of this queue for `done_and`."""
        return self.target().new(*args, **given)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **given: Any) -> Any:
            return await self.tape.note(self, name, args, given)

        return call


class Tape:
    """One run of a script.

    db       the store as the face shows it        store    the embedded one; for two faces the same
    """

    def __init__(self, world: World, face: str, fsync: str) -> None:
        self.world, self._face, self._fsync = world, face, fsync
        self.db: Any = None
        self.store: Any = None
        self._life = AsyncExitStack()
        self._queues: dict[str, Any] = {}
        self._kept: list[Any] = []

    async def begin(self) -> None:
        """Open the store."""
        if self._face == "tasks":
            opened = tidelog.aopen(self.world.root, **self.world.options(fsync=self._fsync))
            self.db = self.store = await self._life.enter_async_context(opened)
            return
        self.store = self.db = self._life.enter_context(self.world.open(fsync=self._fsync))
        if self._face == "shared":
            self._life.enter_context(tidelog.serve(self.store, port=0, hz=1))
            self.db = self._life.enter_context(tidelog.connect(self.world.root))

    async def end(self, fold: bool) -> None:
        """Note the state and close the store."""
        if fold:
            self.world.told("checkpoint", await settled(self.store.checkpoint()))
        digest, info = await settled(self.store.digest()), await settled(self.store.info())
        self.world.states.append(f"{digest} through LSN {info['written_lsn']}")
        await self.close()

    async def close(self) -> None:
        """Close the store, and let the jobs go."""
        self._queues.clear()
        await self._life.aclose()
        self._kept.clear()

    async def reopen(self) -> None:
        """The second life begins. The files are kept as they are before, as if the process were killed."""
        self.world.copy()
        await self.end(self._face == "tasks")
        await self.begin()
        self.world.told("reopen", None)

    def queue(self, name: str, *args: Any, **options: Any) -> Noted:
        """A queue; in each life it is another object."""
        about = f"{name}{sorted((n, plain(v)) for n, v in options.items()) if options else ''}"

        def target() -> Any:
            key = f"{about} {args}"
            if key not in self._queues:
                self._queues[key] = self.db.queue(name, *args, **options)
            return self._queues[key]

        return Noted(self, " ".join((name, *args)), target)

    def dead(self, queue: Noted) -> Noted:
        """The dead jobs of a queue."""
        return Noted(self, f"{queue.about}.dead", lambda: queue.target().dead)

    @property
    def schedules(self) -> Noted:
        """The schedules of the store."""
        return Noted(self, "schedules", lambda: self.db.schedules)

    async def schedule(self, *args: Any, **given: Any) -> Any:
        """Add a schedule."""
        return await self.note(Noted(self, "store", lambda: self.db), "schedule", args, given)

    async def note(self, noted: Noted, name: str, args: Any, given: dict[str, Any]) -> Any:
        """Make a call and note it."""
        told = [shown(plain(arg)) for arg in args]
        told += [f"{option}={shown(plain(value))}" for option, value in given.items()]
        about, target = f"{noted.about}.{name}({', '.join(told)})", noted.target()
        failed = answer = None
        if target is not None:
            try:
                answer = await settled(getattr(target, name)(*args, **given))
            except tidelog.TidelogError as error:
                failed = error
        self.world.told(about, plain(failed or answer))
        if kind_of(answer) == "Job":
            return self.job(answer)
        return Noted(self, "no job", lambda: None) if name == "get" and answer is None else answer

    def job(self, job: Any) -> Noted:
        self._kept.append(job)
        return Noted(self, job.id, lambda: job)

    async def block(self, job: Noted, error: BaseException | None = None) -> None:
        """Enter and leave the block of a job. An error has no traceback, which would name files of the guard."""
        held, kind = job.target(), None if error is None else type(error)
        if hasattr(held, "__aenter__"):
            await held.__aenter__()
            swallowed = await held.__aexit__(kind, error, None)
        else:
            held.__enter__()
            swallowed = held.__exit__(kind, error, None)
        self.world.told(f"{job.about} block {kind}", [bool(swallowed), held.state])

    async def work(
        self,
        queue: Noted,
        worker: str,
        count: int = 1000,
        error: BaseException | None = None,
        **given: Any,
    ) -> None:
        """Iterate over jobs, each in its block, until none is due or `count` were had; then close the iteration."""
        about = f"{queue.about}.consume({worker}, {plain(given)})"
        try:
            consumer = queue.target().consume(worker, **{"block": 0, **given})
        except tidelog.DataError as refused:
            self.world.told(about, refused)
            return
        self.world.told(about, count)
        for _ in range(count):
            job = await self.next_of(consumer)
            self.world.told(f"{worker} has", plain(job))
            if job is None:
                break
            await self.block(self.job(job), error)
        await settled(consumer.close())

    async def next_of(self, consumer: Any) -> Any:
        """The next job of an iteration; None at its end."""
        if self._face == "tasks":
            return await anext(consumer, None)
        return next(consumer, None)

    async def look(self, queue: Noted) -> None:
        """Everything that a queue shows."""
        await queue.stats()
        await queue.peek(20)
        await queue.peek(20, scheduled=True)
        await queue.failures()
        await self.dead(queue).list()

    async def wait(self, seconds: float) -> None:
        """Time passes. Everything that has expired goes at once; else a server's timer would choose the moment."""
        self.world.clock.advance(seconds)
        self.world.told("time", seconds)
        await settled(self.store.ping())


def play(world: World, run: Script, face: str, fsync: str) -> None:
    """Run a script from an empty store to a checkpoint at the end of its second life."""

    async def lives() -> None:
        tape = Tape(world, face, fsync)
        try:
            await tape.begin()
            await run(tape)
            await tape.end(True)
        finally:
            await tape.close()

    asyncio.run(lives())
