"""A putter or a run of workers, until it is killed, or asked to end.

`runner.py put|run|several|arun STORE NAME SEED POLICY EVIDENCE`. `run` lets processes of its own work; `several` has
processes of workers, each of which has such processes again; `arun` lets tasks work. acts.py has their handlers.
"""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import re
import signal
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final

from tests.client.kills import acts
from tests.client.kills.acts import ISOLATED, LIMIT_S, OF_OWNER, OPTIONS, TASKS
from tests.client.kills.apeer import show_tasks
from tests.client.kills.evidence import Evidence
from tests.client.kills.peer import DRAIN_S, PUT_TIMEOUT_S, Peer
from tests.client.kills.queues import TIMEOUT_S
from tests.client.kills.remains import left_behind

import tidelog
from tidelog.api.queue.running.plan import Recycled

AGAIN_S = 0.05  # a signal that came between two runs is sent again after this time
PACE_S = 0.12  # between two puts, so that the workers keep up
PAUSED = 0.01  # share of the puts after which the queue is paused
CANCELLED = 0.15  # share of the jobs that their putter cancels, most of which run by then
CANCEL_AFTER_S = (0.0, 0.05, 0.15, 0.15, 0.4)
DELAYS_S = (*[None] * 6, 0.05, 0.4)
TTLS_S = (*[None] * 6, 0.02, 30.0)
JOBS_MAX, MEMORY_MAX = 6, 100_000_000  # of a process, which another one replaces then
TASK_JOBS_MAX = 25  # of a run of asyncio, which begins again then


# Log lines about failures that handlers are to have, and that kills explain
_BY: Final = "|".join({*acts.ERRORS.values(), *OF_OWNER})
PLANNED: Final = re.compile(rf"failed at delivery \d+: ({_BY})|already \w+ when its block raised")


class Unplanned(logging.Filter):
    """Lets pass what nothing explains."""

    def filter(self, record: logging.LogRecord) -> bool:
        """See `logging.Filter`."""
        return not PLANNED.search(record.getMessage())


# Here, since the processes of a run import this module as their main one
_stderr = logging.StreamHandler()
_stderr.setLevel(logging.WARNING)
_stderr.addFilter(Unplanned())
logging.basicConfig(handlers=[_stderr])


class Putter(Peer):
    """Puts jobs, cancels some of them, and pauses their queues."""

    def put_for_ever(self) -> None:
        queues = {name: self.db.queue(name, **OPTIONS) for name in (ISOLATED, TASKS)}
        while not self.stop.is_set():
            queue = queues[self.pick.choice((ISOLATED, TASKS))]
            self.put_job(queue)
            if self.pick.random() < PAUSED:
                self.pause(queue)
            self.stop.wait(self.pick.uniform(0, 2 * PACE_S))
        for queue in queues.values():
            self.evidence.call("resume", queue.resume, queue=queue.name)
        self.end()

    def put_job(self, queue: Any) -> None:
        pick = self.pick
        plan = acts.planned(pick, queue.name)
        value = {"name": self.fresh(), "acts": plan}
        own = pick.random() < 0.3
        limited = any(act in acts.HANG for act in plan) or "extend" in plan
        options = {
            "delay": pick.choice(DELAYS_S),
            "ttl": pick.choice(TTLS_S),
            "time_limit": acts.OWN_LIMIT_S if limited and pick.random() < 0.8 else None,
            "retry": acts.OWN_RETRY if own else None,
        }
        facts = {**options, "retry": own, "queue": queue.name, "wait": PUT_TIMEOUT_S}
        put = partial(queue.put, value, timeout=PUT_TIMEOUT_S, **options)
        handle = self.evidence.call("put", put, str, **facts, values=[value["name"]], acts=plan)
        if handle is not None and pick.random() < CANCELLED:
            self.stop.wait(pick.choice(CANCEL_AFTER_S))
            self.cancel(queue, str(handle))


class Runner:
    """A process that runs a queue.

    told       its evidence
    handler    with the place for evidence of handlers
    stopped    it was asked to end
    """

    def __init__(self, role: str, root: Path, name: str, policy: str, evidence: Path) -> None:
        self.role, self.root, self.policy = role, root, policy
        self.told = Evidence(evidence)
        place = str(evidence.parent), evidence.stem
        self.handler = partial(acts.ahandle if role == "arun" else acts.handle, *place)
        hooks = (acts.on_done, acts.on_retry, acts.on_dead)
        self.run: dict[str, Any] = {hook.__name__: partial(hook, *place) for hook in hooks}
        self.run |= {"worker": name, "drain": DRAIN_S, "results": True, "time_limit": LIMIT_S}
        self.stopped, self._runs = False, True
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self.stopped = True
        if self._runs:  # it may have come as a run was about to look for signals
            threading.Timer(AGAIN_S, os.kill, (os.getpid(), signal.SIGTERM)).start()

    def work(self) -> None:
        """Let processes take jobs until a signal comes."""
        connect = partial(tidelog.connect, self.root, fsync=self.policy, timeout=TIMEOUT_S)
        db: Any = self.told.call("connect", connect)
        queue = db.queue(ISOLATED, **OPTIONS)
        self.run |= {"isolate": "process", "max_jobs": JOBS_MAX, "max_memory": MEMORY_MAX}
        self.run |= {"processes": 2, "workers": 1} if self.role == "several" else {"workers": 2}
        self.told.note("runs", {})
        while not self.stopped:
            try:
                queue.run(self.handler, **self.run)
                break
            except tidelog.NotStored as error:  # its first process did not start in time
                self.told.note("did not start", {"error": str(error)})
        self._runs = False
        self.told.call("close", lambda: db.close(drain=DRAIN_S), int, wait=DRAIN_S)

    async def awork(self) -> None:
        """Let tasks take jobs until a signal comes. A run that has done enough is begun again."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, show_tasks)
        faulthandler.register(signal.SIGUSR1, chain=True)

        async def connected() -> Any:
            return await tidelog.aconnect(self.root, fsync=self.policy, timeout=TIMEOUT_S)

        db: Any = await self.told.acall("connect", connected)
        queue = db.queue(TASKS, **OPTIONS)
        self.run |= {"max_jobs": TASK_JOBS_MAX, "workers": 3}
        self.told.note("runs", {})
        while not self.stopped and isinstance(await queue.arun(self.handler, **self.run), Recycled):
            self.told.note("recycled", {})
        self._runs = False
        await self.told.acall("close", lambda: db.aclose(drain=DRAIN_S), int, wait=DRAIN_S)

    def ended(self) -> None:
        """Tell what is left of it."""
        self.told.call("ended", partial(left_behind, root=self.root), list)


def main() -> None:
    role, root, name, seed, policy, evidence = sys.argv[1:]
    faulthandler.register(signal.SIGUSR1)  # the test asks one that hangs where it is
    if role == "put":
        putter = Putter(Path(root), name, int(seed), policy, Path(evidence))
        signal.signal(signal.SIGTERM, lambda *_: putter.stop.set())
        putter.put_for_ever()
        return
    runner = Runner(role, Path(root), name, policy, Path(evidence))
    if role == "arun":
        asyncio.run(runner.awork())
    else:
        runner.work()
    runner.ended()


if __name__ == "__main__":
    main()
