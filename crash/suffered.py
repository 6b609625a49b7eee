"""Suffered: what a store must do while its disk fails, and afterwards.

A workload of two lives is run on a disk that fails somewhere. Every call that fails must raise an error of tidelog. If
a call says that it was not stored, the store must serve what it served before. Afterwards the disk works again, the
store is opened, and the oracle judges it. Then a write must be taken.

The clock of these stores stands still, so each run has the same IDs, and the unit of a call that failed is known.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.api.sync import Store
from tidelog.crash.afterwards import PROBE
from tidelog.crash.errors import BenchError
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Fault, Kind, Oracle, Served
from tidelog.crash.served import Still, contents_of, open_on
from tidelog.crash.trace import Promised, Unit
from tidelog.crash.workloads import Life
from tidelog.disk.interface import Disk
from tidelog.store.errors import CheckpointFailed, NotStored, TidelogError

# An error or a kind of trouble -> how many operations can have it.
Seen = dict[int | str, int]


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
    seen     how many operations can have each trouble; only of a run without any
    units    of the store, the last one perhaps unknown
    """

    fault: Fault | None
    struck: str
    told: int
    seen: Seen
    units: list[Unit]
    promised: Promised


class Lived(NamedTuple):
    """A run before it is judged: its units, the last one perhaps unknown, and its promises."""

    units: list[Unit]
    unknown: Unit | None = None
    fsynced: int = 0
    written: int = 0
    told: int = 0
    fault: Fault | None = None


class Sufferer:
    """One run of a scene on a disk that fails.

    struck   the operation that failed first, "" if none has
    lived    in another process, which did `live`
    """

    def __init__(
        self,
        scene: Scene,
        struck: Callable[[], str],
        lived: Lived = Lived([]),
    ) -> None:
        self.scene = scene
        self._struck = struck
        self.units = list(lived.units)
        self.unknown = lived.unknown
        self.fsynced, self.written = lived.fsynced, lived.written
        self.told = lived.told
        self.fault = lived.fault
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
            if life.unknown is None and not self._struck():
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
    def lived(self) -> Lived:
        """The run before `judge`."""
        return Lived(*(self.units, self.unknown, self.fsynced, self.written, self.told, self.fault))

    @property
    def promised(self) -> Promised:
        issued = len(self.units) + (self.unknown is not None)
        return Promised(self.fsynced, self.written, issued)

    def result(self, seen: Seen | None = None) -> Suffered:
        asked = [*self.units, *([] if self.unknown is None else [self.unknown])]
        return Suffered(self.fault, self._struck(), self.told, seen or {}, asked, self.promised)
