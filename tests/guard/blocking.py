"""Workloads of blocked reads. One thread acts at a time: a call counts as blocked once the store says so."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

from tests.guard.world import Steps, World
from tests.until import until

import tidelog


class Call:
    """A call in a thread of its own."""

    def __init__(self, about: str) -> None:
        self.about = about
        self.thread = 0
        self.future: Future[Any]


class Blocked:
    """Calls that block, each in a thread."""

    def __init__(self, world: World, db: tidelog.Store, pool: ThreadPoolExecutor) -> None:
        self.world, self.db, self.pool = world, db, pool
        self.steps = Steps(world, db)
        self.waiting: list[Call] = []

    def begin(self, about: str, call: Callable[[], Any]) -> None:
        """Start a call, and go on when it blocks or has its answer."""
        made = Call(about)

        def run() -> Any:
            made.thread = self.steps.entered()
            return call()

        self.steps.settling.set()
        made.future = self.pool.submit(run)
        count = len(self.waiting)
        self.waiting.append(made)
        until(
            lambda: made.future.done() or self.blocked() == count + 1,
            f"{about}: it neither blocks nor ends",
        )
        self.settle()

    def blocked(self) -> int:
        count: int = self.db.info()["blocked_clients"]
        return count

    def advance(self, seconds: float) -> None:
        self.steps.advance(seconds, [call.thread for call in self.waiting])

    def settle(self) -> None:
        """Collect the answers of those that do not wait any more, in the order in which they began."""
        self.steps.settling.set()
        until(
            lambda: (
                sum(not call.future.done() for call in self.waiting) == self.blocked()
                and self.steps.quiet()
            ),
            "a call that was served does not return",
        )
        self.steps.settling.clear()
        done = [call for call in self.waiting if call.future.done()]
        self.waiting = [call for call in self.waiting if call not in done]
        for call in done:
            error = call.future.exception()
            self.world.told(call.about, error if error is not None else self.told(call.future))

    def close(self) -> None:
        self.steps.free()

    def told(self, future: Future[Any]) -> Any:
        answer = future.result()
        if not isinstance(answer, tidelog.Job):
            return answer
        return [answer.id, answer.deliveries, answer.ack()]


def reads(world: World, fsync: str, steps: int) -> None:
    """XREAD, XREADGROUP with and without CLAIM, and workers of a queue, woken by every kind of write."""
    r = world.r
    with (
        ThreadPoolExecutor(8) as pool,
        world.open(fsync=fsync) as db,
        closing(Blocked(world, db, pool)) as calls,
    ):
        mails = db.queue("mails", retry_after=10)
        mails.subscribe()
        for key in ("a", "b"):
            for group in ("g", "h"):
                db.xgroup_create(key, group, id="0", mkstream=True)

        def reader() -> None:
            key, ms = r.choice("ab"), r.choice((0, 0, 500, 5000))
            calls.begin(f"read {key}", lambda: db.xread({key: "$"}, block=ms, count=3))

        def member() -> None:
            key, group, name = r.choice("ab"), r.choice("gh"), r.choice("xyz")
            count, ms, noack = r.choice((1, 2, 10)), r.choice((0, 700)), r.random() < 0.2
            calls.begin(
                f"{group} {name} reads {key}",
                lambda: db.xreadgroup(group, name, {key: ">"}, count, block=ms, noack=noack),
            )

        def claimer() -> None:
            key, group = r.choice("ab"), r.choice("gh")
            words = ("GROUP", group, "late", "BLOCK", 9000, "CLAIM", 300, "STREAMS", key, ">")
            calls.begin(
                f"{group} claims of {key}", lambda: db.execute_command("XREADGROUP", *words)
            )

        def worker() -> None:
            name, block = r.choice(("w1", "w2")), r.choice((2, 30))

            calls.begin(f"{name} asks", lambda: mails.get(name, block))

        blocking = (reader, member, member, claimer, worker)
        for step in range(steps):
            if len(calls.waiting) < 6 and r.random() < 0.6:
                r.choice(blocking)()
                continue
            key = r.choice("ab")
            way = r.randrange(8)
            if way == 0:
                db.xadd_many(key, [{"n": n} for n in range(r.randrange(1, 30))])
            elif way == 1:
                with db.pipeline(transaction=r.random() < 0.5) as pipe:
                    for n in range(r.randrange(1, 8)):
                        pipe.xadd(r.choice("ab"), {"n": n})
                    pipe.execute()
            elif way == 2:
                mails.put({"step": step})
            elif way == 3:
                mails.put_many([{"step": step, "n": n} for n in range(3)])
            elif way == 4:
                calls.advance(r.choice((0.1, 0.4, 3)))
            elif way == 5 and r.random() < 0.3:
                db.delete(key)
                for group in ("g", "h"):
                    db.xgroup_create(key, group, id="0", mkstream=True)
            else:
                db.xadd(key, {"step": step})
            calls.settle()
        calls.advance(100)
        calls.settle()
        while calls.waiting:
            for key in ("a", "b"):
                db.xadd(key, {"last": 1})
            calls.settle()
        world.look(db)
        world.copy()
