"""A store's life in steps that are the same every time, with checkpoints in it; and the process that dies in one.

    python checkpoint_steps.py run DIRECTORY                    all steps; after each a line with how many that were
    python checkpoint_steps.py restore SNAPSHOT TARGET LSN      restore forward to that LSN

Time is moved by hand, so the state after n steps is the same in every process.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tidelog
from tidelog import testing
from tidelog.disk.real import RealDisk
from tidelog.snapshot.restore import restore

STEPS = 60
CHECKPOINTS = (3, 24, 40, 56)  # the steps after which one is made
SNAPSHOT = 48
PAD = "x" * 300


def opened(directory: Path, clock: testing.Clock, **options: Any) -> tidelog.Store:
    """Small segments, none of which stays longer than it has to."""
    given = {"fsync": "always", "checkpoint_bytes": 0, "save": (), "segment_bytes": 8192}
    return tidelog.open(directory, clock=clock, **{**given, "retain_bytes": 0, **options})


def step(db: tidelog.Store, clock: testing.Clock, number: int) -> None:
    """One call that changes something, or nothing: at most one unit of the log."""
    r = random.Random(number)
    clock.advance(0.01)
    key = f"s{r.randrange(3)}"
    way = number % 10
    if number < 3:
        db.xgroup_create(f"s{number}", "g", id="0", mkstream=True)
    elif way < 2:
        db.xadd(key, {"n": number, "pad": PAD[: r.randrange(300)]})
    elif way < 4:
        db.xadd_many(key, [{"n": number, "i": i, "pad": PAD} for i in range(r.randrange(2, 30))])
    elif way == 4:
        db.xreadgroup("g", "c", {key: ">"}, count=20)
    elif way == 5:
        pending = db.xpending_range(key, "g", min="-", max="+", count=7)
        db.xack(key, "g", "1-1", *(row["message_id"] for row in pending))
    elif way == 6:
        db.xdel(key, "1-1", *(entry_id for entry_id, _ in db.xrange(key, count=5)[::2]))
    elif way == 7:
        db.xtrim(key, maxlen=60)
    elif way == 8:
        with db.pipeline(transaction=True) as unit:
            unit.delete("s2")
            unit.xgroup_create("s2", "g", id="0", mkstream=True)
            unit.execute()
    else:
        with db.pipeline(transaction=True) as unit:
            unit.xadd("s0", {"n": number}).xadd("s1", {"n": number}).set("both", number)
            unit.execute()


def digests(directory: Path) -> list[str]:
    """The state before the first step and after each, from a store without checkpoints."""
    clock = testing.Clock()
    with opened(directory, clock, fsync="no") as db:
        found = [db.digest()]
        for number in range(STEPS):
            step(db, clock, number)
            found.append(db.digest())
    return found


def run(directory: Path) -> None:
    clock = testing.Clock()
    with opened(directory, clock) as db:
        for number in range(STEPS):
            step(db, clock, number)
            os.write(1, b"%d\n" % (number + 1))
            if number + 1 in CHECKPOINTS:
                tell(db.checkpoint, b"checkpoint")
            if number + 1 == SNAPSHOT:
                tell(db.snapshot, b"snapshot")


def tell(work: Callable[[], object], name: bytes) -> None:
    try:
        work()
        os.write(1, name + b"\n")
    except tidelog.CheckpointFailed as error:
        os.write(1, b"failed\n")
        os.write(2, f"{error}\n".encode())


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(Path(sys.argv[2]))
    else:
        restore(RealDisk(), Path(sys.argv[2]), Path(sys.argv[3]), until_lsn=int(sys.argv[4]))
        os.write(1, b"restored\n")
