"""Workloads: what a store is asked to do while it is recorded.

A workload is a list of steps, each a name and numbers, so that a part of it is a workload too (crash/shrink.py). The
numbers are resolved against the model when the step runs: "acknowledge the first two pending entries". After each step
the store must serve what the model says, so a fault that needs no crash is found here.

    small   a few of the twelve operations below around a sync: one drawn here, all by turns in crash/small.py
    long    many random steps over all commands that write (crash/commands.py) and several segments; on files with
            checkpoints, which release segments
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tidelog.api.sync import Store
from tidelog.crash.asking import ANN, BOB, GROUP, PAD, flat
from tidelog.crash.commands import TIMED, Commands, drawn
from tidelog.crash.errors import BenchError, WrongId
from tidelog.crash.lives import Step, recorded
from tidelog.crash.model import Contents, database_of, place
from tidelog.crash.oracle import difference
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import Jumping, Stage, contents_of, open_on
from tidelog.crash.trace import Trace, Tree, Unit
from tidelog.store.checkpoints import Checkpoints

POLICIES: Final = ("always", "everysec", "no")

BESIDE_S: Final = 0.5
# Seconds by which a clock is set: far enough that a store which believed it would give an ID twice.
JUMPS: Final = (-315_360_000, -86_400, -1, 1, 86_400, 315_360_000)
STREAMS: Final = (0, 0, 0, 1, 10)  # the last one is in another database
SMALL_MAX: Final = 4  # operations of a small workload

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
PREPARED_UNITS: Final = 4


def small(rng: random.Random, *, checkpoints: bool) -> list[Step]:
    """A small workload, drawn."""
    sequence = rng.choices(OPERATIONS, k=rng.randint(1, SMALL_MAX))
    at = rng.randint(0, len(sequence))
    sync = ["checkpoint"] if checkpoints else ["sync"]
    return [*PREPARED, *sequence[:at], sync, *sequence[at:]]


def long(rng: random.Random, steps: int, *, checkpoints: bool, threads: bool = True) -> list[Step]:
    """A workload of random steps over all commands, on streams of two databases."""
    found: list[Step] = []
    for _ in range(steps):
        way = rng.random()
        stream = rng.choice(STREAMS)
        if way < 0.12:
            found.append(["sync"])
        elif way < 0.20 and checkpoints:
            found.append(["checkpoint"])
        elif way < 0.24:
            found.append(["policy", rng.randrange(len(POLICIES))])
        elif way < 0.28 and threads:
            found.append(["threads", stream, rng.choice((2, 5))])
        elif way < 0.62:
            found.append(drawn(rng.choice, stream))
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
    """A workload whose clock jumps now and then. It has no step for which time must pass."""
    found: list[Step] = []
    for step in steps:
        if step[0] in TIMED:
            continue
        if rng.random() < 0.25:
            found.append(["jump", rng.choice(JUMPS)])
        found.append(step)
    return found


class Life(Commands):
    """A store that takes the steps of a workload (crash/asking.py).

    snapshots  how many units each snapshot has, by its name
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
        super().__init__(db, policy, promise, before, predicts=predicts, clock=clock)
        self.snapshots: dict[str, int] = {}
        self._beside = beside

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
            self._wrong(f"{when}: {difference(found, expected)}")

    def end(self) -> None:
        """Close the store."""
        self.db.close()
        self.fsynced = self.written = len(self.units)
        self._promise(len(self.units))

    # --- steps

    def _add(self, stream: int, nbytes: int, level: str | None = None) -> None:
        at, fields = self._at(stream), self._fields(nbytes)
        db = at.db if level is None else at.db.at(level)
        self._ask_ids(
            at.name,
            1,
            lambda ids: [["add", at.name, ids[0], flat(fields)]],
            lambda: [db.xadd(at.key, fields)],
        )

    def _many(self, stream: int, count: int) -> None:
        at = self._at(stream)
        rows = [{**self._fields(40), b"n": b"%d" % n} for n in range(count)]
        self._ask_ids(
            at.name,
            count,
            lambda ids: [["add", at.name, i, flat(row)] for i, row in zip(ids, rows, strict=True)],
            lambda: at.db.xadd_many(at.key, rows),
        )

    def _both(self, stream: int, maxlen: int) -> None:
        at, fields = self._at(stream), self._fields(30)
        cursor = place(database_of(at.name), b"cursor")

        def call() -> list[Any]:
            with at.db.pipeline(transaction=True) as call:
                call.xadd(at.key, fields).set(b"cursor", fields[b"unit"])
                call.xtrim(at.key, maxlen=maxlen, approximate=False)
                return [call.execute()[0]]

        self._ask_ids(
            at.name,
            1,
            lambda ids: [
                ["add", at.name, ids[0], flat(fields)],
                ["set", cursor, fields[b"unit"]],
                ["trim", at.name, maxlen],
            ],
            call,
        )

    def _trim(self, stream: int, maxlen: int) -> None:
        at = self._at(stream)
        if at.name in self._model.streams:
            self._ask(
                [["trim", at.name, maxlen]],
                lambda: at.db.xtrim(at.key, maxlen=maxlen, approximate=False),
            )

    def _delete(self, stream: int, count: int) -> None:
        at = self._at(stream)
        ids = self._entries(at.name)[1 : 1 + count]
        if ids:
            self._ask([["delete", at.name, ids]], lambda: at.db.xdel(at.key, *ids))

    def _read(self, stream: int, count: int) -> None:
        at = self._group(stream)
        expected = self._model.unread(at.name, GROUP)[:count]
        found = self._ask(
            [["read", at.name, GROUP, ANN.encode(), count]],
            lambda: at.db.xreadgroup(GROUP.decode(), ANN, {at.key: ">"}, count=count),
        )
        delivered = [entry_id for _, entries in found for entry_id, _ in entries]
        if delivered != expected:
            self._wrong(f"{at.name!r} delivered {delivered} and not {expected}")

    def _claim(self, stream: int, count: int) -> None:
        at = self._group(stream)
        ids = self._pending(at.name)[:count]
        if ids:
            self._ask(
                [["claim", at.name, GROUP, BOB.encode(), ids]],
                lambda: at.db.xclaim(at.key, GROUP, BOB, 0, [*ids]),
            )

    def _ack(self, stream: int, count: int) -> None:
        at = self._group(stream)
        ids = self._pending(at.name)[:count]
        if ids:
            self._ask([["ack", at.name, GROUP, ids]], lambda: at.db.xack(at.key, GROUP, *ids))

    def _set(self, number: int, nbytes: int) -> None:
        key, value = b"string%d" % (number % 10), b"%d " % len(self.units) + PAD[:nbytes]
        self._ask([["set", key, value]], lambda: self.db.set(key, value))

    def _drop(self, stream: int) -> None:
        at = self._at(stream)
        if at.name in self._model.streams:
            self._ask([["drop", at.name]], lambda: at.db.delete(at.key))

    def _jump(self, seconds: int) -> None:
        """Set the wall time. The next IDs are still greater than all earlier ones (crash/model.py)."""
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
                    self._add(stream, 10, "written")
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

    def _policy(self, number: int) -> None:
        """Switch the policy. Earlier acknowledgements keep their level."""
        policy = POLICIES[number]
        self.db.config_set("appendfsync", policy)
        self.policy = policy

    def _threads(self, stream: int, count: int) -> None:
        """Two threads write to one stream. The order of its IDs is the order of their units in the log."""
        at, fields = self._at(stream), self._fields(10)
        self._under_way = len(self.units) + 2 * count
        gate, noted = threading.Lock(), b"-"
        failed: list[BaseException] = []

        def write() -> None:
            nonlocal noted
            try:
                for _ in range(count):
                    entry_id = at.db.xadd(at.key, fields)
                    assert isinstance(entry_id, bytes)
                    with gate:
                        # Those of the other thread with lesser IDs are in the log before this one, so they are as safe.
                        for each, _ in at.db.at("written").xrange(at.key, noted, entry_id):
                            self._done([["add", at.name, each, flat(fields)]])
                            noted = b"(" + each
            except BaseException as error:
                failed.append(error)

        last = self._model.streams[at.name].last if at.name in self._model.streams else None
        noted = b"-" if last is None else b"(" + last
        self._promise(self._under_way)
        threads = [threading.Thread(target=write, name="tidelog-crash", daemon=True) for _ in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._under_way = 0
        if failed:
            raise failed[0]
        self._promise(len(self.units))

    def _checkpoint(self) -> None:
        units = len(self.units)
        self.db.checkpoint()
        core = self.db._core
        if isinstance(core.checkpoints, Checkpoints):
            # The store evicts now and then. Here it evicts at once, so that each run does the same.
            core.checkpoints.residence.next_survey = 0.0
            core.checkpoints.residence.relieve(core)
        self.fsynced = max(self.fsynced, units)
        self._promise(len(self.units))

    def _snapshot(self) -> None:
        """A snapshot, which takes a quarter of a second, so it is not among the random steps of `long`. The store keeps
        two (crash/served.py).
        """
        units = len(self.units)
        self.snapshots[self.db.snapshot().path.name] = units
        self.fsynced = max(self.fsynced, units)
        self._promise(len(self.units))


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
        db = open_on(disk, root, policy, clock, budget=about.get("budget"))
        return Life(db, policy, disk.promise, units, beside=disk, clock=clock)

    trace, life = recorded(stage, policy, steps, about, base, before, begin)
    if life.snapshots:
        trace.about["snapshots"] = life.snapshots
    return trace
