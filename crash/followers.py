"""Followers: a store follows a leader while its own disk is recorded, and loses its power at every operation.

The leader lives on, so what the follower confirmed to it is the promise: the leader waits for it now and then. After
the crash, the follower must hold some first units of the leader's history, at least those that it had confirmed as
fsynced. In the next life it follows the leader again, from what the crash left. On files, the leader has released the
beginning of its log, so a new follower gets a copy of the leader's checkpoint.

The network and the threads take turns as they like, so two records are not the same. A finding holds its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidelog.crash.commits import commits_noted
from tidelog.crash.errors import BenchError, Mismatch
from tidelog.crash.lives import Step
from tidelog.crash.model import contents_after
from tidelog.crash.oracle import difference
from tidelog.crash.record import RecordingDisk
from tidelog.crash.served import SEGMENT_BYTES, STORE, Stage, Still, contents_of, open_on
from tidelog.crash.trace import Trace, Tree, Unit, versions
from tidelog.crash.workloads import Life, long
from tidelog.replication.embedded import follow
from tidelog.server.serving import serve
from tidelog.store.errors import TidelogError

FOLLOWERS: Final = "followers"
SECONDS: Final = 60.0  # for a confirmation
STEPS: Final = 12  # of the leader, in each life of its follower
BEFORE: Final = 12  # before the first one
# Steps that fill more than a segment and release it.
RELEASE: Final[list[Step]] = [["many", 0, 100], ["many", 0, 100], ["checkpoint"], ["add", 0, 10]]
CONFIRMED: Final = 0.3  # so often the leader waits after a step
CHECKPOINTS: Final = 0.2  # of the follower, after a step, on files


class Leader:
    """A served store that takes steps. `life` knows its units."""

    def __init__(self, life: Life, port: int, rng: random.Random, *, checkpoints: bool) -> None:
        self.life = life
        self.port = port
        self.rng = rng
        self.checkpoints = checkpoints

    def confirmed(self, *, fsynced: bool) -> int:
        """Wait until the follower has confirmed everything. Returns how many units that is. Raises BenchError."""
        units = len(self.life.units)
        try:
            self.life.db.barrier("replicated", replicas=1, fsynced=fsynced, timeout=SECONDS)
        except TidelogError as error:
            raise BenchError(f"without any crash, a follower does not confirm: {error}") from error
        return units

    def steps(self, count: int) -> list[Step]:
        """Random steps."""
        return long(self.rng, count, checkpoints=self.checkpoints)


@contextmanager
def leading(stage: Stage, seed: str, *, checkpoints: bool) -> Iterator[Leader]:
    """A leader with a past. With checkpoints, its log does not begin at the beginning."""
    disk, root = stage.lay({})
    with open_on(disk, root, "no", Still()) as db, serve(db, port=0) as served:
        assert served.port is not None
        life = Life(db, "no", lambda *counts: None)
        leader = Leader(life, served.port, random.Random(f"{seed}/leader"), checkpoints=checkpoints)
        for step in [*leader.steps(BEFORE), *(RELEASE if checkpoints else [])]:
            life.run(step)
        yield leader


def _certain(units: list[Unit]) -> int:
    """How many of these units a store surely has, if it has the contents after all of them.

    Contents can come again, as after the deletion of all keys. Then nobody knows which units the leader sends next.
    """
    after = contents_after(units)
    return after.index(after[-1])


def record(
    stage: Stage,
    policy: str,
    leader: Leader,
    about: dict[str, Any],
    base: Tree | None = None,
    left: int = 0,
) -> Trace:
    """Follow a leader and record it. `left`: units that are in `base`. Raises BenchError if a copy is wrong anyway."""
    life, rng = leader.life, leader.rng
    inner, root = stage.lay(base or {})
    disk = RecordingDisk(inner, root)
    fsynced = written = _certain(life.units[:left])

    def promise(issued: int) -> None:
        disk.promise(fsynced, written, issued)

    def confirm(on_disk: bool) -> None:
        nonlocal fsynced, written
        synced = on_disk and policy != "no"  # this follower syncs at checkpoints only
        written = leader.confirmed(fsynced=synced)
        fsynced = written if synced else fsynced
        promise(len(life.units))

    promise(len(life.units))
    life.promise = lambda _, __, issued: promise(issued)
    options: dict[str, Any] = {"segment_bytes": SEGMENT_BYTES, "checkpoint_bytes": 0, "save": ()}
    url = f"tidelog://127.0.0.1:{leader.port}"
    try:
        with (
            commits_noted(),
            follow(
                *(root / STORE, url),
                timeout=SECONDS,
                fsync=policy,
                disk=disk,
                clock=Still(),
                retain_bytes=0,
                **options,
            ) as db,
        ):
            for step in leader.steps(STEPS):
                life.run(step)
                if rng.random() < CONFIRMED:
                    confirm(rng.random() < 0.5)
                if leader.checkpoints and rng.random() < CHECKPOINTS:
                    db.checkpoint()
                    fsynced = written
                    promise(len(life.units))
            confirm(True)
            found, expected = contents_of(db), contents_of(life.db)
            if found != expected:
                raise Mismatch(f"without any crash, in a follower {difference(found, expected)}")
    finally:
        life.promise = lambda *counts: None
    units: list[Unit] = list(life.units)
    return disk.trace({**about, "policy": policy, **versions()}, units)
