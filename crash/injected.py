"""Injected: operations of a disk fail while a store works, and the store must say so and keep what it acknowledged.

A workload is run again and again, each time with one error at one operation. In memory, where a failed fsync gives up
the pages and later ones succeed (disk/simulated.py), and on files with checkpoints. Every call that fails must raise an
error of tidelog, and nothing may hang: each run is done by a forked process. If a call says that it was not stored, the
store must serve what it served before. Afterwards the disk works again, the store is opened, and the oracle judges it;
in memory, power is also lost first. Then a write must be taken.

The clock of these stores stands still, so each run has the same IDs, and the unit of a call that failed is known.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from tidelog.crash.afterwards import PROBE
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Counts, Finding, Report
from tidelog.crash.forked import Died, Forked
from tidelog.crash.hooked import HookedDisk
from tidelog.crash.injector import CODES, ONCE, ONWARDS, SHORT, Injector, Trouble
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Fault, Kind, Oracle, Served
from tidelog.crash.served import Still, contents_of, open_on
from tidelog.crash.trace import Promised, Trace, Unit, pack, versions
from tidelog.crash.workloads import Life
from tidelog.disk import recipe
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk
from tidelog.disk.simulated import SimulatedDisk
from tidelog.store.errors import CheckpointFailed, NotStored, TidelogError
from tidelog.store.faces.sync import Store

ERRORS: Final = "errors"
HUNG_S: Final = 30.0
PLACE: Final = "injected"  # in the scratch directory


class Scene(NamedTuple):
    """A workload: its steps in each of two lives, and the policy."""

    policy: str
    lives: tuple[list[Step], list[Step]]
    seed: str

    def about(self) -> dict[str, Any]:
        """For the trace of a finding."""
        first, second = self.lives
        return {
            "seed": self.seed,
            "policy": self.policy,
            "steps": [*first, *second],
            "first": len(first),
        }

    @classmethod
    def of(cls, about: dict[str, Any]) -> Scene:
        steps, first = about["steps"], about["first"]
        return cls(about["policy"], (steps[:first], steps[first:]), about["seed"])


class Suffered(NamedTuple):
    """The result of a run with trouble.

    struck   the operation that failed first; "" if the run has fewer operations
    told     how many calls raised an error
    seen     for each error, how many operations can raise it; under 0 the number of system calls that write
    units    of the store, the last one perhaps unknown
    """

    fault: Fault | None
    struck: str
    told: int
    seen: dict[int, int]
    units: list[Unit]
    promised: Promised


class _Sufferer:
    """One run."""

    def __init__(self, scene: Scene, trouble: Trouble | None) -> None:
        self.scene = scene
        self.injector = Injector(trouble)
        self.units: list[Unit] = []
        self.unknown: Unit | None = None
        self.fsynced = self.written = 0
        self.told = 0
        self.fault: Fault | None = None
        self.served: Served | None = None  # by the first recovery

    def live(self, disk: Disk, root: Path) -> None:
        """Run both lives; after an error that ends the first one, there is no second one."""
        for steps in self.scene.lives:
            if not self._one_life(disk, root, steps):
                return

    def _tell(self, error: Exception) -> None:
        """Note an error that a call raised."""
        self.told += 1
        if isinstance(error, BenchError):
            self.fault = self.fault or Fault(Kind.WRONG, str(error))
        elif not isinstance(error, TidelogError) or not str(error):
            self.fault = self.fault or Fault(
                Kind.DIED, f"an error that is not tidelog's: {type(error).__name__}: {error}"
            )

    def _one_life(self, disk: Disk, root: Path, steps: list[Step]) -> bool:
        try:
            db = open_on(disk, root, self.scene.policy, Still())
        except Exception as error:
            self._tell(error)
            return False
        life = Life(db, self.scene.policy, lambda *counts: None, self.units, predicts=True)
        whole = self._take(life, steps)
        try:
            db.close()
            if life.unknown is None and self.injector.struck is None:
                life.fsynced = life.written = len(life.units)
        except Exception as error:
            # If the last sync failed, units that were only written may be gone. A failed checkpoint takes none.
            self._tell(error)
            whole = whole and isinstance(error, CheckpointFailed)
        self.units, self.unknown = life.units, life.unknown
        self.fsynced, self.written = life.fsynced, life.written
        return whole

    def _take(self, life: Life, steps: list[Step]) -> bool:
        for step in steps:
            try:
                life.run(step)
            except (NotStored, CheckpointFailed) as error:
                self._tell(error)
                life.unknown = None
                try:
                    life.check(f"after {step}, which said {error}")
                except Exception as second:
                    self._tell(second)
                    return False
            except Exception as error:
                self._tell(error)
                return False
        return True

    def judge(self, disk: Disk, root: Path, *, power: bool) -> None:
        """Open what is left, compare, and write once more."""
        if self.fault is not None:
            return
        asked = [*self.units, *([] if self.unknown is None else [self.unknown])]
        try:
            with open_on(disk, root, "always", Still()) as db:
                served = Served(contents_of(db))
                db.xadd(PROBE, {b"taken": b"1"})
            with open_on(disk, root, "always", Still()) as db:
                self._again(db, served)
            self.served = served
        except Exception as error:
            served = Served(None, f"{type(error).__name__}: {error}")
        self.fault = self.fault or Oracle(asked).judge(served, self.promised, power=power)

    def _again(self, db: Store, first: Served) -> None:
        second = contents_of(db)
        probe = second.pop(PROBE, ((),))
        if len(probe[0]) != 1 or second != first.contents:
            self.fault = Fault(
                Kind.LOST, "a write after the errors was lost, or took others with it"
            )

    def stays(self, disk: Disk, root: Path) -> None:
        """After `judge`, and a power cut behind it: what the recovery served must be there, and the write too."""
        if self.fault is not None or self.served is None:
            return
        try:
            with open_on(disk, root, "always", Still()) as db:
                self._again(db, self.served)
        except Exception as error:
            self.fault = Fault(Kind.REFUSED, f"{type(error).__name__}: {error}")

    @property
    def promised(self) -> Promised:
        issued = len(self.units) + (self.unknown is not None)
        return Promised(self.fsynced, self.written, issued)

    def result(self) -> Suffered:
        struck = self.injector.struck
        asked = [*self.units, *([] if self.unknown is None else [self.unknown])]
        return Suffered(
            self.fault,
            f"{struck[0]} of {struck[1]}" if struck else "",
            self.told,
            {**self.injector.seen, 0: self.injector.writes},
            asked,
            self.promised,
        )


def suffer(scene: Scene, trouble: Trouble, scratch: Path) -> Suffered:
    """Run a workload with one trouble, and judge what is left. `scratch` is an existing empty directory."""
    return (_on_files if trouble.files else _in_memory)(scene, trouble, scratch)


def _in_memory(scene: Scene, trouble: Trouble, scratch: Path) -> Suffered:
    run = _Sufferer(scene, trouble)
    disk = SimulatedDisk(1)
    disk.before = run.injector.any
    root = Path("/")
    run.live(disk, root)
    disk.before = None
    rng = random.Random(f"{scene.seed}/{trouble}")
    images = [disk.power_loss(rng) for _ in range(2)]
    # After a failed sync the page cache shows what the disk does not have, until the recovery drops it.
    disk.kill()
    run.judge(disk, root, power=run.injector.lying)
    run.stays(disk.power_loss(rng), root)
    for image in images:
        run.judge(image, root, power=True)
    return run.result()


def _on_files(scene: Scene, trouble: Trouble, scratch: Path) -> Suffered:
    run = _Sufferer(scene, trouble)
    inner = RealDisk()
    root = scratch / PLACE
    if inner.exists(root):
        recipe.remove_tree(inner, root)  # a process that hung has left it
    inner.mkdir(root)
    try:
        with run.injector.short_writes():
            run.live(HookedDisk(inner, run.injector), root)
        run.judge(RealDisk(), root, power=False)
    finally:
        recipe.remove_tree(inner, root)
    return run.result()


class Troubles:
    """All troubles of a workload. Raises BenchError if the workload fails without any."""

    def __init__(self, scene: Scene, scratch: Path, files: bool) -> None:
        plain = suffer(scene, Trouble(files, ONCE, 0), scratch)
        if plain.fault is not None or plain.told:
            raise BenchError(f"without any error of the disk: {plain.fault}, {plain.told} errors")
        self.all = [
            Trouble(files, how, at, code)
            for code, how in product(CODES, (ONCE, ONWARDS))
            for at in range(1, plain.seen[code] + 1)
        ]
        if files:
            self.all += [Trouble(files, SHORT, at) for at in range(1, plain.seen[0] + 1)]


def inject(
    scene: Scene,
    files: bool,
    scratch: Path,
    rng: random.Random,
    drawn: int,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Run a workload with `drawn` of its troubles. Ends with the first finding."""
    report = Report()
    counts = report.of(ERRORS)
    forked: Forked[Trouble, Suffered] = Forked(
        lambda trouble: suffer(scene, trouble, scratch), HUNG_S
    )
    try:
        troubles = Troubles(scene, scratch, files).all
        counts.there = len(troubles)
        for trouble in rng.sample(troubles, min(drawn, len(troubles))):
            if stopping():
                break
            found = forked.ask(trouble)
            if _count(counts, found) is not None:
                report.findings.append(_finding(scene, trouble, found))
                break
    finally:
        forked.close()
    return report


