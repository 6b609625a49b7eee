"""The handlers of the runs that are killed: a job's value says what its handler does at each delivery.

Each process that runs a handler writes evidence into a file of its own, so a child of a run does, too.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.client.kills.evidence import Evidence
from tests.client.kills.queues import EFFECTS, OFTEN, RETRY_AFTER_S

import tidelog

ISOLATED: Final = "isolated"  # the queue of the runs with processes of their own
TASKS: Final = "tasks"  # of those of asyncio
LIMIT_S: Final = 2.0  # of a run
OWN_LIMIT_S: Final = 0.4  # of the jobs that are put with one, which hang
HANG_S: Final = 600.0
LONG_S: Final = 0.3
MOST, OWN_MOST = 5, 3  # deliveries of a job; of one with a retry policy of its own
RETRY: Final = tidelog.RetryPolicy(max=MOST, base=0.05, cap=0.3)
OWN_RETRY: Final = tidelog.RetryPolicy(
    max=OWN_MOST, backoff="constant", base=0.1, never=(KeyError,)
)
OPTIONS: Final[dict[str, Any]] = {
    **{"retry_after": RETRY_AFTER_S, "max_deliveries": OFTEN, "retry": RETRY},
}
GAVE_UP, LATER = "enough", "later"
GROWTH_BYTES: Final = 40_000_000

# The acts of handlers of both kinds, and their shares. The others are for one kind.
BOTH: Final = {
    **{"done": 12, "long": 6, "ack": 2, "and": 2, "progress": 2, "extend": 1, "sleep": 2},
    **{"raise": 2, "never": 1, "again": 1, "give up": 1},
}
SHARES: Final = {
    ISOLATED: {**BOTH, "spin": 1, "exit": 1, "kill": 1, "fork": 1, "grow": 1, "leave": 1},
    TASKS: {**BOTH, "clean up": 2},
}
HANG: Final = ("sleep", "spin", "fork", "clean up")  # until the limit of time
FINISH: Final = ("done", "long", "ack", "and", "progress", "extend", "grow")
DIE: Final = ("exit", "kill")
# The error by which a delivery fails, as the store has it, by the act
ERRORS: Final = {
    **dict.fromkeys(HANG, "TimeLimitExceeded"),
    **dict.fromkeys(DIE, "ProcessDied"),
    **{"raise": "ValueError", "never": "KeyError", "leave": "SystemExit"},
    **{"again": LATER, "give up": GAVE_UP},
}
# Errors by which a delivery may fail whose server was killed meanwhile: what its handler did may be stored or not
OF_OWNER: Final = ("OutcomeUnknown", "Unreachable", "NotStored")


def planned(pick: random.Random, queue: str) -> list[str]:
    """The acts of a job's handler at its deliveries. The last one is that of all later deliveries, too."""
    shares = SHARES[queue]
    return pick.choices(list(shares), list(shares.values()), k=pick.choice((1, 2, 3)))


def act_of(value: Any, deliveries: int) -> str:
    """The act of the handler at a delivery."""
    acts: list[str] = value["acts"]
    return acts[min(deliveries, len(acts)) - 1]


@cache
def evidence_of(folder: str, peer: str, pid: int) -> Evidence:
    """That of the handlers and hooks of this process."""
    return Evidence(Path(folder) / f"{peer}-{pid}.facts")


def told(folder: str, peer: str) -> Evidence:
    return evidence_of(folder, peer, os.getpid())


def facts_of(job: Any) -> dict[str, Any]:
    """The delivery, for the evidence."""
    return {
        "queue": job._options.name,
        "id": job.origin or job.id,
        "name": job.value["name"],
        "count": job.deliveries,
        "worker": job.worker,
        "act": act_of(job.value, job.deliveries),
    }


def handle(folder: str, peer: str, job: Any) -> Any:
    """The handler of a run with processes of their own."""
    evidence, facts = told(folder, peer), facts_of(job)
    number = evidence.begin("handle", facts)
    try:
        found = ACTS[facts["act"]](job, partial_call(evidence, facts))
    except BaseException as error:
        evidence.end(number, ["raised", type(error).__name__])
        raise
    evidence.end(number, ["done"])
    return found


async def ahandle(folder: str, peer: str, job: Any) -> Any:
    """The handler of a run of asyncio."""
    evidence, facts = told(folder, peer), facts_of(job)
    number = evidence.begin("handle", facts)
    try:
        found = await AACTS[facts["act"]](job, partial_call(evidence, facts))
    except BaseException as error:
        evidence.end(number, ["raised", type(error).__name__])
        raise
    evidence.end(number, ["done"])
    return found


def partial_call(evidence: Evidence, facts: dict[str, Any]) -> Any:
    """Settles the job: `call(what, work)` notes both sides of the call."""

    def call(what: str, work: Callable[[], Any]) -> Any:
        number = evidence.begin(what, facts)
        found = work()
        if not isinstance(found, Awaitable):
            evidence.end(number, found)
            return found

        async def ended() -> Any:
            outcome = await found
            evidence.end(number, outcome)
            return outcome

        return ended()

    return call


