"""Bench: records one life of a subject, and crashes it in three ways at each of its operations.

kill      the process ends. Everything that it wrote is there
strict    the power is cut, on any file system that POSIX allows (crash/states.py)
ordered   the power is cut, on a file system that keeps the order of ext4 and xfs (crash/ordered.py)
"""

from __future__ import annotations

import random
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.crash.errors import BenchError, Mismatch
from tidelog.crash.explore import Counts, Finding
from tidelog.crash.oracle import Fault, Kind
from tidelog.crash.ordered import ordered
from tidelog.crash.preload.program import Life, record
from tidelog.crash.shrink import minimise
from tidelog.crash.states import Cut, State, cut_at, cuts, fingerprint
from tidelog.crash.subjects.judges import DIR, Judge, OfProgram, OfSubject, filled
from tidelog.crash.subjects.registry import SUBJECTS
from tidelog.crash.subjects.subject import FAULTS, KILL, ORDERED, STRICT, CannotRun, units_of
from tidelog.crash.trace import SyncBegin, Trace, pack, unpack, versions
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk

SUBJECT: Final = "subject"  # the layer of a finding
PROGRAM: Final = "program"  # the name of a subject that is a command of the user
CUTS: Final = 40  # of a round
DRAWN: Final = 6  # states of a cut
EXHAUSTIVE: Final = 16
IDLE_ROUNDS: Final = 5
LEAST: Final = 60  # strict states that are tried however little time there is
NOTHING: Final[frozenset[Kind]] = frozenset()


class Task(NamedTuple):
    """A subject to be crashed.

    name      of a subject, or PROGRAM with a `command` and a `check`
    """

    name: str
    command: str = ""
    check: str = ""

    @property
    def promise(self) -> str:
        return "what it prints" if self.command else SUBJECTS[self.name].promise

    @property
    def admitted(self) -> Mapping[str, frozenset[Kind]]:
        return {} if self.command else SUBJECTS[self.name].admitted


@dataclass
class Result:
    """The outcome of one task.

    counts     of each fault
    beyond     how many of the faults its manual does not admit
    findings   the first of each fault that is beyond
    said       what the recorder could not see in full
    """

    task: Task
    counts: dict[str, Counts] = field(default_factory=lambda: {fault: Counts() for fault in FAULTS})
    beyond: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FAULTS, 0))
    findings: list[Finding] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def crash(
    task: Task,
    scratch: Path,
    library: Path,
    seed: str,
    stopping: Callable[[], bool],
    most: int = sys.maxsize,
    began: Callable[[], object] = lambda: None,
) -> Result:
    """Record a subject and crash it until `stopping()`, or until `most` states of strict power cuts were tried.

    scratch   an existing empty directory, best on tmpfs
    library   the compiled recorder
    began     called when the life is recorded and its crashes begin

    Raises CannotRun, BenchError; Mismatch if its check fails without any crash.
    """
    life = recorded(task, scratch, library, seed)
    judge = judge_of(task, life.trace, scratch)
    result = Result(task)
    result.said = [
        *(f"written through a mapping, whose order between two calls is not known: {name}" for name in life.mapped),
        *(f"not in the record: {what}" for what in life.unseen),
    ]  # fmt: skip
    try:
        _without_crash(life.trace, judge)
        began()
        Crashes(life.trace, judge, result, random.Random(seed)).run(stopping, most)
    finally:
        judge.close()
    return result


def recorded(task: Task, scratch: Path, library: Path, seed: str) -> Life:
    """One life of a subject."""
    disk = RealDisk()
    root, notes = scratch / "recorded", scratch / "notes"
    for place in (root, notes):
        disk.mkdir(place)
    about: dict[str, Any] = {"subject": task.name, "seed": seed, **versions()}
    try:
        if task.command:
            if DIR not in task.command or DIR not in task.check:
                raise CannotRun(f"the command and its check name the directory as {DIR}")
            about |= {"command": task.command, "check": task.check}
            words = filled(shlex.split(task.command), root)
            life = record(words, root, notes, library, about)
            about["told"] = life.told
            return life
        missing = SUBJECTS[task.name].missing()
        if missing:
            raise CannotRun(missing)
        try:
            with SUBJECTS[task.name].open(root):
                pass  # whatever this leaves counts as durable
        except Exception as error:
            raise BenchError(f"{task.name} cannot create its store: {error}") from error
        words = [sys.executable, "-m", "tidelog.crash.subjects", task.name, str(root), seed]
        return record(words, root, notes, library, about, units_of(seed))
    finally:
        for place in (root, notes):
            recipe.remove_tree(disk, place)


def judge_of(task: Task, trace: Trace, scratch: Path) -> Judge:
    """The judge of a recorded life."""
    if task.command:
        return OfProgram(task.check, trace.about["told"], scratch)
    return OfSubject(SUBJECTS[task.name], trace.units, scratch)


def _without_crash(trace: Trace, judge: Judge) -> None:
    cut = cut_at(trace, len(trace.operations))
    fault = judge.judge(cut.image(cut.whole), cut.promised)
    if fault is not None:
        raise Mismatch(
            f"the subject fails without any crash, so its crashes would prove nothing: {fault.words}"
        )


