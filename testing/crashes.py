"""Crashes: a program is recorded once, and what a crash at any of its operations may leave is given to a check.

The recorder (crash/record.py) notes each operation of the store with the line of the program that caused it. A state is
what the end of the process, or a power cut, leaves after one operation (crash/states.py). The check gets a store opened
in that state, and everything that the program had told until then. It may go on working, and crash again.

A long program has more states than anybody wants to wait for. Those around each promise are always tried, because a
promise that comes too early shows there; the others are a sample that is spread over the whole program. When a state
fails, earlier ones that were passed over are tried too, so that the failure names the first line.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.api.aopening import aopen_store
from tidelog.api.opening import open_store
from tidelog.crash.commits import commits_noted
from tidelog.crash.explore import Finding
from tidelog.crash.record import RecordingDisk
from tidelog.crash.report import TEST, save
from tidelog.crash.served import STORE, Files
from tidelog.crash.states import Cut, State, cut_at, cuts, fingerprint
from tidelog.crash.trace import Operation, Promised, SyncBegin, Trace, Tree, pack, versions
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.store.errors import DataError
from tidelog.testing.limits import Hung, Limit, one_process
from tidelog.testing.lines import Line, line_of
from tidelog.testing.scratch import scratch

KILL: Final = "kill"
POWER: Final = "power"
CRASHES: Final = (KILL, POWER)
POLICIES: Final = ("always", "everysec", "no")
SEGMENT_BYTES: Final = 1 << 16  # a state is copied whole, so files are small
DRAWN: Final = 4  # power cuts at each operation
AGAIN: Final = 0.2  # the share of the states in which the check crashes too
AGAIN_STATES: Final = 3  # of each such check
SHOWN: Final = 5  # lines of a state
EARLIER: Final = 5000  # passed over states that are tried when a later one failed
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
        keep: A failure is kept in this directory, for `tidelog crash replay`; what was there is replaced. None to keep
            none.
        tell: Called with each line for people: how many points were passed over, and what a killed run had left.

    Attributes:
        seed: As above.
        there: How many states there were in the last call.
        tried: How many of them were tried, second crashes included.
        points: How many operations had a state to be tried.
        points_tried: At how many of them a state was tried.
    """

    def __init__(
        self,
        seed: int,
        states: int,
        seconds: float = SECONDS,
        keep: Path | None = None,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.seed = seed
        self.there = self.tried = 0
        self.points = self.points_tried = 0
        self._states = states
        self._seconds = seconds
        self._keep = keep
        self._tell = tell

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
        limit = Limit(self._seconds)
        with scratch(self._tell) as place, limit:
            _Search(
                self, Files(place), limit, life, after, fsync, set(crashes), double, self._keep
            ).run(random.Random(self.seed), self._states)
        if self.points_tried < self.points:
            self._tell(
                f"{self.points_tried:,} of {self.points:,} crash points tried; more with --crash-states"
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
        keep: Path | None,
    ) -> None:
        self._asked = asked
        self._stage = stage
        self._limit = limit
        self._life, self._after = life, after
        self._fsync = fsync
        self._crashes = crashes
        self._double = double
        self._keep = keep
        self._points: set[int] = set()  # the times of the cases that were tried

    def run(self, rng: random.Random, states: int) -> None:
        __tracebackhide__ = True
        record = self._record(self._life, {}, [])
        if not record.told:
            warnings.warn(
                "life told nothing, so nothing can be lost; call told(value) when somebody believes it",
                CrashWarning,
                stacklevel=3,
            )
        asked = self._asked
        asked.there = asked.tried = asked.points = asked.points_tried = 0
        self._without_crash(record)
        cases, always = self._cases(record, rng)
        asked.points = len({case.time for case in cases})
        chosen = _chosen(cases, always, states, rng)
        try:
            share = AGAIN * min(1.0, states / len(chosen)) if self._double else 0.0
            self._try_all(record, [cases[n] for n in chosen], rng, share)
        except _AfterOneCrash as found:
            self._first(record, cases, set(chosen), found, rng)

    def _try_all(
        self, record: _Record, cases: list[_Case], rng: random.Random, share: float
    ) -> None:
        """Check some states, in order. In a share of them the check crashes too."""
        __tracebackhide__ = True
        wanted: dict[int, list[_Case]] = {}
        for case in cases:
            wanted.setdefault(case.time, []).append(case)
        for cut in cuts(record.trace):
            for case in wanted.get(cut.time, ()):
                self._points.add(case.time)
                self._asked.points_tried = len(self._points)
                again = rng.random() < share
                self._try(record, cut, case, rng if again else None)

    def _first(
        self,
        record: _Record,
        cases: list[_Case],
        tried: set[int],
        found: _AfterOneCrash,
        rng: random.Random,
    ) -> None:
        """Raise the failure of the first state that fails: `found`, or one before it that was passed over."""
        __tracebackhide__ = True
        at = cases.index(found.case)
        passed = [n for n in range(at) if n not in tried]
        left = passed[: len(passed) - EARLIER] if len(passed) > EARLIER else []
        try:
            self._try_all(record, [cases[n] for n in passed[len(left) :]], rng, 0.0)
        except _AfterOneCrash as earlier:
            found = earlier
        failure = found.failure
        if left:
            words = f"{failure}\n{len(left):,} earlier states were not tried: the first line may be before this one"
            failure = CrashFailure(words)
        raise failure from found.__cause__

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

    def _cases(self, record: _Record, rng: random.Random) -> tuple[list[_Case], set[int]]:
        """The different states of a record, some of the power cuts at each operation; in the order of operations.

        Also the numbers of those that are always tried: the end of the process before and after each promise, and after
        it the loss of all that was not synced. A promise that comes too early is one that these do not keep.
        """
        found: list[_Case] = []
        seen: dict[tuple[bytes, int], int] = {}
        always: set[int] = set()
        operations = record.trace.operations
        for cut in cuts(record.trace):
            now, *soon = (isinstance(each, Promised) for each in operations[cut.time - 1 :][:2])
            if isinstance(operations[cut.time - 1], SyncBegin):
                continue  # nothing changed
            self._asked.there += cut.count if POWER in self._crashes else 1
            for case in self._cases_at(cut, rng):
                key = fingerprint(cut.image(case.state)), cut.promised.issued
                number = seen.setdefault(key, len(found))
                if number == len(found):
                    found.append(case)
                if case.state == cut.whole and (now or any(soon)):
                    always.add(number)
                if case.state == cut.least and now:
                    always.add(number)
        return found, always

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
            failure = self._failure(error, [(record, cut, case)], image, told)
            raise _AfterOneCrash(case, failure) from error
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
        if self._keep is not None:
            kept = os.path.relpath(self._kept(self._keep, words, *crashes[-1]))
            words += f"\nshow it again: tidelog crash replay {kept}"
        return CrashFailure(words)

    def _kept(self, keep: Path, words: str, record: _Record, cut: Cut, case: _Case) -> Path:
        """Keep the last crash of a failure as a finding. The program is not in it: only pytest can run that again."""
        disk = RealDisk()
        if disk.exists(keep):
            recipe.remove_tree(disk, keep)
        for parent in reversed(keep.parents):
            if not disk.exists(parent):
                disk.mkdir(parent)
        about = {
            "seed": self._asked.seed,
            "policy": self._fsync,
            "line": str(record.lines[case.time - 1] or "before the first line"),
            "told": [repr(value) for value in record.told[: cut.promised.issued]],
            **versions(),
        }
        trace = pack(record.trace._replace(about=about))
        save(disk, keep, Finding(TEST, trace, case.time, case.state, case.power, "failed", words))
        return keep

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


class _AfterOneCrash(Exception):
    """A check failed in a state of the first crash."""

    def __init__(self, case: _Case, failure: CrashFailure) -> None:
        super().__init__(str(failure))
        self.case = case
        self.failure = failure


def _chosen(cases: list[_Case], always: set[int], most: int, rng: random.Random) -> list[int]:
    """The numbers of the cases to try, ascending: `always`, and at most `most` others.

    One of each operation if that is possible, else one of each of `most` equal parts, so that none is long without one.
    """
    chosen = set(always)
    firsts = list({case.time: n for n, case in reversed([*enumerate(cases)])}.values())
    firsts = sorted(n for n in firsts if n not in chosen)
    if len(firsts) <= most:
        chosen.update(firsts)
        most -= len(firsts)
    rest = [n for n in range(len(cases)) if n not in chosen]
    if len(rest) <= most:
        return [*range(len(cases))]
    ends = [len(rest) * n // most for n in range(most + 1)] if most else []
    # At random within its part: with equal distances, a loop of the program could always be met in the same place.
    chosen.update(rest[rng.randrange(*part)] for part in pairwise(ends))
    return sorted(chosen)


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
