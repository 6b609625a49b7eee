"""The conditions of a guarded run: everything that differs between two runs by itself is set by the run.

    the clock             `testing.Clock`, moved by the workload
    uuid, incarnations    drawn from the workload's seed: the program takes them from `secrets`
    jitter of retries     `random`, seeded
    threads               no file is prepared in the background; the threads that act by the system's clock sleep
    the collector         off: when it finds a dropped delivery depends on how many objects the program has made

The workload calls for what those threads would do: `World.sync`, `Store.checkpoint`, `World.relieve`. This module is
the only one of the guard that reaches into the program. Where an attribute or a name moves, the line here moves with
it.
"""

from __future__ import annotations

import gc
import logging
import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast
from unittest import mock

from tests.guard.files import without_preparation
from tests.until import until

import tidelog
from tidelog import testing
from tidelog.aof import commit
from tidelog.client import keeper
from tidelog.disk.real import RealDisk
from tidelog.store import checkpoints

START: Final = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)  # 1,700,000,000,000 unix ms
NEVER_S: Final = 1e6


class QuietDisk(RealDisk):
    """The real disk; what is prepared ahead is prepared at once and not in a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.background = False


@contextmanager
def ruled(seed: int) -> Iterator[None]:
    """Within the block, all that the program draws at random comes from `seed`, and no thread acts by itself."""
    drawn = random.Random(seed)
    before = random.getstate()
    random.seed(seed)
    gc.collect()
    gc.disable()
    try:
        with ExitStack() as stack:
            for target, name, value in (
                (secrets, "token_bytes", drawn.randbytes),
                (secrets, "randbits", drawn.getrandbits),
                # what recovery has to say to people
                (logging.getLogger("tidelog"), "disabled", True),
                # and queues, of jobs that fail
                (logging.getLogger("tidelog.queue"), "disabled", True),
                (commit, "EVERY_S", NEVER_S),  # the thread of `everysec`
                # the thread of checkpoints: it does what it is asked
                (checkpoints, "LOOK_S", NEVER_S),
                # the thread that keeps the jobs of a client of a shared store
                (keeper, "_run", lambda mine, bell: None),
            ):
                stack.enter_context(mock.patch.object(target, name, value))
            yield
    finally:
        gc.enable()
        random.setstate(before)


class World:
    """One run of a workload.

    root      directory of the store
    r         the workload's own draws
    replies   what the program answered, as text, in order
    states    digests, as text, in order
    copies    directories that hold the store as a killed process would leave it
    """

    def __init__(self, name: str, seed: int, place: Path) -> None:
        self.name = name
        self.seed = seed
        self.place = place
        self.root = place / "store"
        self.r = random.Random(seed)
        self.clock = testing.Clock(START)
        self.replies: list[str] = []
        self.states: list[str] = []
        self.copies: list[Path] = []

    def options(self, **given: Any) -> dict[str, Any]:
        """Options of an open; checkpoints come when the workload calls for them."""
        fixed = {"clock": self.clock, "disk": QuietDisk(), "save": (), "checkpoint_bytes": 0}
        return {**fixed, **given}

    def open(self, **given: Any) -> tidelog.Store:
        return tidelog.open(self.root, **self.options(**given))

    @property
    def now(self) -> int:
        """Unix ms."""
        return self.clock.time_ns() // 1_000_000

    def reach(self, now: int) -> None:
        """Move the clock on to `now`, unix ms."""
        if now > self.now:
            self.clock.advance((now - self.now) / 1000)

    def told(self, about: str, answer: object) -> None:
        self.replies.append(f"{about} -> {shown(answer)}")

    def look(self, db: tidelog.Store) -> None:
        """Note the digest of the state, and the highest LSN."""
        self.states.append(f"{db.digest()} through LSN {db.info()['written_lsn']}")

    def sync(self, db: Any) -> None:
        """Do the work of the `everysec` thread."""
        db.barrier("fsynced")

    def relieve(self, db: Any) -> None:
        """Do the work of the checkpoint thread under a memory budget."""
        residence = db._core.checkpoints.residence
        residence.next_survey = 0.0
        residence.relieve(db._core)

    def copy(self) -> None:
        """Keep the files as they are at this moment, as if the process were killed."""
        target = self.place / f"copy{len(self.copies)}"
        self.copies.append(copied(self.root, target))


class Steps:
    """Threads whose calls block, made to act one after the other.

    A thread that is served waits for the disk only while `settling` is open: a sync of its own would otherwise run
    beside the writer's next unit, and that unit would or would not be gathered for the next frame. After the clock
    was moved, every blocked thread looks at it once, in the order in which `advance` is told of them.
    """

    def __init__(self, world: World, db: tidelog.Store) -> None:
        self.world = world
        self.settling = threading.Event()
        self._acting = threading.get_ident()
        self._gates: dict[int, threading.Semaphore] = {}
        self._looks: dict[int, int] = {}
        self._looking = 0
        self._advancing = False
        self._at_gate: set[int] = set()
        self._core = core = cast(Any, db)._core
        durability = core.durability
        self._fulfil, self._wake = durability.fulfil, core.wake
        durability.fulfil, core.wake = self._fulfil_in_turn, self._look_in_turn

    def entered(self) -> int:
        """The calling thread is about to make a call that blocks."""
        thread = threading.get_ident()
        self._gates[thread], self._looks[thread] = threading.Semaphore(0), 0
        return thread

    def advance(self, seconds: float, threads: list[int]) -> None:
        """Move the clock. `threads`: those that are blocked."""
        self._advancing = True
        before = {thread: self._looks[thread] for thread in threads}
        self.world.clock.advance(seconds)
        for thread in threads:
            self._gates[thread].release()
            until(lambda: self._looks[thread] > before[thread], "a blocked thread does not look")
        while True:  # what one is given may be claimable later, which nudges others to look again
            until(self.quiet, "a thread that was nudged does not look")
            again = [thread for thread in threads if thread in self._at_gate]
            if not again:
                break
            looks = self._looks[again[0]]
            self._gates[again[0]].release()
            until(lambda: self._looks[again[0]] > looks, "a nudged thread does not look")
        self._advancing = False
        for thread in threads:  # one that was served by the look of another passed without
            self._gates[thread].acquire(blocking=False)

    def quiet(self) -> bool:
        """Whether every thread sleeps or stands at its gate. Seen twice, as it is between the two for a moment."""
        if not self._is_quiet():
            return False
        time.sleep(0.0005)
        return self._is_quiet()

    def _is_quiet(self) -> bool:
        nudged = any(waiter.owner._open for waiter in self._core.waiting.waiters())
        return not nudged and not self._looking

    def free(self) -> None:
        """Let all threads go on as they like: the workload is over, or failed."""
        self._advancing = False
        self.settling.set()
        for gate in list(self._gates.values()):
            gate.release()

    def _look_in_turn(self, waiter: Any) -> None:
        thread = threading.get_ident()
        if self._advancing and not waiter.owner.done:
            self._at_gate.add(thread)
            self._gates[thread].acquire()
            self._at_gate.discard(thread)
        self._looking += 1
        try:
            self._wake(waiter)
        finally:
            self._looking -= 1
            self._looks[thread] += 1

    def _fulfil_in_turn(self, claim: Any, level: int) -> None:
        if threading.get_ident() != self._acting:
            self.settling.wait()
        self._fulfil(claim, level)


def clients(serving: Any) -> tuple[int, int]:
    """How many clients a server has, and how many of them wait for their reply."""
    return len(serving.server.sessions), serving.server.blocked


def copied(source: Path, target: Path) -> Path:
    """A copy of a store's directory, without what belongs to a process."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and path.name not in ("LOCK", "lock.mdb", "spare"):
            made = target / path.relative_to(source)
            made.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            if path.suffix == ".aof" and path != max(path.parent.glob("*.aof")):
                data = without_preparation(data)
            made.write_bytes(data)
    return target


def shown(answer: object) -> str:
    """An answer as text that says its types. Errors of Redis with their line; of others the class alone, as their
    texts are prose."""
    if isinstance(answer, tidelog.ResponseError | tidelog.WatchError | tidelog.ExecAbortError):
        return f"{type(answer).__name__}: {answer}"
    if isinstance(answer, BaseException):
        return type(answer).__name__
    if isinstance(answer, tidelog.IdRange):
        return f"ids {shown(list(answer))}"
    if isinstance(answer, dict):
        return "{" + ", ".join(f"{shown(k)}: {shown(v)}" for k, v in answer.items()) + "}"
    if isinstance(answer, list | tuple):
        inner = ", ".join(map(shown, answer))
        return f"[{inner}]" if isinstance(answer, list) else f"({inner})"
    if answer is None or isinstance(answer, bytes | str | int | float):
        return repr(answer)
    if isinstance(answer, datetime):
        return answer.isoformat()
    raise TypeError(f"{answer!r} would not read the same in every run")
