"""Crashes: a program is recorded once, and what a crash at any of its operations may leave is given to a check.

The recorder (crash/record.py) notes each operation of the store with the line of the program that caused it. A state is
what the end of the process, or a power cut, leaves after one operation (crash/states.py). The check gets a store opened
in that state, and everything that the program had told until then. It may go on working, and crash again.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.crash.commits import commits_noted
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import STORE, Files
from tidelog.crash.states import Cut, State, cut_at, cuts, fingerprint
from tidelog.crash.trace import Operation, SyncBegin, Trace, Tree
from tidelog.disk.interface import Disk
from tidelog.store.aopening import aopen_store
from tidelog.store.errors import DataError
from tidelog.store.opening import open_store
from tidelog.testing.limits import Hung, Limit, one_process
from tidelog.testing.lines import Line, line_of

KILL: Final = "kill"
POWER: Final = "power"
CRASHES: Final = (KILL, POWER)
POLICIES: Final = ("always", "everysec", "no")
TMPFS: Final = "/dev/shm"
SEGMENT_BYTES: Final = 1 << 16  # a state is copied whole, so files are small
DRAWN: Final = 4  # power cuts at each operation
AGAIN: Final = 0.2  # the share of the states in which the check crashes too
AGAIN_STATES: Final = 3  # of each such check
SHOWN: Final = 5  # lines of a state
SECONDS: Final = 60.0  # for each run of a program

# Life or check: called with the store, and what is told. It may be a coroutine function.
Program = Callable[[Any, "Told"], object]


class Told:
    """Remembers what a program told the world, which survives every crash. Call it with a value to tell it.

    Attributes:
        values: All that was told, in order.
        count: How many values that are.
    """

    def __init__(
        self, values: Collection[Any] = (), promise: Callable[[int], object] = lambda count: None
    ) -> None:
        self.values: list[Any] = list(values)
        self._promise = promise

    @property
    def count(self) -> int:
        """The number of values that were told."""
        return len(self.values)

    def __call__(self, value: object = None) -> None:
        self.values.append(value)
        self._promise(len(self.values))

    def __contains__(self, value: object) -> bool:
        return value in self.values

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __len__(self) -> int:
        return len(self.values)


class CrashFailure(AssertionError):
    """The check failed in a state that a crash may leave, or without any crash. The text says after which line.

    Also raised if the program or its check does not end in time. Then the text says where it stands.
    """


class CrashWarning(UserWarning):
    """The program told nothing, so nothing that it did can be lost."""


class _Record(NamedTuple):
    """A recorded program.

    lines   for each operation the line of the program that caused it; None before the first one
    told    everything that was told, also before it began
    """

    trace: Trace
    lines: list[Line | None]
    told: list[Any]


class _Case(NamedTuple):
    """A state to be tried: after `time` operations, by the end of the process or a power cut."""

    time: int
    state: State
    power: bool


class _Noted(list[Operation]):
    """The operations of a recorder, with the lines that caused them."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line | None] = []

    def append(self, operation: Operation) -> None:
        before = self.lines[-1] if self.lines else None
        super().append(operation)
        # An operation of a thread of tidelog belongs to the line that ran last.
        self.lines.append(line_of(sys._getframe(1)) or before)


class Crashes:
    """Crashes a program at every operation of its store. The fixture `tidelog_crash` is one.

    Args:
        seed: Of the states that are tried.
        states: How many of them at most.
        seconds: The time for each run of a program or its check. It is a limit only in the main thread.

    Attributes:
        seed: As above.
        there: How many states there were in the last call.
        tried: How many of them were tried, second crashes included.
    """

    def __init__(self, seed: int, states: int, seconds: float = SECONDS) -> None:
        self.seed = seed
        self.there = 0
        self.tried = 0
        self._states = states
        self._seconds = seconds

    def __call__(
        self,
        life: Program,
        after: Program,
        *,
        fsync: str = "always",
        crashes: Collection[str] = CRASHES,
        double: bool = True,
    ) -> None:
        """Record `life(db, told)`, and call `after(db, told)` in states that a crash of it may leave.

        Both may be coroutine functions, which get an AsyncStore.

        Args:
            life: The program. It calls `told(value)` when somebody outside begins to believe something.
            after: The check, and the life after the crash. It raises if something is wrong. `told` has what was told
                before the crash, and the check may tell more.
            fsync: As in `tidelog.open`.
            crashes: `kill`: the process ends, and what it wrote stays. `power`: what was not synced may be lost.
            double: In a part of the states, `after` crashes too, and is called again.

        Raises:
            CrashFailure: The check failed. The text names the first line after which the crash must come. Or a program
                did not end in time.
            DataError: An argument is invalid.

        Warns:
            CrashWarning: `life` told nothing.
        """
        __tracebackhide__ = True
        if not crashes or isinstance(crashes, str) or not set(crashes) <= set(CRASHES):
            raise DataError(f"crashes must be some of {', '.join(CRASHES)}, not {crashes!r}")
        if fsync not in POLICIES:
            raise DataError(f"fsync must be one of {', '.join(POLICIES)}, not {fsync!r}")
        tmpfs = TMPFS if os.access(TMPFS, os.W_OK) else None
        limit = Limit(self._seconds)
        with tempfile.TemporaryDirectory(prefix="tidelog-crashes-", dir=tmpfs) as place, limit:
            stage = Files(Path(place))
            _Search(self, stage, limit, life, after, fsync, set(crashes), double).run(
                random.Random(self.seed), self._states
            )


