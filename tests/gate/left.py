"""Processes that a test has left running: they are found by a mark, ended by their number, and told.

A test that fails may not come to the line that ends its processes. They live on, take the time of the tests after it,
and hold its ports and mounts. So each test has a mark in its environment, which its processes inherit, however deep and
also if their parent is gone. A process without any environment of its own is found as a child of the test's process.

They are looked for only after a test that failed, after a worker that died, and once after the whole run: the others
pay for the mark alone. Processes that a fixture of more than one test has begun have a mark of their own and stay.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

MARK: Final = (
    "STARTED_BY_TEST"  # a word for each run and test that it is part of, the innermost last
)
TICKS: Final = os.sysconf("SC_CLK_TCK")
# Helpers of the interpreter, begun by the first test that needs one and used by all after it.
SHARED: Final = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
PATIENCE_S: Final = 10.0
WIDE: Final = "several"  # in place of the test


class Process(NamedTuple):
    """A process: `begun` in seconds since boot; `marks` are those it was begun with."""

    pid: int
    parent: int
    begun: float
    marks: tuple[str, ...]
    command: str

    def __str__(self) -> str:
        return f"{self.pid} {self.command}"

    def shared(self) -> bool:
        return any(name in self.command for name in SHARED)


def process(pid: int) -> Process:
    """Raises OSError if there is none, or it is another user's."""
    room = Path(f"/proc/{pid}")
    fields = (room / "stat").read_text().rpartition(")")[2].split()
    marks: tuple[str, ...] = ()
    for each in (room / "environ").read_bytes().split(b"\0"):
        name, _, value = each.partition(b"=")
        if name == MARK.encode():
            marks = tuple(value.decode(errors="replace").split())
    command = (room / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return Process(pid, int(fields[1]), int(fields[19]) / TICKS, marks, command)


def processes() -> dict[int, Process]:
    """All that run and may be looked at."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                found[int(name)] = process(int(name))
    return found


def children() -> set[int]:
    """Those of this process."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found.update(map(int, path.read_text().split()))
    return found


def end(left: Iterable[Process]) -> None:
    """Kill them, and return when they have ended: what they held is free then."""
    with ExitStack() as opened:
        waiting = []
        for each in left:
            with suppress(OSError):
                waiting.append(os.pidfd_open(each.pid))
                opened.callback(os.close, waiting[-1])
                signal.pidfd_send_signal(waiting[-1], signal.SIGKILL)
        # One that waits for a broken device ends when that does.
        deadline = time.monotonic() + PATIENCE_S
        for fd in waiting:
            select.select([fd], [], [], max(0.0, deadline - time.monotonic()))


class Net:
    """The part of a process that runs tests.

    place   the mark of this process; a test adds its name
    kept    children that serve several tests
    """

    def __init__(self, run: str) -> None:
        self.outer = os.environ.get(MARK, "")
        self.place = f"{run}.{os.environ.get('PYTEST_XDIST_WORKER', 'main')}."
        self.test = ""
        self.begun = 0.0
        self.failed = False
        self.kept: set[int] = set()

    def mark(self, name: str) -> str:
        mark = self.place + "_".join(name.split())
        os.environ[MARK] = f"{self.outer} {mark}"
        return mark

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.begun = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.test = self.mark(item.nodeid)
        self.failed = False

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        if fixturedef.scope == "function":
            return (yield)
        before, old = os.environ[MARK], children()
        self.mark(WIDE)
        try:
            return (yield)
        finally:
            self.kept |= children() - old
            os.environ[MARK] = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        report = yield
        self.failed |= report.failed
        if report.when == "teardown" and self.failed:
            left = self.left()
            end(left)
            if left:
                lines = "\n".join(map(str, left))
                report.sections.append(("Left running, and ended at teardown", lines))
        return report

    def left(self) -> list[Process]:
        """The processes that the last test has begun and not ended."""
        there = processes()
        return [each for each in there.values() if self._left(each, there)]

    def _left(self, each: Process, there: dict[int, Process]) -> bool:
        if each.shared():
            return False
        if self.test in each.marks:
            return True
        if each.begun < self.begun - 1 / TICKS:
            return False
        while each.pid != os.getpid():
            if self.place + WIDE in each.marks or each.pid in self.kept or each.parent not in there:
                return False
            each = there[each.parent]
        return True


class LastNet:
    """The part of the one process of a run, or of the controller of xdist: for workers that died, and for the end."""

    def __init__(self, run: str) -> None:
        self.run = run
        self.told: list[Process] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error is not None:
            self._end(f"{self.run}.{node.gateway.id}.")

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        self._end(self.run)

    def _end(self, start: str) -> None:
        left = [
            each
            for each in processes().values()
            if any(mark.startswith(start) for mark in each.marks)
        ]
        end(left)
        self.told += [
            each for each in left if not each.marks[-1].endswith("." + WIDE) and not each.shared()
        ]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for each in self.told:
            terminalreporter.line(f"left running, and ended: {each}, {each.marks[-1]}")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        run = os.environ[MARK].split()[-1]
    else:
        run = f"{os.getpid()}-{time.time_ns()}"
        os.environ[MARK] = f"{os.environ.get(MARK, '')} {run}"
        config.pluginmanager.register(LastNet(run))
    config.pluginmanager.register(Net(run))
