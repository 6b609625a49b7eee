"""A putter or a worker of the shared queues, until it is killed, or asked to end.

`peer.py put|work|awork STORE NAME SEED POLICY EVIDENCE`. `awork` is a worker of asyncio: `apeer.py`.
"""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.client.kills.evidence import CUT, UNKNOWN, Evidence
from tests.client.kills.queues import (
    EFFECTS,
    HELD_IDS,
    KINDS,
    PAUSED,
    PAUSES_S,
    PLANS,
    RETRY_AFTER_S,
    TIMEOUT_S,
    Kind,
)
from tests.client.kills.remains import left_behind

import tidelog
import tidelog.client.link  # the first call does not count the time of the import
import tidelog.client.store

PUT_TIMEOUT_S = 0.5
RESULT_TIMEOUT_S = 0.5
PACE_S = 0.015  # between two puts, so that the workers keep up
# The end of a block: a finished job of a batch is acknowledged by a later call, and an error is swallowed.
UNWRITTEN: Callable[[Any], str] = lambda _: UNKNOWN  # noqa: E731
BLOCKS = ("with", "raise")
# The error that leaves the block of a job that is to be tried again.
AGAIN = (ValueError, ValueError("again"), None)
DEDUP_S = 0.1  # two putters use the same dedup ID in each span of this length
DRAIN_S = 5.0  # a peer that ends waits so long for its jobs


class Peer:
    """One process, connected."""

    def __init__(self, root: Path, name: str, seed: int, policy: str, evidence: Path) -> None:
        self.root, self.name, self.pick = root, name, random.Random(seed)
        self.evidence = Evidence(evidence)
        self.stop = threading.Event()
        connect = lambda: tidelog.connect(root, fsync=policy, timeout=TIMEOUT_S)  # noqa: E731
        db = self.evidence.call("connect", connect)
        assert db is not None
        self.db: Any = db
        self.number = 0
        self.consumers: dict[str, Any] = {}  # the one of each thread

    def end(self) -> None:
        """Disconnect, as a program does that was asked to end, and tell what is left of it."""
        self.evidence.call("close", lambda: self.db.close(drain=DRAIN_S), int, wait=DRAIN_S)
        self.evidence.call("ended", partial(left_behind, root=self.root), list)

    # --- putting

    def put_for_ever(self) -> None:
        for plan in PLANS:
            self.evidence.call(
                "schedule",
                partial(self.db.schedule, plan.name, queue="ticks", value=plan.name, **plan.given),
                lambda made: [made.name, made.next_at.timestamp()],
            )
        queues = {kind.name: self.db.queue(kind.name, **kind.options_of()) for kind in KINDS}
        shares = [kind.share for kind in KINDS]
        delayed: list[tuple[str, str]] = []
        while not self.stop.is_set():
            (kind,) = self.pick.choices(KINDS, shares)
            self.put_one(queues[kind.name], kind, delayed)
            if delayed and self.pick.random() < 0.1:
                self.change(queues, *delayed.pop(self.pick.randrange(len(delayed))))
            del delayed[:-20]
            if self.pick.random() < 0.02:
                self.pause(queues[PAUSED])
            self.stop.wait(self.pick.uniform(0, 2 * PACE_S))
        self.end()

    def fresh(self) -> str:
        self.number += 1
        return f"{self.name}-{self.number}"

    def put_one(self, queue: Any, kind: Kind, delayed: list[tuple[str, str]]) -> None:
        pick, call = self.pick, self.evidence.call
        delay, ttl = pick.choice(kind.delays), pick.choice(kind.ttls)
        place = {"priority": pick.choice(kind.priorities), "key": pick.choice(kind.keys)}
        facts: dict[str, Any] = {
            "queue": kind.name,
            "delay": delay,
            "ttl": ttl,
            "wait": PUT_TIMEOUT_S,
            **place,
        }
        by_clock = delay is not None and pick.random() < 0.5

        def options() -> dict[str, Any]:
            """Made when the call has begun: `at` is then at least `delay` after its begin."""
            times: dict[str, Any] = {"delay": delay}
            if by_clock and delay is not None:
                times = {"at": datetime.now(UTC) + timedelta(seconds=delay)}
            return {"ttl": ttl, "timeout": PUT_TIMEOUT_S, **times, **place}

        if pick.random() < 0.15:
            values = [self.fresh() for _ in range(pick.randrange(1, 6))]
            call("many", lambda: queue.put_many(values, **options()), int, **facts, values=values)
            return
        if pick.random() < 0.1:
            once = f"once-{int(time.monotonic() / DEDUP_S)}"
            put = lambda: queue.put(once, dedup_id=once, timeout=PUT_TIMEOUT_S)  # noqa: E731
            call("put", put, str, queue=kind.name, wait=PUT_TIMEOUT_S, values=[once])
            return
        value = self.fresh()
        if (mode := pick.choice(kind.dedups)) is not None:
            id = f"held-{pick.randrange(HELD_IDS)}"
            held = lambda: queue.put(value, dedup_id=id, dedup=mode, **options())  # noqa: E731
            call("put", held, str, **facts, values=[value], dedup=mode, dedup_id=id)
            return
        handle = call("put", lambda: queue.put(value, **options()), str, **facts, values=[value])
        if handle is None:
            return
        if pick.random() < kind.cancels:
            self.stop.wait(pick.choice((0.0, 0.01, 0.1)))
            self.cancel(queue, str(handle))
        elif delay is not None:
            delayed.append((kind.name, str(handle)))
        elif pick.random() < 0.05:
            facts = {"queue": kind.name, "id": str(handle), "wait": RESULT_TIMEOUT_S}
            call("wait", lambda: ended(handle), list, **facts)

    def change(self, queues: dict[str, Any], name: str, id: str) -> None:
        """Cancel or move a job that was put with a delay, and may run by now."""
        if self.pick.random() < 0.5:
            return self.cancel(queues[name], id)
        delay = self.pick.choice((0.0, 0.2, 1.0))
        move = lambda: queues[name].move(id, delay=delay)  # noqa: E731
        self.evidence.call("move", move, queue=name, id=id, delay=delay)

    def cancel(self, queue: Any, id: str) -> None:
        """Cancel a job, whatever it does now."""
        self.evidence.call("cancel", lambda: queue.cancel(id), queue=queue.name, id=id)

    def pause(self, queue: Any) -> None:
        """Pause a queue for a while. The other putters do it, too, so one that was killed meanwhile does no harm."""
        self.evidence.call("pause", queue.pause, queue=queue.name)
        self.stop.wait(self.pick.choice(PAUSES_S))
        self.evidence.call("resume", queue.resume, queue=queue.name)

    # --- working

    def work_for_ever(self) -> None:
        threads = [
            threading.Thread(
                target=self.guarded,
                args=(self.work, kind, f"{kind.name}-{number}", self.pick.getrandbits(32)),
                name=f"{kind.name}-{number}",
            )
            for kind in KINDS
            for number in range(kind.threads)
        ]
        for thread in threads:
            thread.start()
        self.stop.wait()
        for thread in threads:
            while thread.is_alive():
                # again, since the thread may have begun with another one meanwhile
                if (consumer := self.consumers.get(thread.name)) is not None:
                    consumer.close()
                thread.join(0.05)
        self.end()

    def guarded(self, work: Callable[..., None], *args: Any) -> None:
        """A thread that raises ends the process, which the test notices."""
        try:
            work(*args)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def work(self, kind: Kind, thread: str, seed: int) -> None:
        pick, worker = random.Random(seed), f"{self.name}-{thread}"
        queue = self.db.queue(kind.name, **kind.options_of())
        effects = self.db.queue(EFFECTS)
        while not self.stop.is_set():
            block = pick.choice(kind.blocks)
            consumer = queue.consume(worker, batch=kind.batch, block=block)
            self.consumers[thread] = consumer
            facts = {"queue": kind.name, "worker": worker, "wait": block}
            while True:
                number = self.evidence.number()
                take = partial(next, consumer, None)
                job: Any = self.evidence.call("take", take, self.came, number=number, **facts)
                if job is None:
                    break
                time.sleep(pick.uniform(0, kind.work_s))
                self.finish(job, pick.choice(kind.ends), effects, number)
            time.sleep(0.01 if block == 0 else 0)

    def came(self, job: Any) -> Any:
        """The outcome of a wait. While this process ends, its consumers are closed."""
        return CUT if job is None and self.stop.is_set() else shown(job)

    def finish(self, job: Any, how: str, effects: Any, number: int) -> None:
        if how == "extend":
            self.evidence.call("extend", lambda: job.extend(2 * RETRY_AFTER_S))
            how = "ack"
        ways: dict[str, Callable[[], bool]] = {
            "ack": job.ack,
            "result": lambda: job.ack(result=f"result of {job.value}"),
            "nack": lambda: job.nack("again", delay=0.02),
            "release": job.release,
            "fail": lambda: job.fail("no"),
            "with": lambda: job.__exit__(None, None, None),
            "raise": lambda: job.__exit__(*AGAIN),
            "and": lambda: job.done_and(effects.new([job._options.name, job.id])),
        }
        self.evidence.call(how, ways[how], UNWRITTEN if how in BLOCKS else bool, take=number)


