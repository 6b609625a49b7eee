"""Logs: the log alone, below the store, in the form in which stores are recorded, explored and judged.

A workload of a log decides more than one of a store: which units are gathered for one frame, how large frames are, when
a sync begins, and which units are added while it runs. The records of a unit count as entries of one stream, so the
oracle judges a log as it judges a store. Beside that, the bytes that a recovery cuts off must be in quarantine/.

    ["add", records, padding, flush]   add a unit; without `flush` the log gathers it
    ["written"], ["fsynced"]           wait for the level
    ["beside", units]                  add a unit, wait for `fsynced`, and add units while that sync runs
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack

from tidelog.aof import identity, lock
from tidelog.aof.errors import NotAStore
from tidelog.aof.log import FSYNCED, WRITTEN, Log, Policy
from tidelog.aof.reading.recovery import Recovered, recover
from tidelog.aof.segment import SUFFIX
from tidelog.aof.start import Start
from tidelog.crash.errors import BenchError
from tidelog.crash.lives import Step, recorded
from tidelog.crash.model import Contents, Model
from tidelog.crash.oracle import Served
from tidelog.crash.record import RecordingDisk
from tidelog.crash.removed import deletion
from tidelog.crash.served import STORE, Stage, Still
from tidelog.crash.trace import Trace, Tree, Unit, tree_of
from tidelog.disk import recipe
from tidelog.disk.interface import Disk, File
from tidelog.engine.effects.effect import END, EPOCH, OPCODE, XADD, Effect

LOG: Final = "log"
KEY: Final = b"log"
UUID: Final = bytes(range(16))
PID: Final = 4711  # for LOCK
# A short life has several segments, and prepares several chunks of each.
SIZES: Final[dict[str, Any]] = {
    "segment_bytes": 6000,
    "chunk_bytes_min": 1024,
    "chunk_bytes_max": 4096,
}
NAMED: Final[dict[str, Policy]] = {"always": "always", "everysec": "everysec", "no": "no"}
PAD: Final = bytes(range(65, 91)) * 400


def long(rng: random.Random, steps: int) -> list[Step]:
    """A workload of random steps."""
    found: list[Step] = []
    for _ in range(steps):
        way = rng.random()
        if way < 0.55:
            flush = int(rng.random() < 0.7)
            found.append(["add", rng.randint(1, 3), rng.choice((0, 10, 100, 700)), flush])
        elif way < 0.60:
            found.append(["add", 1, rng.choice((3000, 9000)), 1])
        elif way < 0.70:
            found.append(["written"])
        elif way < 0.80:
            found.append(["beside", rng.randint(1, 3)])
        else:
            found.append(["fsynced"])
    return found


def _unit(number: int, life: int, records: int, padding: int) -> Unit:
    fields = [b"life", b"%d" % life, b"pad", PAD[:padding]]
    return [["add", KEY, b"%d-%d" % (number, n), fields] for n in range(1, records + 1)]


def _effects(unit: Unit) -> list[Effect]:
    effects: list[Effect] = [(XADD, entry_id, fields) for _, _, entry_id, fields in unit]
    effects[-1] = (XADD | END, *effects[-1][1:])
    return effects


def body_of(effects: list[Effect]) -> bytes:
    """The records of a unit as the log takes them."""
    return b"".join(msgpack.packb(effect) for effect in effects)


def data_only(effects: list[Effect]) -> list[Effect]:
    """The records of units: without those that begin an epoch."""
    return [effect for effect in effects if effect[0] & OPCODE != EPOCH]


def _contents(effects: list[Effect]) -> Contents:
    """The records of a log, in the form of the model."""
    model = Model()
    model.apply([["add", KEY, entry_id, fields] for _, entry_id, fields in data_only(effects)])
    return model.contents()


class Opened(NamedTuple):
    """A log that was opened: its lock, the identity of its store, and what the recovery found."""

    held: File
    uuid: bytes
    recovered: Recovered


def open_log(
    disk: Disk,
    root: Path,
    uuid: bytes,
    apply: Callable[[list[Effect]], object],
    start: Start | None = None,
) -> Opened:
    """Open a log as a store does: lock, identity, recovery. A new one gets `uuid`; `apply` gets the records."""
    recipe.make_directory(disk, root)
    held = lock.acquire(disk, root, PID)
    try:
        try:
            uuid = identity.read(disk, root)
        except NotAStore:
            if not identity.is_new(disk, root):
                raise
            identity.create(disk, root, uuid)
        return Opened(held, uuid, recover(disk, root, uuid, apply, start))
    except BaseException:
        held.close()
        raise


class _Life:
    """A log that takes the steps of a workload."""

    def __init__(
        self, disk: RecordingDisk, root: Path, policy: Policy, units: list[Unit], life: int
    ) -> None:
        self.units = list(units)
        self._disk = disk
        self._policy = policy
        self._life = life
        self._fsynced = self._written = len(units)
        self._held, _, recovered = open_log(disk, root, UUID, lambda effects: None)
        self.log = Log(
            disk,
            root,
            UUID,
            recovered,
            policy=policy,
            incarnation=life,
            clock=lambda: Still.ms,
            **SIZES,
        )
        self._wait(FSYNCED)  # a recovery promises everything that it found

    def run(self, step: Step) -> None:
        """Take one step."""
        match step:
            case ["add", records, padding, flush]:
                self._add(records, padding, bool(flush))
            case ["written"]:
                self._wait(WRITTEN)
            case ["fsynced"]:
                self._wait(FSYNCED)
            case ["beside", units]:
                self._beside(units)
            case _:
                raise BenchError(f"a log does not know the step {step}")

    def _promise(self) -> None:
        self._disk.promise(self._fsynced, self._written, len(self.units))

    def _put(self, unit: Unit, flush: bool) -> None:
        """[lock] Add a unit."""
        log = self.log
        effects = _effects(unit)
        body = body_of(effects)
        log.reserve(len(body))
        self.units.append(unit)
        self._promise()
        log.add(body, len(effects), log.last_now, flush)

    def _next(self, records: int, padding: int) -> Unit:
        return _unit(len(self.units) + 1, self._life, records, padding)

    def _add(self, records: int, padding: int, flush: bool) -> None:
        with self.log.lock:
            self._put(self._next(records, padding), flush)
        if flush:
            self._written = len(self.units)
            self._promise()
            if self._policy == "always":
                self._wait(FSYNCED)

    def _wait(self, level: int) -> None:
        units = len(self.units)
        self.log.wait(self.log.next_lsn - 1, level)
        self._written = max(self._written, units)
        if level == FSYNCED:
            self._fsynced = units
        self._promise()

    def _beside(self, units: int) -> None:
        self._add(1, 10, flush=False)  # so that there is something to sync

        def meanwhile(path: Path) -> None:
            log = self.log
            # The end of a segment is synced with the lock held, and nobody can add anything then.
            if path.suffix != SUFFIX or not log.lock.acquire(blocking=False):
                return
            try:
                for _ in range(units):
                    unit = self._next(1, 10)
                    if log.offset + 100 <= log.room:
                        self._put(unit, True)
            finally:
                log.lock.release()

        self._disk.meanwhile = meanwhile
        try:
            self._wait(FSYNCED)
        finally:
            self._disk.meanwhile = None

    def end(self) -> None:
        """Close the log."""
        units = len(self.units)
        try:
            self.log.close()
            self._fsynced = self._written = units
            self._promise()
        finally:
            self._held.close()


def record(
    stage: Stage,
    policy: str,
    steps: list[Step],
    about: dict[str, Any],
    base: Tree | None = None,
    before: list[Unit] | None = None,
) -> Trace:
    """Run a workload and record it."""

    def begin(disk: RecordingDisk, root: Path, units: list[Unit]) -> _Life:
        return _Life(disk, root / STORE, NAMED[policy], units, about["life"])

    return recorded(stage, policy, steps, about, base, before, begin)[0]


def serve(stage: Stage, image: Tree) -> Served:
    """Open the log that a crash left, and read it."""
    disk, root = stage.lay(image)
    effects: list[Effect] = []
    try:
        open_log(disk, root / STORE, UUID, effects.extend).held.close()
        segments = {path: data for path, data in image.items() if path.endswith(SUFFIX)}
        removed = deletion(segments, tree_of(disk, root), opened=True)
        if removed:
            return Served(None, f"the recovery removed data without a copy: {removed}")
        return Served(_contents(effects))
    except Exception as error:  # whatever it is, a legal crash must not cause it
        return Served(None, f"{type(error).__name__}: {error}")
