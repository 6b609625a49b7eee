"""Evidence: what a process knows, in a file of its own outside the store. Each line is one write(2), so a process that
is killed leaves whole lines.

Each call of the queue has two lines, before it and after it, with times of the system's monotonic clock, which all
processes share. So the time at which the store did something lies between the two.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

import tidelog

T = TypeVar("T")
NS: Final = 1_000_000_000
SLACK_NS: Final = 10_000_000  # times are stored in whole milliseconds
UNKNOWN: Final = "unknown"  # the outcome of a call that raised OutcomeUnknown
FULL: Final = "full"  # of a put that raised QueueFull
CUT: Final = "cut"  # of a wait for a job that its caller ended: perhaps nobody was asked
DONE: Final = ("ack", "result", "and", "with")
CLOSING: Final = (*DONE, "nack", "raise", "release", "fail")


class Evidence:
    """Writes the lines of this process. Many threads may use it."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._numbers = count(1)

    def _tell(self, **facts: Any) -> None:
        os.write(self._fd, json.dumps(facts).encode() + b"\n")

    def number(self) -> int:
        """A number for a call."""
        return next(self._numbers)

    def call(
        self,
        what: str,
        work: Callable[[], T],
        show: Callable[[T], Any] = bool,
        *,
        number: int | None = None,
        **facts: Any,
    ) -> T | None:
        """Make a call between two lines. None if its outcome is unknown, or the queue is full.

        show    the outcome for the second line
        facts   for the first one
        """
        number = self.begin(what, facts, number)
        try:
            found = work()
        except tidelog.OutcomeUnknown:
            self.end(number, UNKNOWN)
            return None
        except tidelog.QueueFull:
            self.end(number, FULL)
            return None
        self.end(number, show(found))
        return found

    def note(self, what: str, facts: dict[str, Any]) -> None:
        """Note what has happened, as a call that has ended."""
        self.end(self.begin(what, facts), True)

    async def acall(
        self,
        what: str,
        work: Callable[[], Awaitable[T]],
        show: Callable[[T], Any] = bool,
        *,
        number: int | None = None,
        patience: float | None = None,
        cancelled: Any = UNKNOWN,
        **facts: Any,
    ) -> T | None:
        """As `call`, awaited. After `patience` seconds the call is cancelled, and so it is with its task.

        Before Python 3.12, `wait_for` loses the cancellation of a task whose call has just ended. It is not lost here.

        cancelled   the outcome of a call that was cancelled
        """
        number = self.begin(what, facts, number)
        try:
            found = await asyncio.wait_for(work(), patience)
        except tidelog.OutcomeUnknown:
            self.end(number, UNKNOWN)
            return None
        except tidelog.QueueFull:
            self.end(number, FULL)
            return None
        except TimeoutError:
            self.end(number, cancelled)
            return None
        except asyncio.CancelledError:
            self.end(number, cancelled)
            raise
        self.end(number, show(found))
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return found

    def begin(self, what: str, facts: dict[str, Any], number: int | None = None) -> int:
        """The first line of a call. Returns its number."""
        if number is None:
            number = self.number()
        thread = threading.current_thread().name
        self._tell(number=number, thread=thread, what=what, facts=facts, ns=time.monotonic_ns())
        return number

    def end(self, number: int, outcome: Any) -> None:
        """The second line."""
        self._tell(number=number, ns=time.monotonic_ns(), outcome=outcome)


@dataclass
class Call:
    """A call that a process made. `end` and `outcome` are None if the process was killed meanwhile."""

    process: str
    number: int
    thread: str
    what: str
    facts: dict[str, Any]
    begin: int
    end: int | None = None
    outcome: Any = None

    @property
    def is_doubtful(self) -> bool:
        """Whether it may have happened or not."""
        return self.end is None or self.outcome == UNKNOWN


@dataclass
class Reader:
    """Follows the file of one process."""

    path: Path
    calls: dict[int, Call] = field(default_factory=dict)
    open: dict[int, Call] = field(default_factory=dict)
    offset: int = 0

    def read(self) -> None:
        """Take the lines that are new."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:
            return  # the process has not begun yet
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            told = json.loads(line)
            number = told["number"]
            if "what" in told:
                made = Call(
                    *(self.path.stem, number, told["thread"], told["what"], told["facts"]),
                    told["ns"],
                )
                self.calls[number] = self.open[number] = made
            else:
                call = self.open.pop(number)
                call.end, call.outcome = told["ns"], told["outcome"]


@dataclass(frozen=True)
class Delivery:
    """A job that a worker got, and the call that ended it.

    first       the ID that `put` returned
    process, thread     of the worker
    begin, end  before and after the call that took it
    closing     the last call that may have ended it
    """

    queue: str
    id: str
    first: str
    value: Any
    headers: dict[str, str]
    count: int
    priority: int
    key: str | None
    worker: str
    process: str
    thread: str
    begin: int
    end: int
    closing: Call | None

    @property
    def job(self) -> tuple[str, str]:
        """The job, over all queues."""
        return self.queue, self.id


@dataclass
class Left:
    """Jobs that were in the store at the end, by the name of the queue.

    taken       jobs that the test took and acknowledged: (ID, first ID, value, headers)
    dead        (ID, value, reason)
    later       delayed jobs: (ID, value)
    effects     values of the jobs that `done_and` put
    results     first ID -> result
    ticks       name of a schedule -> number of its ticks
    """

    taken: dict[str, list[tuple[str, str, Any, dict[str, str]]]] = field(default_factory=dict)
    dead: dict[str, list[tuple[str, Any, str]]] = field(default_factory=dict)
    later: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    effects: list[Any] = field(default_factory=list)
    results: dict[tuple[str, str], Any] = field(default_factory=dict)
    ticks: dict[str, int] = field(default_factory=dict)


@dataclass
class Story:
    """All evidence of a run.

    killed          process -> when it was gone at the latest, ns
    ended           those of them that were asked to end, and did so in order
    owners_killed   when, ns; those that were asked to end, too
    children_killed     when, ns: processes of runs
    frozen          (process, from, to), ns
    owners_frozen   (from, to), ns
    started         process -> when it was started, ns
    slowness        how much slower than usual the machine was at its busiest, as far as it mattered
    wall_ns         what to add to a monotonic time for the time since 1970: the least, the most
    """

    calls: list[Call]
    killed: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    owners_killed: list[int] = field(default_factory=list)
    children_killed: list[int] = field(default_factory=list)
    frozen: list[tuple[str, int, int]] = field(default_factory=list)
    owners_frozen: list[tuple[int, int]] = field(default_factory=list)
    started: dict[str, int] = field(default_factory=dict)
    slowness: float = 1.0
    wall_ns: tuple[int, int] | None = None
    left: Left = field(default_factory=Left)

    def of(self, *what: str) -> Iterator[Call]:
        """The calls of some kinds."""
        return (call for call in self.calls if call.what in what)

    def puts(self) -> Iterator[tuple[Call, Any]]:
        """(call, value) of every put, whether it was stored or not."""
        for call in self.of("put", "many"):
            for value in call.facts["values"]:
                yield call, value

    def deliveries(self) -> list[Delivery]:
        """Every job that a worker got."""
        closings = {(call.process, call.facts["take"]): call for call in self.of(*CLOSING)}
        return [
            Delivery(
                call.facts["queue"],
                **call.outcome,
                worker=call.facts["worker"],
                process=call.process,
                thread=call.thread,
                begin=call.begin,
                end=call.end,
                closing=closings.get((call.process, call.number)),
            )
            for call in self.of("take")
            if call.end is not None and isinstance(call.outcome, dict)
        ]