def _count(counts: Counts, found: Suffered | Died) -> Fault | None:
    counts.tried += 1
    fault = Fault(Kind.DIED, found.words) if isinstance(found, Died) else found.fault
    if isinstance(found, Suffered):
        counts.distinct += bool(found.struck)
        counts.told += found.told > 0
    if fault is not None:
        counts.count(fault.kind)
    return fault


def _finding(scene: Scene, trouble: Trouble, found: Suffered | Died) -> Finding:
    fault = Fault(Kind.DIED, found.words) if isinstance(found, Died) else found.fault
    assert fault is not None
    units, promised, struck = [], Promised(0, 0, 0), "not known"
    if isinstance(found, Suffered):
        units, promised, struck = found.units, found.promised, found.struck
    about = {**scene.about(), "struck": struck, **versions()}
    trace = Trace(about, {}, units, [promised])
    return Finding(
        ERRORS, pack(trace), 1, (), False, fault.kind.value, fault.words, trouble=trouble
    )


def find_again(
    scene: Scene, finding: Finding, scratch: Path, stopping: Callable[[], bool]
) -> Finding | None:
    """A finding of the same kind in another workload, by the same trouble at some operation. None if there is none."""
    trouble = finding.trouble
    assert trouble is not None
    forked: Forked[Trouble, Suffered] = Forked(lambda each: suffer(scene, each, scratch), HUNG_S)
    try:
        plain = forked.ask(Trouble(trouble.files, ONCE, 0))
        if isinstance(plain, Died) or plain.fault is not None:
            return None  # another fault, which needs no error
        for each in trouble.nearest():
            if stopping():
                break
            found = forked.ask(each)
            kind = Kind.DIED if isinstance(found, Died) else found.fault and found.fault.kind
            if kind is not None and kind.value == finding.kind:
                return _finding(scene, each, found)
    finally:
        forked.close()
    return None


def try_again(scratch: Path, trace: Trace, finding: Finding) -> Fault | None:
    """The fault of one trouble again."""
    assert finding.trouble is not None
    scene = Scene.of(trace.about)
    trouble = finding.trouble
    forked: Forked[Trouble, Suffered] = Forked(lambda each: suffer(scene, each, scratch), HUNG_S)
    try:
        found = forked.ask(trouble)
    finally:
        forked.close()
    return Fault(Kind.DIED, found.words) if isinstance(found, Died) else found.fault