def shown(job: Any) -> dict[str, Any] | None:
    """A job that was delivered, as `evidence.Delivery` has it."""
    if job is None:
        return None
    return {
        "id": job.id,
        "first": job.origin or job.id,
        "value": job.value,
        "headers": job.headers,
        "count": job.deliveries,
        "priority": job.priority,
        "key": job.key,
    }


def ended(handle: Any) -> list[Any]:
    """How a job has ended, as far as its caller learns in time."""
    try:
        return ["result", handle.result(RESULT_TIMEOUT_S)]
    except tidelog.JobFailed as failed:
        return ["failed", failed.reason]
    except tidelog.NoResult:
        return ["none"]
    except tidelog.ResultLate:
        return ["late"]


def main() -> None:
    role, root, name, seed, policy, evidence = sys.argv[1:]
    if role == "awork":
        # here, since it needs this module
        from tests.client.kills.apeer import work_for_ever  # noqa: PLC0415

        work_for_ever(Path(root), name, int(seed), policy, Path(evidence))
        return
    faulthandler.register(signal.SIGUSR1)  # the test asks one that hangs where it is
    peer = Peer(Path(root), name, int(seed), policy, Path(evidence))
    signal.signal(signal.SIGTERM, lambda *_: peer.stop.set())
    if role == "put":
        peer.put_for_ever()
    else:
        peer.work_for_ever()


if __name__ == "__main__":
    main()
