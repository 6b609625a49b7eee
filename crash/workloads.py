"""Workloads: what a store is asked to do while it is recorded.

A workload is a list of steps, each a name and numbers, so that a part of it is a workload too (crash/shrink.py). The
numbers are resolved against the model when the step runs: "acknowledge the first two pending entries". After each step
the store must serve what the model says, so a fault that needs no crash is found here.

    small   one to three of the twelve operations below around a sync: all sequences, in a random order
    long    many random steps, over several segments; on files with checkpoints, which release segments
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

from tidelog.crash.errors import BenchError, WrongId
from tidelog.crash.lives import Step, recorded
from tidelog.crash.oracle import Contents, Model, difference, number, unit_text
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Jumping, Stage, Still, contents_of, open_on
from tidelog.crash.trace import Trace, Tree, Unit
from tidelog.store.faces.sync import Store

POLICIES: Final = ("always", "everysec", "no")

GROUP: Final = b"g"
ANN: Final = "ann"
BOB: Final = "bob"
PAD: Final = bytes(range(65, 91)) * 400
BESIDE_S: Final = 0.5
# Seconds by which a clock is set: far enough that a store which believed it would give an ID twice.
JUMPS: Final = (-315_360_000, -86_400, -1, 1, 86_400, 315_360_000)
SMALL_MAX: Final = 3  # operations of a small workload

# The twelve operations. The numbers are a stream, then a size or count.
OPERATIONS: Final[tuple[Step, ...]] = (
    ["add", 0, 10],
    ["add", 0, 2500],
    ["many", 0, 30],
    ["both", 0, 3],
    ["trim", 0, 2],
    ["delete", 0, 1],
    ["read", 0, 3],
    ["claim", 0, 2],
    ["ack", 0, 2],
    ["set", 0, 20],
    ["drop", 0],
    ["meanwhile", 0, 2],
)
PREPARED: Final[tuple[Step, ...]] = (["add", 0, 10], ["add", 0, 300], ["read", 0, 1], ["sync"])


def small(rng: random.Random, *, checkpoints: bool) -> Iterator[list[Step]]:
    """All small workloads, in a random order."""
    shapes = [
        (sequence, at)
        for length in range(1, SMALL_MAX + 1)
        for sequence in product(OPERATIONS, repeat=length)
        for at in range(length + 1)
    ]
    rng.shuffle(shapes)
    sync = ["checkpoint"] if checkpoints else ["sync"]
    for sequence, at in shapes:
        yield [*PREPARED, *sequence[:at], sync, *sequence[at:]]


def long(rng: random.Random, steps: int, *, checkpoints: bool) -> list[Step]:
    """A workload of random steps."""
    found: list[Step] = []
    for _ in range(steps):
        way = rng.random()
        stream = rng.randrange(2)
        if way < 0.12:
            found.append(["sync"])
        elif way < 0.20 and checkpoints:
            found.append(["checkpoint"])
        else:
            name, _, *rest = rng.choice(OPERATIONS)
            sizes = {"add": (0, 10, 100, 700, 3000), "many": (2, 30, 100), "set": (1, 600)}
            if name == "drop" and rng.random() < 0.7:
                name, rest = "add", [300]
            if rest:
                rest = [rng.choice(sizes.get(name, (1, 2, 3, 5)))]
            found.append([name, stream, *rest])
    return found


def jumping(rng: random.Random, steps: list[Step]) -> list[Step]:
    """A workload whose clock jumps now and then."""
    found: list[Step] = []
    for step in steps:
        if rng.random() < 0.25:
            found.append(["jump", rng.choice(JUMPS)])
        found.append(step)
    return found


class Life:
    """A store that takes the steps of a workload.

    units      what the store was asked to do and has done
    unknown    the unit of the call that is under way; None for none, or if the IDs cannot be told in advance
    snapshots  how many units each snapshot has, by its name
    promise    called with each promise: units fsynced, written and issued
    predicts   the clock of the store stands still, so the IDs of entries can be told before they are added
    clock      of the store, for the step `jump`; None for none
    beside     the recorder, which runs the second thread of the step `meanwhile`; None for no second thread
    """

    def __init__(
        self,
        db: Store,
        policy: str,
        promise: Callable[[int, int, int], object],
        before: list[Unit] | None = None,
        *,
        predicts: bool = False,
        beside: RecordingDisk | None = None,
        clock: Jumping | None = None,
    ) -> None:
        self.db = db
        self.policy = policy
        self.promise = promise
        self.units: list[Unit] = list(before or [])
        self.unknown: Unit | None = None
        self.snapshots: dict[str, int] = {}
        self.fsynced = self.written = len(self.units)
        self._predicts = predicts
        self._beside = beside
        self._clock = clock
        self._model = Model()
        for unit in self.units:
            self._model.apply(unit)

    def run(self, step: Step) -> None:
        """Take one step, and compare the store with the model. Raises BenchError."""
        name, *numbers = step
        self._failed: BaseException | None = None
        try:
            getattr(self, f"_{name}")(*numbers)
            if self._failed is not None:
                raise self._failed
            self._same(self._contents(), f"after the step {step}")
        except WrongId as error:
            raise BenchError(f"without any crash, in the step {step}: {error}") from error

    def check(self, when: str) -> None:
        """Compare the store with the model. Raises BenchError."""
        self._same(self._contents(), when)

    def _contents(self) -> Contents:
        """Everything that the store serves."""
        return contents_of(self.db)

    def _same(self, found: Contents, when: str) -> None:
        expected = self._model.contents()
        if found != expected:
            raise BenchError(f"without any crash, {when}: {difference(found, expected)}")

    def end(self) -> None:
        """Close the store."""
        self.db.close()
        self.fsynced = self.written = len(self.units)
        self._promise(len(self.units))

    # --- promises

    def _promise(self, issued: int) -> None:
        self.promise(self.fsynced, self.written, issued)

    def _begin(self, unit: Unit | None) -> None:
        """A call begins that is this unit, if it can be told in advance."""
        self.unknown = unit
        self._promise(len(self.units) + 1)

    def _done(self, unit: Unit, *, fsynced: bool = False) -> None:
        """A call returned that was this unit."""
        if self.unknown is not None and unit != self.unknown:
            raise BenchError(
                f"without any crash, {unit_text(unit)}, and not {unit_text(self.unknown)}"
            )
        self.unknown = None
        self._model.apply(unit)
        self.units.append(unit)
        self.written = len(self.units)
        if fsynced or self.policy == "always":
            self.fsynced = len(self.units)
        self._promise(len(self.units))

    # --- steps

    def _key(self, stream: int) -> bytes:
        return b"stream%d" % stream

    def _fields(self, nbytes: int) -> dict[bytes, bytes]:
        return {b"unit": b"%d" % len(self.units), b"pad": PAD[:nbytes]}

    def _ids(self, key: bytes, count: int) -> list[bytes] | None:
        """The IDs that a stream gives to its next entries; None if they depend on the time."""
        if not self._predicts:
            return None
        ms, sequence = Still.ms, -1
        if key in self._model.streams:
            ms, sequence = max((ms, sequence), number(self._model.streams[key].last))
        return [b"%d-%d" % (ms, sequence + n) for n in range(1, count + 1)]

    def _add(self, stream: int, nbytes: int, db: Store | None = None) -> None:
        key, fields = self._key(stream), self._fields(nbytes)

        def unit(ids: Any) -> Unit:
            return [["add", key, ids[0], _flat(fields)]]

        ids = self._ids(key, 1)
        self._begin(None if ids is None else unit(ids))
        self._done(unit([(db or self.db).xadd(key, fields)]))

    def _many(self, stream: int, count: int) -> None:
        key = self._key(stream)
        rows = [{**self._fields(40), b"n": b"%d" % n} for n in range(count)]

        def unit(ids: Any) -> Unit:
            return [["add", key, i, _flat(row)] for i, row in zip(ids, rows, strict=True)]

        ids = self._ids(key, count)
        self._begin(None if ids is None else unit(ids))
        self._done(unit(self.db.xadd_many(key, rows)))

    def _both(self, stream: int, maxlen: int) -> None:
        key, fields = self._key(stream), self._fields(30)

        def unit(ids: Any) -> Unit:
            return [
                ["add", key, ids[0], _flat(fields)],
                ["set", b"cursor", fields[b"unit"]],
                ["trim", key, maxlen],
            ]

        ids = self._ids(key, 1)
        self._begin(None if ids is None else unit(ids))
        with self.db.pipeline(transaction=True) as call:
            call.xadd(key, fields).set(b"cursor", fields[b"unit"])
            call.xtrim(key, maxlen=maxlen, approximate=False)
            entry_id = call.execute()[0]
        self._done(unit([entry_id]))

    def _trim(self, stream: int, maxlen: int) -> None:
        key = self._key(stream)
        if key in self._model.streams:
            unit: Unit = [["trim", key, maxlen]]
            self._begin(unit)
            self.db.xtrim(key, maxlen=maxlen, approximate=False)
            self._done(unit)

    def _delete(self, stream: int, count: int) -> None:
        key = self._key(stream)
        if key in self._model.streams:
            ids = list(self._model.streams[key].entries)[1 : 1 + count]
            if ids:
                unit: Unit = [["delete", key, ids]]
                self._begin(unit)
                self.db.xdel(key, *ids)
                self._done(unit)

    def _group(self, stream: int) -> bytes:
        """Have a group. Returns the stream."""
        key = self._key(stream)
        if key not in self._model.streams or GROUP not in self._model.streams[key].groups:
            unit: Unit = [["group", key, GROUP]]
            self._begin(unit)
            self.db.xgroup_create(key, GROUP, id="0", mkstream=True)
            self._done(unit)
        return key

    def _read(self, stream: int, count: int) -> None:
        key = self._group(stream)
        expected = self._model.unread(key, GROUP)[:count]
        unit: Unit = [["read", key, GROUP, ANN.encode(), count]]
        self._begin(unit)
        found = self.db.xreadgroup(GROUP.decode(), ANN, {key: ">"}, count=count)
        self._done(unit)
        delivered = [entry_id for _, entries in found for entry_id, _ in entries]
        if delivered != expected:
            raise BenchError(f"{key!r} delivered {delivered} and not {expected}")

    def _claim(self, stream: int, count: int) -> None:
        key = self._group(stream)
        ids = self._pending(key)[:count]
        if ids:
            unit: Unit = [["claim", key, GROUP, BOB.encode(), ids]]
            self._begin(unit)
            self.db.xclaim(key, GROUP, BOB, 0, [*ids])
            self._done(unit)

    def _ack(self, stream: int, count: int) -> None:
        key = self._group(stream)
        ids = self._pending(key)[:count]
        if ids:
            unit: Unit = [["ack", key, GROUP, ids]]
            self._begin(unit)
            self.db.xack(key, GROUP, *ids)
            self._done(unit)

    def _pending(self, key: bytes) -> list[bytes]:
        return list(self._model.streams[key].groups[GROUP].pending)

    def _set(self, number: int, nbytes: int) -> None:
        key, value = b"string%d" % number, b"%d " % len(self.units) + PAD[:nbytes]
        unit: Unit = [["set", key, value]]
        self._begin(unit)
        self.db.set(key, value)
        self._done(unit)

    def _drop(self, stream: int) -> None:
        key = self._key(stream)
        if key in self._model.streams:
            unit: Unit = [["drop", key]]
            self._begin(unit)
            self.db.delete(key)
            self._done(unit)

    def _jump(self, seconds: int) -> None:
        """Set the wall time. The next IDs are still greater than all earlier ones (crash/oracle.py)."""
        if self._clock is not None:
            self._clock.jump(seconds)

    def _sync(self) -> None:
        units = len(self.units)
        self.db.barrier("fsynced")
        self.fsynced = max(self.fsynced, units)
        self._promise(len(self.units))

    def _meanwhile(self, stream: int, count: int) -> None:
        """A sync, and while it runs another thread writes. Under `always` that thread would wait for a later sync."""
        self._add(stream, 10)
        units = len(self.units)
        threads: list[threading.Thread] = []

        def write() -> None:
            try:
                for _ in range(count):
                    self._add(stream, 10, self.db.at("written"))
            except BaseException as error:
                self._failed = error  # raised by `run`, in the thread of the workload

        def meanwhile(path: Path) -> None:
            if path.suffix == ".aof" and not threads:
                threads.append(threading.Thread(target=write, name="tidelog-crash", daemon=True))
                threads[0].start()
                # If the write needs a new segment, it waits for this sync. Then go on.
                threads[0].join(BESIDE_S)

        beside = self._beside
        if beside is not None and self.policy != "always":
            beside.meanwhile = meanwhile
        try:
            self.db.barrier("fsynced")
        finally:
            if beside is not None:
                beside.meanwhile = None
            for thread in threads:
                thread.join()
        self.fsynced = max(self.fsynced, units)
        self._promise(len(self.units))

    def _checkpoint(self) -> None:
        units = len(self.units)
        self.db.checkpoint()
        self.fsynced = max(self.fsynced, units)
        self._promise(len(self.units))

    def _snapshot(self) -> None:
        """A snapshot. It is not among the random steps of `long`, since it takes a quarter of a second."""
        units = len(self.units)
        self.snapshots[self.db.snapshot().path.name] = units
        self.fsynced = max(self.fsynced, units)
        self._promise(len(self.units))


def _flat(fields: dict[bytes, bytes]) -> list[bytes]:
    return [part for pair in fields.items() for part in pair]


def record(
    stage: Stage,
    policy: str,
    steps: list[Step],
    about: dict[str, Any],
    base: Tree | None = None,
    before: list[Unit] | None = None,
) -> Trace:
    """Run a workload and record it. Raises BenchError if the store is wrong without any crash."""

    def begin(disk: RecordingDisk, root: Path, units: list[Unit]) -> Life:
        clock = Jumping()
        db = open_on(disk, root, policy, clock)
        return Life(db, policy, disk.promise, units, beside=disk, clock=clock)

    trace, life = recorded(stage, policy, steps, about, base, before, begin)
    if life.snapshots:
        trace.about["snapshots"] = life.snapshots
    return trace
