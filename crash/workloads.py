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
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

from tidelog.crash.commits import commits_noted
from tidelog.crash.errors import BenchError
from tidelog.crash.oracle import Contents, Model, WrongId, difference
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Stage, contents_of, open_on
from tidelog.crash.trace import Trace, Tree, Unit, versions
from tidelog.store.faces.sync import Store

POLICIES: Final = ("always", "everysec", "no")
Step = list[Any]

GROUP: Final = b"g"
ANN: Final = "ann"
BOB: Final = "bob"
PAD: Final = bytes(range(65, 91)) * 400
BESIDE_S: Final = 0.5
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


class Life:
    """One recorded life of a store. `run` takes a step, `end` closes the store and gives the trace.

    base       the disk at the beginning, with a store that holds the units `before`, or nothing
    snapshots  how many units each snapshot has, by its name
    """

    def __init__(
        self, stage: Stage, policy: str, base: Tree | None = None, before: list[Unit] | None = None
    ) -> None:
        self.units: list[Unit] = list(before or [])
        self.policy = policy
        self.snapshots: dict[str, int] = {}
        self._model = Model()
        for unit in self.units:
            self._model.apply(unit)
        self._fsynced = self._written = len(self.units)
        inner, root = stage.lay(base or {})
        self.disk = RecordingDisk(inner, root)
        self.disk.promise(self._fsynced, self._written, len(self.units))
        self._noted = commits_noted()
        self._noted.__enter__()
        try:
            self.db = open_on(self.disk, root, policy)
        except BaseException:
            self._noted.__exit__(None, None, None)
            raise

    def run(self, step: Step) -> None:
        """Take one step, and compare the store with the model. Raises BenchError."""
        name, *numbers = step
        self._failed: BaseException | None = None
        try:
            getattr(self, f"_{name}")(*numbers)
            if self._failed is not None:
                raise self._failed
            self._same(contents_of(self.db), f"after the step {step}")
        except WrongId as error:
            raise BenchError(f"without any crash, in the step {step}: {error}") from error

    def _same(self, found: Contents, when: str) -> None:
        expected = self._model.contents()
        if found != expected:
            raise BenchError(f"without any crash, {when}: {difference(found, expected)}")

    def end(self, about: dict[str, Any]) -> Trace:
        """Close the store."""
        try:
            units = len(self.units)
            self.db.close()
            self._fsynced = self._written = units
            self._promise(units)
        finally:
            self._noted.__exit__(None, None, None)
        if self.snapshots:
            about = {**about, "snapshots": self.snapshots}
        return self.disk.trace({**about, "policy": self.policy, **versions()}, self.units)

    def abandon(self) -> None:
        """Close the store after an error, whatever that does."""
        try:
            self.db.close()
        except Exception:
            pass  # the error that ended the life is the one to be told
        finally:
            self._noted.__exit__(None, None, None)

    # --- promises

    def _promise(self, issued: int) -> None:
        self.disk.promise(self._fsynced, self._written, issued)

    def _begin(self) -> None:
        self._promise(len(self.units) + 1)

    def _done(self, unit: Unit, *, fsynced: bool = False) -> None:
        """A call returned that was this unit."""
        self._model.apply(unit)
        self.units.append(unit)
        self._written = len(self.units)
        if fsynced or self.policy == "always":
            self._fsynced = len(self.units)
        self._promise(len(self.units))

    # --- steps

    def _key(self, stream: int) -> bytes:
        return b"stream%d" % stream

    def _fields(self, nbytes: int) -> dict[bytes, bytes]:
        return {b"unit": b"%d" % len(self.units), b"pad": PAD[:nbytes]}

    def _add(self, stream: int, nbytes: int, db: Store | None = None) -> None:
        key, fields = self._key(stream), self._fields(nbytes)
        self._begin()
        entry_id = (db or self.db).xadd(key, fields)
        self._done([["add", key, entry_id, _flat(fields)]])

    def _many(self, stream: int, count: int) -> None:
        key = self._key(stream)
        rows = [{**self._fields(40), b"n": b"%d" % n} for n in range(count)]
        self._begin()
        ids = self.db.xadd_many(key, rows)
        self._done([["add", key, i, _flat(row)] for i, row in zip(ids, rows, strict=True)])

    def _both(self, stream: int, maxlen: int) -> None:
        key, fields = self._key(stream), self._fields(30)
        self._begin()
        with self.db.pipeline(transaction=True) as unit:
            unit.xadd(key, fields).set(b"cursor", fields[b"unit"])
            unit.xtrim(key, maxlen=maxlen, approximate=False)
            entry_id = unit.execute()[0]
        self._done(
            [
                ["add", key, entry_id, _flat(fields)],
                ["set", b"cursor", fields[b"unit"]],
                ["trim", key, maxlen],
            ]
        )

    def _trim(self, stream: int, maxlen: int) -> None:
        key = self._key(stream)
        if key in self._model.streams:
            self._begin()
            self.db.xtrim(key, maxlen=maxlen, approximate=False)
            self._done([["trim", key, maxlen]])

    def _delete(self, stream: int, count: int) -> None:
        key = self._key(stream)
        if key in self._model.streams:
            ids = list(self._model.streams[key].entries)[1 : 1 + count]
            if ids:
                self._begin()
                self.db.xdel(key, *ids)
                self._done([["delete", key, ids]])

    def _group(self, stream: int) -> bytes:
        """Have a group. Returns the stream."""
        key = self._key(stream)
        if key not in self._model.streams or GROUP not in self._model.streams[key].groups:
            self._begin()
            self.db.xgroup_create(key, GROUP, id="0", mkstream=True)
            self._done([["group", key, GROUP]])
        return key

    def _read(self, stream: int, count: int) -> None:
        key = self._group(stream)
        expected = self._model.unread(key, GROUP)[:count]
        self._begin()
        found = self.db.xreadgroup(GROUP.decode(), ANN, {key: ">"}, count=count)
        self._done([["read", key, GROUP, ANN.encode(), count]])
        delivered = [entry_id for _, entries in found for entry_id, _ in entries]
        if delivered != expected:
            raise BenchError(f"{key!r} delivered {delivered} and not {expected}")

    def _claim(self, stream: int, count: int) -> None:
        key = self._group(stream)
        ids = self._pending(key)[:count]
        if ids:
            self._begin()
            self.db.xclaim(key, GROUP, BOB, 0, [*ids])
            self._done([["claim", key, GROUP, BOB.encode(), ids]])

    def _ack(self, stream: int, count: int) -> None:
        key = self._group(stream)
        ids = self._pending(key)[:count]
        if ids:
            self._begin()
            self.db.xack(key, GROUP, *ids)
            self._done([["ack", key, GROUP, ids]])

    def _pending(self, key: bytes) -> list[bytes]:
        return list(self._model.streams[key].groups[GROUP].pending)

    def _set(self, number: int, nbytes: int) -> None:
        key, value = b"string%d" % number, b"%d " % len(self.units) + PAD[:nbytes]
        self._begin()
        self.db.set(key, value)
        self._done([["set", key, value]])

    def _drop(self, stream: int) -> None:
        key = self._key(stream)
        if key in self._model.streams:
            self._begin()
            self.db.delete(key)
            self._done([["drop", key]])

    def _sync(self) -> None:
        units = len(self.units)
        self.db.barrier("fsynced")
        self._fsynced = max(self._fsynced, units)
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

        if self.policy != "always":
            self.disk.meanwhile = meanwhile
        try:
            self.db.barrier("fsynced")
        finally:
            self.disk.meanwhile = None
            for thread in threads:
                thread.join()
        self._fsynced = max(self._fsynced, units)
        self._promise(len(self.units))

    def _checkpoint(self) -> None:
        units = len(self.units)
        self.db.checkpoint()
        self._fsynced = max(self._fsynced, units)
        self._promise(len(self.units))

    def _snapshot(self) -> None:
        """A snapshot. It is not among the random steps of `long`, since it takes a quarter of a second."""
        units = len(self.units)
        self.snapshots[self.db.snapshot().path.name] = units
        self._fsynced = max(self._fsynced, units)
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
    life = Life(stage, policy, base, before)
    try:
        for step in steps:
            life.run(step)
    except BaseException:
        life.abandon()
        raise
    return life.end({**about, "steps": steps})
