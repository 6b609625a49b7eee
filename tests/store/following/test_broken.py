"""A follower that is interrupted, fails or loses power anywhere: its state is always that of its own log, and its log
a beginning of its leader's."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import inside
from tests.rounds import some_and_all
from tests.store.following.leader import batches, following, frames_of, replayed, roles
from tests.traps import Trap

import tidelog
from tidelog.aof import identity
from tidelog.aof.errors import AofError
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.digest import digest as digest_of

LEADER, COPY = Path("/leader"), Path("/copy")
NEEDS_SPACE = {"create", "write", "append", "fill", "rename", "mkdir"}


class World:
    """A leader with a short history, and what its follower does, step by step. Each step may be repeated."""

    def __init__(self, policy: str = "always") -> None:
        self.policy = policy
        self.there = SimulatedDisk()
        self.leader = self.open_leader()
        self.leader.xgroup_create("s", "g", id="0", mkstream=True)
        for n in range(6):
            self.leader.xadd_many("s", [{"n": n, "pad": "x" * 300} for _ in range(4)])
            self.leader.xreadgroup("g", "c", {"s": ">"}, count=3)
        self.leader.close()
        self.leader = self.open_leader()  # another life
        self.leader.set("a", "1")
        self.disk = SimulatedDisk()
        self.db: tidelog.Store | None = None

    def open_leader(self) -> tidelog.Store:
        return tidelog.open(LEADER, fsync="always", disk=self.there, segment_bytes=4096)

    def open_copy(self, disk: SimulatedDisk) -> tidelog.Store:
        return tidelog.open(COPY, fsync=self.policy, disk=disk, segment_bytes=4096)

    def store(self) -> tidelog.Store:
        assert self.db is not None
        return self.db

    # --- the steps

    def open(self) -> None:
        if self.db is None:
            self.db = self.open_copy(self.disk)

    def follow(self) -> None:
        roles(self.store()).follow("leader", 1)

    def adopt(self) -> None:
        roles(self.store()).adopt(roles(self.leader).uuid)

    def receive(self) -> None:
        db = self.store()
        at = following(db).last
        for batch in batches(self.leader, at, 1500, self.there):
            following(db).receive(batch)
            if following(db).last[0] >= at[0] + 3:
                return

    def receive_all(self) -> None:
        db = self.store()
        for batch in batches(self.leader, following(db).last, 1500, self.there):
            following(db).receive(batch)

    def reopen(self) -> None:
        if self.db is not None:
            self.db.close()
            self.db = None
        self.open()

    def promote(self) -> None:
        self.store().promote()

    def write(self) -> None:
        self.store().set("own", "1")

    def steps(self) -> list[Callable[[], None]]:
        return [
            *(self.open, self.follow, self.adopt, self.receive, self.receive, self.reopen),
            *(self.receive, self.receive_all, self.promote, self.write, self.follow),
            *(self.promote, self.reopen),
        ]

    # --- what must hold

    def look(self, db: tidelog.Store, disk: SimulatedDisk) -> int:
        """Check an open copy. Returns the last LSN of its log."""
        db.get("x")  # rebuilds memory if that is due
        uuid = identity.read(disk, COPY)
        assert uuid == roles(db).uuid
        with inside.lock(db):
            inside.log(db).flush()
        core = inside.core(db)
        assert (core.following is not None) == (db.role().kind == "follower")
        assert digest_of(core.state) == replayed(COPY, uuid, disk)
        assert [life.number for life in inside.checkpoints(db).epochs] == sorted(
            life.number for life in inside.checkpoints(db).epochs
        )
        own = list(frames_of(COPY, disk))
        theirs = list(frames_of(LEADER, self.there))
        common = own[: len(theirs)]
        if common:
            assert uuid == roles(self.leader).uuid
            assert common == theirs[: len(common)]
            if len(own) <= len(theirs):
                lsn = own[-1][0]
                assert digest_of(core.state) == replayed(LEADER, uuid, self.there, through=lsn)
        return own[-1][0] if own else 0


def run(world: World) -> None:
    for step in world.steps():
        step()


def test_the_whole_history() -> None:
    world = World()
    run(world)
    assert world.look(world.store(), world.disk) == 20
    assert world.store().get("own") == b"1"


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_power_cuts_at_every_operation(policy: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    world = World(policy)
    seen: set[int] = set()
    synced = 0

    def cut(operation: str, path: Path) -> None:
        image = world.disk.power_loss(rng)
        key = hash(frozenset(image.tree().items()))
        if key in seen:
            return
        seen.add(key)
        with world.open_copy(image) as db:
            assert world.look(db, image) >= synced

    world.disk.before = cut
    for step in world.steps():
        step()
        synced = int(world.store().info()["synced_lsn"])
    assert len(seen) > 60


class Fault:
    """Fails operation number `at` of a disk."""

    def __init__(self, disk: SimulatedDisk, at: int, code: int) -> None:
        self.disk, self.left, self.code = disk, at, code
        self.failed: str | None = None
        disk.before = self

    def __call__(self, operation: str, path: Path) -> None:
        if self.failed is not None or (self.code == errno.ENOSPC and operation not in NEEDS_SPACE):
            return
        if self.left:
            self.left -= 1
            return
        self.failed = operation
        raise OSError(self.code, "injected", str(path))


def with_fault(at: int, code: int) -> str | None:
    """The history with one fault. Returns the operation that failed, None if there are fewer."""
    world = World()
    fault = Fault(world.disk, at, code)
    for step in world.steps():
        for attempt in range(3):
            try:
                step()
                break
            except (tidelog.TidelogError, AofError) as error:
                error.add_note(f"{step.__name__}, operation {at} ({fault.failed}) fails")
                if not fault.failed or attempt == 2:
                    raise
                if world.db is not None and inside.log(world.db).failure is None:
                    world.look(world.db, world.disk)
                    continue
            # A failed sync has poisoned the log, or the store is not open: only an open finds out what is on the disk.
            if world.db is not None:
                with contextlib.suppress(tidelog.TidelogError):
                    world.db.close()
            world.disk.kill()
            world.db = world.open_copy(world.disk)
            world.look(world.db, world.disk)
            if step == world.promote and world.db.get("own") is None and world.db.role().follows:
                world.receive_all()  # the failed sync has lost frames
    world.disk.before = None
    world.look(world.store(), world.disk)
    assert world.store().get("own") == b"1" and world.store().get("a") == b"1"
    return fault.failed


@pytest.mark.parametrize("every", some_and_all(3, 1))
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_an_error_at_every_operation(code: int, every: int) -> None:
    at = 0
    failed = set()
    while (operation := with_fault(at, code)) is not None:
        failed.add(operation)
        at += every
    assert at > 25 and failed & {"create", "rename"}
    assert every > 1 or {"create", "rename"} <= failed


PLACES = ("following.py", "roles.py", "role.py", "opening.py", "landing.py", "log.py", "blocked.py")


def trap_at(at: int) -> Trap:
    """A trap at a line of PLACES."""
    return Trap(at, lambda code: code.co_filename.endswith(PLACES))


@pytest.mark.parametrize(
    ("number", "stride"),
    [
        *((number, 11) for number in (1, 2, 3, 6, 8, 10)),
        *(pytest.param(n, 3, marks=pytest.mark.slow) for n in (1, 2, 3, 6, 10)),
        pytest.param(8, 1, marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_at_lines_of_a_step(number: int, stride: int) -> None:
    at = 0
    while True:
        world = World("no")
        steps = world.steps()
        for step in steps[:number]:
            step()
        trap = trap_at(at)
        if not trap.breaks(steps[number]):
            break
        try:
            world.look(world.store(), world.disk)
            for step in steps[number:]:
                step()
            world.look(world.store(), world.disk)
        except BaseException as error:
            error.add_note(f"{steps[number].__name__} was interrupted at {trap.where}")
            raise
        at += stride
    assert at > 20


@pytest.mark.parametrize("count", some_and_all(6, 40))
def test_histories(count: int) -> None:
    """Random batches, cuts, interrupts, reopenings and power cuts, while the leader goes on and restarts."""
    for _ in range(count):
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        rng = random.Random(seed)
        world = World(rng.choice(("always", "everysec", "no")))
        for step in (world.open, world.follow, world.adopt):
            step()
        for _ in range(25):
            way = rng.randrange(7)
            db = world.store()
            if way == 0:
                world.reopen()
            elif way == 1:
                world.disk = world.disk.power_loss(rng)
                world.db = world.open_copy(world.disk)
            elif way == 2:
                world.disk = world.disk.killed()
                world.db = world.open_copy(world.disk)
            elif way == 3:
                world.leader.close()
                world.leader = world.open_leader()
            elif way == 4:
                write(world.leader, rng)
            else:
                write(world.leader, rng)
                trap = trap_at(rng.randrange(2000))

                def pull() -> None:
                    found = batches(
                        world.leader, following(db).last, rng.choice((1, 900, 9000)), world.there
                    )  # noqa: B023
                    for batch in found:
                        following(db).receive(batch)  # noqa: B023
                        if rng.random() < 0.2:  # noqa: B023
                            return

                trap.breaks(pull) if way == 5 else pull()
            world.look(world.store(), world.disk)


def write(db: tidelog.Store, rng: random.Random) -> None:
    way = rng.randrange(6)
    if way == 0:
        db.xadd_many("s", [{"n": n} for n in range(rng.choice((1, 40, 150)))])
    elif way == 1:
        db.xadd("s", {"pad": "x" * rng.choice((1, 500, 3000))}, maxlen=60)
    elif way == 2:
        found = db.xreadgroup("g", rng.choice("cd"), {"s": ">"}, count=rng.randrange(1, 20))
        if found:
            db.xack("s", "g", *[entry_id for entry_id, _ in found[0][1][::2]])
    elif way == 3:
        with db.pipeline(transaction=True) as pipe:
            for n in range(rng.randrange(1, 6)):
                pipe.set(f"k{n}", rng.random())
                pipe.xadd("t", {"n": n})
            pipe.execute()
    elif way == 4:
        db.set("a", rng.random(), px=rng.choice((1, 100000)))
    else:
        db.delete(rng.choice(("a", "t", "k1")))
