"""Exploring: tries the states of a trace, and has the oracle judge what a store makes of each.

Two layers of it. `store` loses power at every operation of a recorded life. `double` loses it once more, at every
operation of the recovery from some of the states that the first cut left, and of the life after it: what was served
once must stay, recovering twice is recovering once, and a new write is taken and survives.

A state whose image was seen before is not opened again. Its outcome is judged again, though, because more may have been
promised since.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Final, NamedTuple

from tidelog.crash.afterwards import AFTERWARDS, PROBE, afterwards
from tidelog.crash.commits import commits_noted
from tidelog.crash.damage import Damage
from tidelog.crash.injector import Trouble
from tidelog.crash.oracle import Fault, Kind, Oracle, Served
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Stage, Still, contents_of, open_on, serve
from tidelog.crash.states import Cut, State, cut_at, cuts, fingerprint, joined
from tidelog.crash.trace import SyncBegin, Trace, Tree, Unit, pack, versions

WHOLE: Final = 0.1  # of the images of which more than the contents is tried, those of which all is


@dataclass
class Counts:
    """How much there was to try, how much was tried, and the faults.

    there      legal states, equal images counted again at each operation
    tried      of these
    distinct   different images among those tried; each was opened
    again      of the different images, those of which more than the contents was tried (crash/afterwards.py)
    told       of the damaged stores, those that raised a clear error
    rows       of the different damages, those of LMDB's files: checkpoints and snapshots
    refused, lost, wrong, died   states with such a fault
    seconds    spent on them, of all processes
    """

    there: int = 0
    tried: int = 0
    distinct: int = 0
    told: int = 0
    again: int = 0
    rows: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    died: int = 0
    seconds: float = field(default=0.0, compare=False)

    def add(self, other: Counts) -> None:
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    def count(self, kind: Kind) -> None:
        """Count a fault."""
        setattr(self, kind.value, getattr(self, kind.value) + 1)

    @property
    def faults(self) -> int:
        return self.refused + self.lost + self.wrong + self.died


class Finding(NamedTuple):
    """A state after which a store broke a promise. It can be tried again alone, from nothing but this.

    layer   in which it was found
    trace   as the content of a file
    time    how many of its operations were done
    state   the state, as crash/states.py numbers it
    power   the power was cut; if not, only the process ended
    damage  done to the files after that; None for none
    trouble of the disk, in a workload that is run anew; None for none
    """

    layer: str
    trace: bytes
    time: int
    state: State
    power: bool
    kind: str
    words: str
    damage: Damage | None = None
    trouble: Trouble | None = None


class Effort(NamedTuple):
    """How many states to try.

    drawn          at each operation that has too many states to try all
    exhaustive     up to this number of states, all are tried
    double         of the distinct images, the share whose recovery loses power too
    killed         of the ends of the process, the share whose recovery loses power
    double_drawn   states at each operation of such a recovery
    findings       stop the exploration of a trace after this number
    again          of the distinct images, the share of which more than the contents is tried
    """

    drawn: int = 6
    exhaustive: int = 64
    double: float = 0.03
    killed: float = 0.03
    double_drawn: int = 3
    findings: int = 1
    again: float = 0.0


STORE: Final = "store"
DOUBLE: Final = "double"


@dataclass
class Report:
    """Counts of each layer, what was found, and why a layer could not run.

    less     of a layer that was run, what cannot be tried here
    small    for each policy the workloads of crash/small.py
    """

    counts: dict[str, Counts] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    not_run: dict[str, str] = field(default_factory=dict)
    less: dict[str, str] = field(default_factory=dict)
    small: dict[str, set[int]] = field(default_factory=dict)

    def of(self, layer: str) -> Counts:
        return self.counts.setdefault(layer, Counts())

    def add(self, other: Report) -> None:
        for layer, counts in other.counts.items():
            self.of(layer).add(counts)
        self.findings += other.findings
        self.not_run |= other.not_run
        self.less |= other.less
        for policy, numbers in other.small.items():
            self.small.setdefault(policy, set()).update(numbers)


class Explorer:
    """Explores traces on one stage.

    layer      the name of the first layer in the report; that of double crashes is DOUBLE
    stopping   called between states; true ends the exploration
    serve      opens a state and reads it: a store, or a log alone
    """

    def __init__(
        self,
        stage: Stage,
        rng: random.Random,
        effort: Effort,
        layer: str = STORE,
        stopping: Callable[[], bool] = lambda: False,
        serve: Callable[[Stage, Tree], Served] = serve,
    ) -> None:
        self.report = Report()
        self._stage = stage
        self._serve = serve
        self._rng = rng
        self._effort = effort
        self._layer = layer
        self._stopping = stopping

    def explore(self, trace: Trace, after: int = 0) -> None:
        """Try the states of a trace behind its first `after` operations, and those of some recoveries."""
        self._explore(trace, self._layer, self._effort.drawn, self._effort.exhaustive, after)

    def _explore(
        self, trace: Trace, layer: str, drawn: int, exhaustive: int, after: int = 0
    ) -> None:
        counts = self.report.of(layer)
        oracle = Oracle(trace.units)
        outcomes: dict[bytes, Served] = {}
        most = len(self.report.findings) + self._effort.findings
        for cut in cuts(trace, after):
            if isinstance(trace.operations[cut.time - 1], SyncBegin):
                continue  # nothing changed
            counts.there += cut.count
            for state in cut.states(self._rng, drawn, exhaustive):
                if self._stopping():
                    return
                counts.tried += 1
                image = cut.image(state)
                name = fingerprint(image)
                power = state != cut.whole
                served = outcomes.get(name)
                if served is None:
                    served = outcomes[name] = self._serve(self._stage, image)
                    counts.distinct += 1
                    share = self._effort.double if power else self._effort.killed
                    if layer != DOUBLE and self._rng.random() < share:
                        started = time.monotonic()
                        self._double(trace, cut, image, oracle, served, power=power)
                        self.report.of(DOUBLE).seconds += time.monotonic() - started
                    again = self._effort.again if layer != DOUBLE else 0
                    if again and self._rng.random() < again:
                        found = self._afterwards(counts, image, oracle, served)
                        if found is not None:
                            self._found(layer, trace, cut, state, power, found)
                            return
                fault = oracle.judge(served, cut.promised, power=power)
                if fault is not None:
                    self._found(layer, trace, cut, state, power, fault)
                    if len(self.report.findings) >= most:
                        return

    def _afterwards(
        self, counts: Counts, image: Tree, oracle: Oracle, served: Served
    ) -> Fault | None:
        """Try more than the contents of an image. The checks that start a process are made for few."""
        if served.contents is None:
            return None  # a finding already
        counts.again += 1
        return afterwards(self._stage, image, oracle, self._rng, whole=self._rng.random() < WHOLE)

    def next_base(self, trace: Trace) -> tuple[Tree, int] | None:
        """A random disk that a crash may leave of a trace, and the number of its units. None if it shows a fault."""
        cut = cut_at(trace, self._rng.randint(1, len(trace.operations)))
        state = self._rng.choice([*cut.states(self._rng, 8, 0)])
        power = state != cut.whole
        image = cut.image(state)
        served = self._serve(self._stage, image)
        oracle = Oracle(trace.units)
        fault = oracle.judge(served, cut.promised, power=power)
        if fault is not None or served.contents is None:
            assert fault is not None
            self._found(self._layer, trace, cut, state, power, fault)
            return None
        units = oracle.units_in(served.contents, cut.promised.issued)
        assert units is not None
        return image, units

    def _found(
        self, layer: str, trace: Trace, cut: Cut, state: State, power: bool, fault: Fault
    ) -> None:
        self.report.of(layer).count(fault.kind)
        self.report.findings.append(
            Finding(layer, pack(trace), cut.time, state, power, fault.kind.value, fault.words)
        )

    def _double(
        self, trace: Trace, cut: Cut, image: Tree, oracle: Oracle, served: Served, *, power: bool
    ) -> None:
        """Record the recovery from an image and the life after it, and lose power in them.

        If the image is that of a process that ended, its page cache is still there when the recovery begins.
        """
        if served.contents is None:
            return  # a finding already
        promised = cut.promised if power else cut.promised._replace(fsynced=cut.promised.written)
        units = oracle.units_in(served.contents, promised.issued)
        if units is None or units < promised.fsynced:
            return
        least = cut.promised.fsynced
        second, fault = record_recovery(self._stage, image, trace.units[:units], least)
        after = 0
        if not power:
            second, after = joined(trace, cut.time, second), cut.time
        if fault is not None:
            end = cut_at(second, len(second.operations))
            self._found(DOUBLE, second, end, end.whole, False, fault)
            return
        self._explore(second, DOUBLE, self._effort.double_drawn, 0, after)


def record_recovery(
    stage: Stage, image: Tree, units: list[Unit], fsynced: int
) -> tuple[Trace, Fault | None]:
    """Open a store twice, write to it and close it, all recorded. Also the fault that this showed without a crash.

    units     those that the store showed before
    fsynced   number of them that were acknowledged as such before
    """
    inner, root = stage.lay(image)
    disk = RecordingDisk(inner, root)
    count = len(units)
    disk.promise(fsynced, fsynced, count)
    asked: list[Unit] = list(units)
    fault = None
    try:
        with commits_noted():
            with open_on(disk, root, "always", Still()) as db:
                first = contents_of(db)
                disk.promise(count, count, count)
            with open_on(disk, root, "always", Still()) as db:
                second = contents_of(db)
                if first != second:
                    fault = Fault(Kind.WRONG, "a second recovery showed other contents")
                disk.promise(count, count, count + 1)
                entry_id = db.xadd(PROBE, {b"taken": b"1"})
                asked.append([["add", PROBE, entry_id, [b"taken", b"1"]]])
                disk.promise(count + 1, count + 1, count + 1)
    except Exception as error:  # whatever it is, a legal crash must not cause it
        fault = Fault(Kind.REFUSED, f"{type(error).__name__}: {error}")
    about: dict[str, Any] = {"workload": "recovery", **versions()}
    return disk.trace(about, asked), fault


def try_again(
    stage: Stage,
    trace: Trace,
    finding: Finding,
    serve: Callable[[Stage, Tree], Served] = serve,
) -> tuple[Fault | None, list[str]]:
    """The fault of one state again, and the state in words."""
    cut = cut_at(trace, finding.time)
    served = serve(stage, cut.image(finding.state))
    oracle, image = Oracle(trace.units), cut.image(finding.state)
    fault = oracle.judge(served, cut.promised, power=finding.power)
    if fault is None and finding.words.startswith(AFTERWARDS):
        fault = afterwards(stage, image, oracle, random.Random(1), whole=True)
    return fault, cut.words(finding.state)
