"""Injected: operations of a disk fail while a store works, and the store must say so and keep what it acknowledged.

A workload is run again and again, each time with one error at one operation. In memory, where a failed fsync gives up
the pages and later ones succeed (disk/simulated.py), and on files with checkpoints. Nothing may hang: each run is done
by a forked process. Afterwards, in memory, power is also lost before the store is judged (crash/suffered.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Final, Protocol

from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Counts, Finding, Report
from tidelog.crash.forked import Died, Forked
from tidelog.crash.hooked import HookedDisk
from tidelog.crash.injector import CODES, ONCE, ONWARDS, SHORT, Injector, Trouble
from tidelog.crash.oracle import Fault, Kind
from tidelog.crash.suffered import Scene, Suffered, Sufferer
from tidelog.crash.trace import Promised, Trace, pack, versions
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.disk.simulated import SimulatedDisk

ERRORS: Final = "errors"
HUNG_S: Final = 30.0
PLACE: Final = "injected"  # in the scratch directory


class Suffering(Protocol):
    """A scene that can be run with each trouble of a layer.

    by   the tool that makes it fail, if there are several; ""
    """

    @property
    def by(self) -> str: ...

    @property
    def layer(self) -> str: ...

    @property
    def scene(self) -> Scene: ...

    @property
    def nothing(self) -> Trouble:
        """A trouble that never comes."""
        ...

    def ask(self, trouble: Trouble) -> Suffered | Died:
        """Run the scene with one trouble, and judge what is left."""
        ...

    def troubles(self, plain: Suffered) -> list[Trouble]:
        """All troubles that can come, from the run without any."""
        ...

    def close(self) -> None:
        """End the process of the runs."""
        ...


class OnDisk:
    """The layer ERRORS: operations of the disk fail, in memory or on files.

    scratch   an existing empty directory
    """

    layer = ERRORS
    by = ""

    def __init__(self, scene: Scene, scratch: Path, files: bool) -> None:
        self.scene = scene
        self.nothing = Trouble(files, ONCE, 0)
        self._forked: Forked[Trouble, Suffered] = Forked(
            lambda trouble: suffer(scene, trouble, scratch), HUNG_S
        )

    def ask(self, trouble: Trouble) -> Suffered | Died:
        return self._forked.ask(trouble)

    def troubles(self, plain: Suffered) -> list[Trouble]:
        files = self.nothing.files
        found = [
            Trouble(files, how, at, code)
            for code, how in product(CODES, (ONCE, ONWARDS))
            for at in range(1, plain.seen[code] + 1)
        ]
        if files:
            found += [Trouble(files, SHORT, at) for at in range(1, plain.seen[SHORT] + 1)]
        return found

    def close(self) -> None:
        self._forked.close()


def suffer(scene: Scene, trouble: Trouble, scratch: Path) -> Suffered:
    """Run a workload with one trouble of the disk, and judge what is left."""
    return (_on_files if trouble.files else _in_memory)(scene, trouble, scratch)


def _in_memory(scene: Scene, trouble: Trouble, scratch: Path) -> Suffered:
    injector = Injector(trouble)
    run = Sufferer(scene, injector.words)
    disk = SimulatedDisk(1)
    disk.before = injector.any
    root = Path("/")
    run.live(disk, root)
    disk.before = None
    rng = random.Random(f"{scene.seed}/{trouble}")
    images = [disk.power_loss(rng) for _ in range(2)]
    # After a failed sync the page cache shows what the disk does not have, until the recovery drops it.
    disk.kill()
    run.judge(disk, root, power=injector.lying)
    run.stays(disk.power_loss(rng), root)
    for image in images:
        run.judge(image, root, power=True)
    return run.result(injector.counts)


def _on_files(scene: Scene, trouble: Trouble, scratch: Path) -> Suffered:
    injector = Injector(trouble)
    run = Sufferer(scene, injector.words)
    root = emptied(scratch)
    try:
        with injector.short_writes():
            run.live(HookedDisk(RealDisk(), injector), root)
        run.judge(RealDisk(), root, power=False)
    finally:
        recipe.remove_tree(RealDisk(), root)
    return run.result(injector.counts)


def emptied(scratch: Path) -> Path:
    """An empty directory for a run. A process that hung has left its files."""
    disk = RealDisk()
    root = scratch / PLACE
    if disk.exists(root):
        recipe.remove_tree(disk, root)
    disk.mkdir(root)
    return root


def inject(
    suffering: Suffering,
    rng: random.Random,
    drawn: int,
    stopping: Callable[[], bool] = lambda: False,
) -> Report:
    """Run a workload with `drawn` of its troubles. Ends with the first finding.

    Raises BenchError if the workload fails without any.
    """
    report = Report()
    counts = report.of(suffering.layer)
    plain = suffering.ask(suffering.nothing)
    if isinstance(plain, Died):
        raise BenchError(f"without any error of the disk: {plain.words}")
    if plain.fault is not None or plain.told:
        raise BenchError(f"without any error of the disk: {plain.fault}, {plain.told} errors")
    troubles = suffering.troubles(plain)
    counts.there = len(troubles)
    for trouble in rng.sample(troubles, min(drawn, len(troubles))):
        if stopping():
            break
        found = suffering.ask(trouble)
        if _count(counts, found) is not None:
            report.findings.append(_finding(suffering, trouble, found))
            break
    return report


def _count(counts: Counts, found: Suffered | Died) -> Fault | None:
    counts.tried += 1
    fault = fault_of(found)
    if isinstance(found, Suffered):
        counts.distinct += bool(found.struck)
        counts.told += found.told > 0
    if fault is not None:
        counts.count(fault.kind)
    return fault


def fault_of(found: Suffered | Died) -> Fault | None:
    """The fault of a run."""
    return Fault(Kind.DIED, found.words) if isinstance(found, Died) else found.fault


def _finding(suffering: Suffering, trouble: Trouble, found: Suffered | Died) -> Finding:
    fault = fault_of(found)
    assert fault is not None
    units, promised, struck = [], Promised(0, 0, 0), "not known"
    if isinstance(found, Suffered):
        units, promised, struck = found.units, found.promised, found.struck
    by = {"by": suffering.by} if suffering.by else {}
    about = {**suffering.scene.about(), "struck": struck, **by, **versions()}
    trace = Trace(about, {}, units, [promised])
    kind, words = fault.kind.value, fault.words
    return Finding(suffering.layer, pack(trace), 1, (), False, kind, words, trouble=trouble)


def find_again(
    suffering: Suffering, finding: Finding, stopping: Callable[[], bool]
) -> Finding | None:
    """A finding of the same kind in another workload, by the same trouble at some operation. None if there is none."""
    trouble = finding.trouble
    assert trouble is not None
    if fault_of(suffering.ask(suffering.nothing)) is not None:
        return None  # another fault, which needs no error
    for each in trouble.nearest():
        if stopping():
            break
        found = suffering.ask(each)
        fault = fault_of(found)
        if fault is not None and fault.kind.value == finding.kind:
            return _finding(suffering, each, found)
    return None