class Crashes:
    """The crashes of one recorded life."""

    def __init__(self, trace: Trace, judge: Judge, result: Result, rng: random.Random) -> None:
        self._trace = trace
        self._judge = judge
        self._result = result
        self._rng = rng
        self._times: set[int] = set()
        self._tried: set[tuple[str, int, State]] = set()
        self._seen: dict[str, set[bytes]] = {fault: set() for fault in FAULTS}

    def run(self, stopping: Callable[[], bool], most: int) -> None:
        """Try moments drawn by chance, in rounds, so that a run that is stopped has tried all parts of the life.

        No state counts twice. Ends when several rounds find nothing new.
        """
        times = range(1, len(self._trace.operations) + 1)
        idle = 0
        while idle < IDLE_ROUNDS:
            before = len(self._tried)
            drawn = set(self._rng.sample(times, min(CUTS, len(times))))
            for cut in cuts(self._trace):
                if cut.time not in drawn:
                    continue
                if isinstance(self._trace.operations[cut.time - 1], SyncBegin):
                    continue  # nothing changed
                for fault, states in self._states(cut).items():
                    for state in states:
                        tried = self._result.counts[STRICT].tried
                        if tried >= most or tried >= LEAST and stopping():
                            return
                        if (fault, cut.time, state) not in self._tried:
                            self._tried.add((fault, cut.time, state))
                            self._try(fault, cut, state)
            idle = 0 if len(self._tried) > before else idle + 1

    def _states(self, cut: Cut) -> dict[str, list[State]]:
        strict = list(cut.states(self._rng, DRAWN, EXHAUSTIVE))
        if cut.time not in self._times:
            self._times.add(cut.time)
            self._result.counts[STRICT].there += cut.count
        in_order = list(dict.fromkeys(ordered(cut, state) for state in strict))
        return {KILL: [cut.whole], STRICT: strict, ORDERED: in_order}

    def _try(self, fault: str, cut: Cut, state: State) -> None:
        counts = self._result.counts[fault]
        image = cut.image(state)
        found = self._judge.judge(image, cut.promised)
        self._seen[fault].add(fingerprint(image))
        counts.tried += 1
        counts.distinct = len(self._seen[fault])
        if found is None:
            return
        counts.count(found.kind)
        if found.kind in self._result.task.admitted.get(fault, NOTHING):
            return
        self._result.beyond[fault] += 1
        if self._result.beyond[fault] == 1:
            self._result.findings.append(self._finding(fault, cut, state, found))

    def _finding(self, fault: str, cut: Cut, state: State, found: Fault) -> Finding:
        return Finding(
            SUBJECT,
            pack(self._trace),
            cut.time,
            state,
            fault != KILL,
            found.kind.value,
            f"{self._result.task.name}, {fault}: {found.words}",
        )


def try_again(scratch: Path, trace: Trace, finding: Finding, check: str = "") -> Fault | None:
    """The fault of a finding again. `check` is that of the user for a program, since a kept one is not run unseen."""
    task = task_of(trace, check)
    judge = judge_of(task, trace, scratch)
    cut = cut_at(trace, finding.time)
    try:
        return judge.judge(cut.image(finding.state), cut.promised)
    finally:
        judge.close()


def task_of(trace: Trace, check: str) -> Task:
    """The task of a recorded life. Raises BenchError."""
    about = trace.about
    if "command" in about:
        if not check:
            raise BenchError(
                "this finding is of a program. Its check is run only if you name it: "
                f"--check {shlex.quote(str(about['check']))}"
            )
        return Task(PROGRAM, str(about["command"]), check)
    if about.get("subject") not in SUBJECTS:
        raise BenchError(f"this tidelog knows no subject {about.get('subject')!r}")
    return Task(str(about["subject"]))


def counts_in(finding: Finding, model: str) -> bool:
    """Whether a model counts a finding: ORDERED counts no state that only STRICT allows."""
    return model == STRICT or f", {STRICT}: " not in finding.words.partition(": ")[0] + ": "


def smaller(finding: Finding, scratch: Path, check: str, stopping: Callable[[], bool]) -> Finding:
    """The finding with as few losses as possible. An ordered state stays one."""
    trace = unpack(finding.trace, "the trace of the finding")
    cut = cut_at(trace, finding.time)
    task = task_of(trace, check)
    judge = judge_of(task, trace, scratch)
    in_order = finding.words.startswith(f"{task.name}, {ORDERED}: ")

    def with_lost(places: list[int]) -> State:
        state = tuple(finding.state[i] if i in places else now for i, now in enumerate(cut.whole))
        return ordered(cut, state) if in_order else state

    def fails(places: list[int]) -> bool:
        fault = judge.judge(cut.image(with_lost(places)), cut.promised)
        return fault is not None and fault.kind.value == finding.kind

    try:
        lost = [i for i, option in enumerate(finding.state) if option != cut.whole[i]]
        return finding._replace(state=with_lost(minimise(lost, fails, stopping)))
    finally:
        judge.close()
