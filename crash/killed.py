"""Killed: a process that works on a store is killed before, inside and after its operations, and the store is judged.

Each run is a fork of this process, so it begins in milliseconds. It works on real files and tells every promise through
a pipe. At one operation of its disk it kills itself with SIGKILL: before it, after it, or, of a write, when half of the
bytes are written. A commit of LMDB is one operation. In some runs the recovery is killed too. Then the store is opened
here. Everything that was acknowledged must be there, and a write must be taken.

The clock of these stores stands still, so all runs do the same, and the one that is not killed tells the units.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import struct
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, NamedTuple

from tidelog.crash.afterwards import PROBE
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Finding, Report
from tidelog.crash.hooked import HookedDisk, commits_hooked
from tidelog.crash.injector import AFTER, BEFORE, INSIDE, KILLS, Trouble
from tidelog.crash.oracle import Fault, Kind, Oracle, Served
from tidelog.crash.served import Still, contents_of, open_on
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import Promised, Trace, Unit, pack, versions
from tidelog.crash.workloads import Life
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk

KILL: Final = "kill"
PLACE: Final = "killed"  # in the scratch directory
HUNG_S: Final = 30.0
AGAIN: Final = 0.3  # the share of the runs whose recovery is killed too
AGAIN_MAX: Final = 25  # at one of its first operations
TOLD: Final = struct.Struct("<QQQ")


class Killer:
    """The hook of a HookedDisk that kills this process, after a call of `strike`. Without a trouble it counts."""

    def __init__(
        self, trouble: Trouble | None, strike: Callable[[], object] = lambda: None
    ) -> None:
        self.seen = dict.fromkeys(KILLS, 0)
        self._trouble = trouble
        self._strike = strike

    def _reached(self, moment: str) -> bool:
        self.seen[moment] += 1
        trouble = self._trouble
        return trouble is not None and (moment, self.seen[moment]) == (trouble.how, trouble.at)

    def _kill(self) -> None:
        self._strike()
        os.kill(os.getpid(), signal.SIGKILL)

    def before(self, operation: str, path: Path) -> None:
        if self._reached(BEFORE):
            self._kill()

    def inside(self, operation: str, path: Path, length: int) -> int | None:
        return length // 2 if self._reached(INSIDE) else None

    def broken(self, operation: str, path: Path) -> None:
        self._kill()

    def after(self, operation: str, path: Path) -> None:
        if self._reached(AFTER):
            self._kill()


def live(scene: Scene, disk: Disk, root: Path, promise: Callable[[int, int, int], object]) -> Life:
    """Run both lives of a scene. Returns the second one."""
    units: list[Unit] = []
    for steps in scene.lives:
        db = open_on(disk, root, scene.policy, Still())
        with db:
            life = Life(db, scene.policy, promise, units, predicts=True)
            for step in steps:
                life.run(step)
            life.end()
        units = life.units
    return life


class Runs:
    """The runs of a scene in a directory.

    units   of a run that is not killed
    all     every moment at which a run can be killed
    power   whether a kill takes the page cache too, as in a subclass that cuts the power of a file system
    """

    power = False

    def __init__(self, scene: Scene, scratch: Path) -> None:
        self.scene = scene
        self._disk = RealDisk()
        self._root = scratch / PLACE
        killer = Killer(None)
        self._begin()
        with commits_hooked():
            disk = HookedDisk(self._disk, killer)
            self.units = live(scene, disk, self._root, lambda *counts: None).units
        self.end()
        self.all = [
            Trouble(True, moment, at)
            for moment in KILLS
            for at in range(1, killer.seen[moment] + 1)
        ]

    def _begin(self) -> None:
        self.end()
        self._disk.mkdir(self._root)
        self.begun()

    def end(self) -> None:
        """Remove the files of the last run."""
        if self._disk.exists(self._root):
            recipe.remove_tree(self._disk, self._root)

    def begun(self) -> None:
        """Called before each run, when its directory is empty."""

    def strike(self) -> None:
        """Called in the process that is about to be killed."""

    def struck(self) -> None:
        """Called when the process has ended, before anybody opens the store."""

    def kill(self, trouble: Trouble) -> tuple[Fault | None, Promised, bool]:
        """One run: its fault, what was promised, and whether the process was killed."""
        self._begin()
        promised, killed, fault = self._forked(trouble, self._live)
        if trouble.again and fault is None:
            again = Trouble(True, BEFORE, trouble.again)
            _, _, fault = self._forked(again, self._recover)
        if fault is None:
            fault = judged(self._disk, self._root, self.units, promised, power=self.power)
        return fault, promised, killed

    def _forked(
        self, trouble: Trouble, work: Callable[[Disk, Connection], object]
    ) -> tuple[Promised, bool, Fault | None]:
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_child,
            args=(Killer(trouble, self.strike), work, ours, theirs),
            name="tidelog-crash-killed",
        )
        process.start()
        theirs.close()
        promised = Promised(0, 0, 0)
        fault = None
        try:
            while fault is None:
                if ours.poll(HUNG_S):
                    promised = Promised(*TOLD.unpack(ours.recv_bytes()))
                else:
                    fault = Fault(Kind.DIED, f"the process hung for {HUNG_S:.0f} s")
                    process.kill()
        except EOFError:
            pass  # the process has ended
        finally:
            ours.close()
            process.join()
            code = process.exitcode or 0
            process.close()
        self.struck()
        if fault is None and code not in (0, -signal.SIGKILL):
            fault = Fault(Kind.DIED, f"the process ended by itself with exit code {code}")
        return promised, code == -signal.SIGKILL, fault

    def _live(self, disk: Disk, pipe: Connection) -> None:
        live(self.scene, disk, self._root, lambda *counts: pipe.send_bytes(TOLD.pack(*counts)))

    def _recover(self, disk: Disk, pipe: Connection) -> None:
        with open_on(disk, self._root, self.scene.policy, Still()):
            pass


def judged(
    disk: Disk, root: Path, units: list[Unit], promised: Promised, *, power: bool
) -> Fault | None:
    """The fault of the store that is left in a directory, which takes a write."""
    try:
        with open_on(disk, root, "always", Still()) as db:
            served = Served(contents_of(db))
            db.xadd(PROBE, {b"taken": b"1"})
        with open_on(disk, root, "always", Still()) as db:
            second = contents_of(db)
    except Exception as error:
        served = Served(None, f"{type(error).__name__}: {error}")
    else:
        if second.pop(PROBE, None) is None or second != served.contents:
            return Fault(Kind.LOST, "a write after the crash was lost, or took others with it")
    return Oracle(units).judge(served, promised, power=power)


def _child(
    killer: Killer, work: Callable[[Disk, Connection], object], ours: Connection, pipe: Connection
) -> None:
    ours.close()
    # Ctrl-C ends the asker, which waits for this process first.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with commits_hooked():
        work(HookedDisk(RealDisk(), killer), pipe)


class Effort(NamedTuple):
    """How many runs of a scene to kill, and the share of them whose recovery is killed too."""

    drawn: int = 100
    again: float = AGAIN


def kill(
    scene: Scene,
    scratch: Path,
    rng: random.Random,
    effort: Effort = Effort(),
    stopping: Callable[[], bool] = lambda: False,
    runs_of: Callable[[Scene, Path], Runs] = Runs,
    layer: str = KILL,
) -> Report:
    """Run a workload and kill it, again and again. Ends with the first finding."""
    report = Report()
    counts = report.of(layer)
    runs = runs_of(scene, scratch)
    counts.there = len(runs.all)
    try:
        for trouble in rng.sample(runs.all, min(effort.drawn, len(runs.all))):
            if stopping():
                break
            if rng.random() < effort.again:
                trouble = trouble._replace(again=rng.randint(1, AGAIN_MAX))
            fault, promised, killed = runs.kill(trouble)
            counts.tried += 1
            counts.distinct += killed
            if fault is not None:
                counts.count(fault.kind)
                report.findings.append(_finding(layer, runs, trouble, promised, fault))
                break
    finally:
        runs.end()
    return report


def _finding(layer: str, runs: Runs, trouble: Trouble, promised: Promised, fault: Fault) -> Finding:
    trace = Trace({**runs.scene.about(), **versions()}, {}, runs.units, [promised])
    kind, words = fault.kind.value, fault.words
    return Finding(layer, pack(trace), 1, (), False, kind, words, trouble=trouble)


def find_again(
    scene: Scene, finding: Finding, scratch: Path, stopping: Callable[[], bool]
) -> Finding | None:
    """A finding of the same kind in another workload, by the same kill at some operation. None if there is none."""
    assert finding.trouble is not None
    try:
        runs = Runs(scene, scratch)
    except BenchError:
        return None  # another fault, which needs no kill
    try:
        for trouble in finding.trouble.nearest():
            if stopping():
                break
            fault, promised, _ = runs.kill(trouble)
            if fault is not None and fault.kind.value == finding.kind:
                return _finding(finding.layer, runs, trouble, promised, fault)
    finally:
        runs.end()
    return None


def try_again(scratch: Path, trace: Trace, finding: Finding) -> Fault | None:
    """The fault of one kill again. Raises BenchError."""
    if finding.trouble is None:
        raise BenchError("a finding of a kill names its operation")
    runs = Runs(Scene.of(trace.about), scratch)
    try:
        return runs.kill(finding.trouble)[0]
    finally:
        runs.end()