class _Search:
    """One call of `Crashes`."""

    def __init__(
        self,
        asked: Crashes,
        stage: Files,
        limit: Limit,
        life: Program,
        after: Program,
        fsync: str,
        crashes: set[str],
        double: bool,
    ) -> None:
        self._asked = asked
        self._stage = stage
        self._limit = limit
        self._life, self._after = life, after
        self._fsync = fsync
        self._crashes = crashes
        self._double = double

    def run(self, rng: random.Random, states: int) -> None:
        __tracebackhide__ = True
        record = self._record(self._life, {}, [])
        if not record.told:
            warnings.warn(
                "life told nothing, so nothing can be lost; call told(value) when somebody believes it",
                CrashWarning,
                stacklevel=3,
            )
        self._asked.there = self._asked.tried = 0
        self._without_crash(record)
        cases = self._cases(record, rng)
        wanted: dict[int, list[_Case]] = {}
        for case in _some(cases, states, rng):
            wanted.setdefault(case.time, []).append(case)
        for cut in cuts(record.trace):
            for case in wanted.get(cut.time, ()):
                again = self._double and rng.random() < AGAIN
                self._try(record, cut, case, rng if again else None)

    def _without_crash(self, record: _Record) -> None:
        """The check must hold after a life that ended well."""
        __tracebackhide__ = True
        end = cut_at(record.trace, len(record.trace.operations))
        try:
            self._check(end.image(end.whole), record.told)
        except _failures() as error:
            raise CrashFailure(
                f"the check fails without any crash, after a life that ended: {_text(error)}"
            ) from error

    def _cases(self, record: _Record, rng: random.Random) -> list[_Case]:
        """The different states of a record, some of the power cuts at each operation; in the order of operations."""
        found: list[_Case] = []
        seen: set[tuple[bytes, int]] = set()
        for cut in cuts(record.trace):
            if isinstance(record.trace.operations[cut.time - 1], SyncBegin):
                continue  # nothing changed
            self._asked.there += cut.count if POWER in self._crashes else 1
            for case in self._cases_at(cut, rng):
                key = fingerprint(cut.image(case.state)), cut.promised.issued
                if key not in seen:
                    seen.add(key)
                    found.append(case)
        return found

    def _cases_at(self, cut: Cut, rng: random.Random) -> Iterator[_Case]:
        if KILL in self._crashes:
            yield _Case(cut.time, cut.whole, False)
        if POWER in self._crashes:
            for state in cut.states(rng, DRAWN, DRAWN):
                yield _Case(cut.time, state, True)

    def _try(self, record: _Record, cut: Cut, case: _Case, rng: random.Random | None) -> None:
        """Check one state. With `rng`, the check crashes too."""
        __tracebackhide__ = True
        image = cut.image(case.state)
        told = record.told[: cut.promised.issued]
        second: _Record | None = None
        self._asked.tried += 1
        try:
            if rng is None:
                self._check(image, told)
            else:
                second = self._record(self._after, image, told)
        except _failures() as error:
            raise self._failure(error, [(record, cut, case)], image, told) from error
        if second is None or rng is None:
            return
        for _ in range(AGAIN_STATES):
            again = cut_at(second.trace, rng.randint(1, len(second.trace.operations)))
            (then,) = rng.sample([*self._cases_at(again, rng)], 1)
            image, told = again.image(then.state), second.told[: again.promised.issued]
            self._asked.tried += 1
            try:
                self._check(image, told)
            except _failures() as error:
                crashes = [(record, cut, case), (second, again, then)]
                raise self._failure(error, crashes, image, told) from error

    def _failure(
        self,
        error: BaseException,
        crashes: list[tuple[_Record, Cut, _Case]],
        image: Tree,
        told: list[Any],
    ) -> CrashFailure:
        """The failure of a check in a state. The check runs once more in it: does it fail again?"""
        words = self._words(error, crashes)
        if not isinstance(error, CrashFailure):  # that one hung
            try:
                self._check(image, told)
            except _failures():
                pass
            else:
                words += "\nbut when the check ran once more in the same state, it passed: it differs from run to run"
        return CrashFailure(words)

    def _words(self, error: BaseException, crashes: list[tuple[_Record, Cut, _Case]]) -> str:
        found = [f"after a crash the check failed: {_text(error)}"]
        for number, (record, cut, case) in enumerate(crashes):
            line = record.lines[case.time - 1]
            event = "the power is cut" if case.power else "the process is killed"
            where = f"after {line}" if line else "before the first line that uses the store"
            then = "then the check runs, and " if number else ""
            found.append(f"{then}{event} {where}")
            state = cut.words(case.state)
            found += [f"  {words}" for words in state[:SHOWN]]
            if len(state) > SHOWN:
                found.append(f"  and {len(state) - SHOWN} more")
            found.append(f"  told by then: {_short(record.told[: cut.promised.issued])}")
        asked = self._asked
        found.append(
            f"state {asked.tried} of those tried, fsync {self._fsync}; again with --crash-seed {asked.seed}"
        )
        return "\n".join(found)

    # --- running programs

    def _check(self, image: Tree, told: list[Any]) -> None:
        disk, root = self._stage.lay(image)
        self._call(self._after, disk, root, Told(told))

    def _record(self, program: Program, image: Tree, told: list[Any]) -> _Record:
        inner, root = self._stage.lay(image)
        disk = RecordingDisk(inner, root)
        noted = _Noted()
        disk.operations = noted
        disk.promise(len(told), len(told), len(told))
        heard = Told(told, lambda count: disk.promise(count, count, count))
        with commits_noted():
            self._call(program, disk, root, heard)
        return _Record(disk.trace({}, []), noted.lines, heard.values)

    def _call(self, program: Program, disk: Disk, root: Path, told: Told) -> None:
        path = root / STORE
        name = "life" if program is self._life else "the check"
        try:
            with self._limit.of(name):
                if inspect.iscoroutinefunction(program):
                    asyncio.run(self._acall(program, name, disk, path, told))
                    return
                with open_store(
                    path, fsync=self._fsync, segment_bytes=SEGMENT_BYTES, disk=disk
                ) as db:
                    with one_process(name):
                        program(db, told)
        except Hung as error:
            raise CrashFailure(str(error)) from error

    async def _acall(self, program: Program, name: str, disk: Disk, path: Path, told: Told) -> None:
        async with aopen_store(
            path, fsync=self._fsync, segment_bytes=SEGMENT_BYTES, disk=disk
        ) as db:
            with one_process(name):
                found = program(db, told)
                assert inspect.isawaitable(found)
                await found


def _some(cases: list[_Case], most: int, rng: random.Random) -> list[_Case]:
    """At most so many cases, in order: one of each operation first, so that the first line that fails is found."""
    if len(cases) <= most:
        return cases
    firsts = list({case.time: case for case in reversed(cases)}.values())
    if len(firsts) >= most:
        return sorted(rng.sample(firsts, most))
    rest = sorted(set(cases) - set(firsts))
    return sorted([*firsts, *rng.sample(rest, most - len(firsts))])


def _failures() -> tuple[type[BaseException], ...]:
    """The errors by which a check fails: also the end of the process, and `pytest.fail` where pytest runs."""
    outcomes = sys.modules.get("_pytest.outcomes")
    return (Exception, SystemExit, *(() if outcomes is None else (outcomes.Failed,)))


def _text(error: BaseException) -> str:
    if isinstance(error, CrashFailure):  # by the limit
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _short(values: list[Any]) -> str:
    text = ", ".join(map(repr, values[-SHOWN:])) or "nothing"
    return f"{len(values)} values, the last ones {text}" if len(values) > SHOWN else text