def result_of(job: Any) -> str:
    return f"result of {job.value['name']}"


def on_done(folder: str, peer: str, job: Any, result: Any) -> None:
    """The acknowledgement of the job has landed."""
    told(folder, peer).note("acked", facts_of(job))


def on_retry(folder: str, peer: str, job: Any, error: BaseException, pause: float) -> None:
    """The failure of the job is recorded, and it is tried again."""
    told(folder, peer).note("retried", {**facts_of(job), "error": type(error).__name__})


def on_dead(folder: str, peer: str, dead: Any) -> None:
    """A run hears of a death."""
    told(folder, peer).note("died", {"queue": dead.queue, "name": dead.value["name"]})


# --- what a handler does


def long(job: Any, call: Any) -> Any:
    time.sleep(LONG_S)
    return result_of(job)


def acks(job: Any, call: Any) -> None:
    call("ack", lambda: job.ack(result=result_of(job)))


def joins(job: Any, call: Any) -> None:
    effects = job.store.queue(EFFECTS)
    first = job.origin or job.id
    call("and", lambda: job.done_and(effects.new([job._options.name, first])))


def tells(job: Any, call: Any) -> Any:
    for part in (0.25, 0.5, 1.0):
        job.progress(part, f"part {part}")
        time.sleep(LONG_S / 3)
    return result_of(job)


def extends(job: Any, call: Any) -> Any:
    job.extend(2 * LIMIT_S)
    time.sleep(1.2 * OWN_LIMIT_S)
    return result_of(job)


def spins(job: Any, call: Any) -> None:
    until = time.monotonic() + HANG_S
    while time.monotonic() < until:
        pass


def forks(job: Any, call: Any) -> None:
    subprocess.Popen(["sleep", str(HANG_S)])
    time.sleep(HANG_S)


kept: list[bytes] = []


def grows(job: Any, call: Any) -> Any:
    kept.append(b"x" * GROWTH_BYTES)
    return result_of(job)


def raises(kind: type[BaseException], *args: Any, **named: Any) -> Callable[[Any, Any], Any]:
    def act(job: Any, call: Any) -> None:
        raise kind(*args, **named)

    return act


ACTS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "done": lambda job, call: result_of(job),
    **{"long": long, "ack": acks, "and": joins, "progress": tells, "extend": extends},
    "sleep": lambda job, call: time.sleep(HANG_S),
    **{"spin": spins, "fork": forks, "grow": grows},
    "exit": lambda job, call: os._exit(3),
    "kill": lambda job, call: os.kill(os.getpid(), signal.SIGKILL),
    "leave": lambda job, call: sys.exit("no"),
    "raise": raises(ValueError, "no"),
    "never": raises(KeyError, "no"),
    "again": raises(tidelog.RetryJob, LATER, delay=0.05),
    "give up": raises(tidelog.GiveUp, GAVE_UP),
}


async def aresult(job: Any, call: Any) -> Any:
    return result_of(job)


async def along(job: Any, call: Any) -> Any:
    await asyncio.sleep(LONG_S)
    return result_of(job)


async def aacks(job: Any, call: Any) -> None:
    await call("ack", lambda: job.ack(result=result_of(job)))


async def ajoins(job: Any, call: Any) -> None:
    effects = job.store.queue(EFFECTS)
    first = job.origin or job.id
    await call("and", lambda: job.done_and(effects.new([job._options.name, first])))


async def atells(job: Any, call: Any) -> Any:
    for part in (0.25, 0.5, 1.0):
        await job.progress(part, f"part {part}")
        await asyncio.sleep(LONG_S / 3)
    return result_of(job)


async def aextends(job: Any, call: Any) -> Any:
    await job.extend(2 * LIMIT_S)
    await asyncio.sleep(1.2 * OWN_LIMIT_S)
    return result_of(job)


async def asleeps(job: Any, call: Any) -> None:
    await asyncio.sleep(HANG_S)


async def cleans_up(job: Any, call: Any) -> None:
    """It ends without an error when it is cancelled, and has failed all the same."""
    try:
        await asyncio.sleep(HANG_S)
    except asyncio.CancelledError:
        await asyncio.sleep(0)


def araises(act: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def raises(job: Any, call: Any) -> None:
        act(job, call)

    return raises


AACTS: Final[dict[str, Callable[[Any, Any], Awaitable[Any]]]] = {
    **{"done": aresult, "long": along, "ack": aacks, "and": ajoins, "progress": atells},
    **{"extend": aextends, "sleep": asleeps, "clean up": cleans_up},
    **{name: araises(ACTS[name]) for name in ("raise", "never", "again", "give up")},
}
