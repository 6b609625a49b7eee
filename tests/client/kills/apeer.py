"""A worker of the shared queues for asyncio, whose waits, puts and handlers are cancelled now and then."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import random
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.client.kills.evidence import CUT, Evidence
from tests.client.kills.peer import (
    AGAIN,
    BLOCKS,
    DRAIN_S,
    PUT_TIMEOUT_S,
    UNWRITTEN,
    shown,
)
from tests.client.kills.queues import EFFECTS, KINDS, RETRY_AFTER_S, TIMEOUT_S, Kind
from tests.client.kills.remains import left_behind

import tidelog

CANCELLED = 0.4  # share of the waits for a job that are cancelled if none comes soon
STRUCK = 0.1  # of the handlers that are cancelled
SOON_S = 0.05
PUT_PAUSE_S = 0.1


def work_for_ever(root: Path, name: str, seed: int, policy: str, evidence: Path) -> None:
    told = Evidence(evidence)
    asyncio.run(AsyncPeer(name, seed, told).run(root, policy))
    told.call("ended", partial(left_behind, root=root), list)


class AsyncPeer:
    """One process, connected. Each thread of a worker for threads is a task here."""

    def __init__(self, name: str, seed: int, evidence: Evidence) -> None:
        self.name, self.pick, self.evidence = name, random.Random(seed), evidence

    async def run(self, root: Path, policy: str) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        loop.add_signal_handler(signal.SIGUSR1, show_tasks)
        # both show where they are: the threads, and the tasks
        faulthandler.register(signal.SIGUSR1, chain=True)

        async def connected() -> Any:
            return await tidelog.aconnect(root, fsync=policy, timeout=TIMEOUT_S)

        found = await self.evidence.acall("connect", connected)
        assert found is not None
        self.db: Any = found
        tasks = [
            asyncio.create_task(self.guarded(self.work(kind, f"{kind.name}-{number}")))
            for kind in KINDS
            for number in range(kind.threads)
        ]
        tasks.append(asyncio.create_task(self.guarded(self.put())))
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        close = lambda: self.db.aclose(drain=DRAIN_S)  # noqa: E731
        await self.evidence.acall("close", close, int, wait=DRAIN_S)

    async def guarded(self, work: Awaitable[None]) -> None:
        """A task that raises ends the process, which the test notices."""
        try:
            await work
        except asyncio.CancelledError:
            raise
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    async def put(self) -> None:
        """Put jobs; a put that is cancelled may have been made or not."""
        kinds = [kind for kind in KINDS if kind.share]
        queues = {kind.name: self.db.queue(kind.name, **kind.options_of()) for kind in kinds}
        pick, number = self.pick, 0
        while True:
            number += 1
            kind, value = pick.choice(kinds), f"{self.name}-{number}"
            place = {"priority": pick.choice(kind.priorities), "key": pick.choice(kind.keys)}
            facts: dict[str, Any] = {"queue": kind.name, "values": [value], "wait": PUT_TIMEOUT_S}
            facts |= place
            patience = pick.choice((None, None, pick.uniform(0, SOON_S)))
            put = partial(queues[kind.name].put, value, timeout=PUT_TIMEOUT_S, **place)
            await self.evidence.acall("put", put, str, patience=patience, **facts)
            await asyncio.sleep(pick.uniform(0, 2 * PUT_PAUSE_S))

    async def work(self, kind: Kind, task: str) -> None:
        pick, worker = random.Random(self.pick.getrandbits(32)), f"{self.name}-{task}"
        queue = self.db.queue(kind.name, **kind.options_of())
        effects = self.db.queue(EFFECTS)
        while True:
            block = pick.choice(kind.blocks)
            consumer = queue.consume(worker, batch=kind.batch, block=block)
            facts = {"queue": kind.name, "worker": worker, "wait": block}
            hasty = False
            for _ in range(pick.randrange(1, 30)):
                number = self.evidence.number()
                patience = pick.uniform(0, SOON_S) if pick.random() < CANCELLED else None
                hasty |= patience is not None
                job: Any = await self.evidence.acall(
                    "take",
                    partial(following, consumer),
                    partial(came, hasty),
                    number=number,
                    patience=patience,
                    cancelled=CUT,
                    **facts,
                )
                if job is not None:
                    await self.handle(job, kind, pick, effects, number)
                elif patience is None:
                    break
            if pick.random() < 0.5:
                await consumer.aclose()  # and else it is dropped, with what it has fetched
            await asyncio.sleep(0.01)

    async def handle(
        self, job: Any, kind: Kind, pick: random.Random, effects: Any, number: int
    ) -> None:
        if pick.random() < STRUCK:

            async def struck() -> bool:
                async with job:
                    await asyncio.sleep(10 * RETRY_AFTER_S)
                return False

            patience = pick.uniform(0, SOON_S)
            await self.evidence.acall("release", struck, patience=patience, take=number)
            return
        await asyncio.sleep(pick.uniform(0, kind.work_s))
        how = pick.choice(kind.ends)
        if how == "extend":
            await self.evidence.acall("extend", lambda: job.extend(2 * RETRY_AFTER_S))
            how = "ack"
        ways: dict[str, Callable[[], Awaitable[bool]]] = {
            "ack": job.ack,
            "result": lambda: job.ack(result=f"result of {job.value}"),
            "nack": lambda: job.nack("again", delay=0.02),
            "release": job.release,
            "fail": lambda: job.fail("no"),
            "with": lambda: job.__aexit__(None, None, None),
            "raise": lambda: job.__aexit__(*AGAIN),
            "and": lambda: job.done_and(effects.new([kind.name, job.id])),
        }
        show = UNWRITTEN if how in BLOCKS else bool
        await self.evidence.acall(how, ways[how], show, take=number)


async def following(consumer: Any) -> Any:
    """The next job, None if there is none."""
    return await anext(consumer, None)


def came(hasty: bool, job: Any) -> Any:
    """The outcome of a wait. `hasty`: one of this consumer was cancelled.

    The answer of that may come later, and if there was no job it ends the consumer, so that nobody is asked any more.
    """
    return CUT if job is None and hasty else shown(job)


def show_tasks() -> None:
    """Write where each task is to standard error, down to what it awaits."""
    for task in asyncio.all_tasks():
        print(task.get_name(), file=sys.stderr)
        at: Any = task.get_coro()
        while (frame := getattr(at, "cr_frame", None)) is not None:
            print(f"  {frame.f_code.co_qualname}:{frame.f_lineno}", file=sys.stderr)
            at = at.cr_await
        print(f"  {at!r}", file=sys.stderr, flush=True)
