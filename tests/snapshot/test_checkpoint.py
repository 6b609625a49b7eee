"""Tests of checkpoints: states of the engine go through a file and come back, while commands go on and things fail."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.rounds import rest_slow
from tests.small_disk import small_disk
from tests.snapshot.histories import World, some_commands
from tests.snapshot.world import environment

from tidelog.engine.cold import ColdStore
from tidelog.engine.effects.digest import digest
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.keys.freeze import Frozen
from tidelog.engine.rowkeys import Operation
from tidelog.snapshot import checkpoint
from tidelog.snapshot.checkpoint import Cancelled
from tidelog.snapshot.errors import CheckpointError
from tidelog.snapshot.rows import environment as module
from tidelog.snapshot.rows.meta import read_meta


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "checkpoint")
    yield world
    world.close()


@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_what_comes_back_is_what_was_frozen(world: World, seed: int) -> None:
    rng = random.Random(seed)
    for round_number in range(8):
        some_commands(world.engine, rng, 40)
        before = digest(world.state)
        world.checkpoint()
        assert world.stored() == before == digest(world.state), round_number
        if rng.random() < 0.4:
            world.reopen()
            assert digest(world.state) == before


@pytest.mark.parametrize("seed", rest_slow(range(4), 2))
def test_commands_that_go_on_meanwhile_are_not_in_it(world: World, seed: int) -> None:
    rng = random.Random(100 + seed)
    some_commands(world.engine, rng, 60)
    stop = threading.Event()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            mine = random.Random(seed)
            while not stop.is_set():
                with world.lock:
                    some_commands(world.engine, mine, 1)
                time.sleep(0)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(6):
            digests: list[str] = []
            world.checkpoint(frozen_digest=digests)
            assert world.stored() == digests[0]
    finally:
        stop.set()
        thread.join()
    assert not failures
    before = digest(world.state)
    world.checkpoint()
    assert world.stored() == before == digest(world.state)


class Failing:
    """A frozen state whose n-th row cannot be made."""

    def __init__(self, frozen: Frozen, at: int, error: BaseException) -> None:
        self.frozen, self.at, self.error = frozen, at, error

    def take_some(self, limit: int) -> int:
        return self.frozen.take_some(min(limit, 2))

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        for operation in self.frozen.rows(read):
            self.at -= 1
            if self.at < 0:
                raise self.error
            yield operation


@pytest.mark.parametrize("seed", rest_slow(range(4), 2))
def test_failures_anywhere_change_nothing(world: World, seed: int) -> None:
    rng = random.Random(200 + seed)
    some_commands(world.engine, rng, 50)
    world.checkpoint()
    stored = world.stored()
    errors = (CorruptBlock("a row"), MemoryError(), KeyboardInterrupt(), OSError(errno.EIO, "no"))
    for _ in range(20):
        some_commands(world.engine, rng, 15)
        error = rng.choice(errors)
        at = rng.randrange(30)
        asked = iter(range(1000))
        before = digest(world.state)
        way = rng.randrange(3)
        try:
            if way == 0:
                world.checkpoint(lambda frozen: Failing(frozen, at, error))
            elif way == 1:

                def sync(error: BaseException = error) -> None:
                    raise error

                world.checkpoint(sync=sync)
            else:
                world.checkpoint(cancelled=lambda: next(asked) >= at)
        except (CorruptBlock, MemoryError, KeyboardInterrupt, OSError, Cancelled):
            assert world.stored() == stored
            assert world.state.changes.frozen is None
        else:
            stored = world.stored()
            assert stored == before
        assert digest(world.state) == before
    before = digest(world.state)
    world.checkpoint()
    assert world.stored() == before


def test_the_log_is_synced_before_the_commit(world: World) -> None:
    world.engine("XADD s * a b")

    def sync() -> None:
        assert world.env.committed() == 0

    world.checkpoint(sync=sync)
    assert world.env.committed() == 1


def test_rows_of_another_moment_are_not_built_upon(world: World) -> None:
    world.engine("XADD s * a b")
    world.checkpoint()
    writing = world.env.write()
    writing.put(b"x", b"")
    writing.commit()
    world.engine("XADD s * a b")
    with pytest.raises(CheckpointError, match="newer checkpoint"):
        world.checkpoint()


def test_a_file_that_may_not_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAP_BYTES", 1 << 20)
    world = World(tmp_path / "checkpoint")
    world.engine("SET small 1")
    world.checkpoint()
    stored = world.stored()
    world.engine("SET large", b"x" * (1 << 20))
    with pytest.raises(CheckpointError, match="larger than"):
        world.checkpoint()
    assert world.stored() == stored
    world.engine("DEL large")
    world.checkpoint()
    assert world.stored() == stored
    world.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with small_disk(tmp_path / "small", "4m") as at:
        yield at


def test_a_full_disk(small: Path) -> None:
    world = World(small / "checkpoint")
    rng = random.Random(5)
    some_commands(world.engine, rng, 30)
    world.checkpoint()
    stored = world.stored()
    filler = small / "filler"
    free = os.statvfs(small)
    filler.write_bytes(bytes(free.f_bavail * free.f_bsize - (64 << 10)))
    for i in range(40):
        world.engine(f"SET big{i}", b"x" * 40000)
    some_commands(world.engine, rng, 10)
    before = digest(world.state)
    for _ in range(3):
        with pytest.raises(CheckpointError, match="disk or the quota is full"):
            world.checkpoint()
        assert world.stored() == stored
        assert digest(world.state) == before
    some_commands(world.engine, rng, 10)
    filler.unlink()
    before = digest(world.state)
    world.checkpoint()
    assert world.stored() == before
    world.close()
    with environment(small / "checkpoint"):
        pass


def test_progress_and_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "LONG_REST_S", 1e9)  # a busy machine would make the turns long
    for i in range(3000):
        world.engine(f"SET k{i} {i}")
    seen: list[int] = []
    world.checkpoint(progress=seen.append)
    assert len(seen) > 10 and seen == sorted(seen) and seen[-1] > 0


class OwnedLock:
    """A lock that knows its holder. `wanted`: a thread that looks finds that another one has it."""

    def __init__(self, wanted: bool = False) -> None:
        self._lock = threading.Lock()
        self._wanted = wanted
        self.owner = 0

    def acquire(self, blocking: bool = True) -> bool:
        if not blocking and self._wanted:
            return False
        done = self._lock.acquire(blocking)
        if done:
            self.owner = threading.get_ident()
        return done

    def release(self) -> None:
        self.owner = 0
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Watched:
    """A frozen state: how many of its rows are put by who holds the lock."""

    def __init__(self, frozen: Frozen, lock: OwnedLock) -> None:
        self._frozen, self._lock = frozen, lock
        self.held = self.free = 0

    def take_some(self, limit: int) -> int:
        return self._frozen.take_some(limit)

    def rows(self, read: ColdStore) -> Iterator[Operation]:
        for operation in self._frozen.rows(read):
            if self._lock.owner == threading.get_ident():
                self.held += 1
            else:
                self.free += 1
            yield operation


@pytest.mark.parametrize("beside", ["nobody", "a writer", "a thread that computes"])
def test_the_lock_is_held_beside_a_writer_that_never_sleeps(
    world: World, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or that thread would take the interpreter at every other call of LMDB, for 5 ms each time."""
    # Time in which the machine does something else is none in which this thread waits for a disk.
    monkeypatch.setattr(
        checkpoint,
        "time",
        SimpleNamespace(
            perf_counter=time.perf_counter, thread_time=time.perf_counter, sleep=time.sleep
        ),
    )
    lock: Any = OwnedLock()
    world.lock = lock
    for i in range(5000):
        world.engine(f"SET k{i} {i}")
    over = threading.Event()
    found: list[Watched] = []

    def work() -> None:
        while not over.is_set():
            with lock if beside == "a writer" else contextlib.nullcontext():
                sum(range(100))

    def watch(frozen: Frozen) -> Watched:
        found.append(Watched(frozen, lock))
        return found[0]

    worker = threading.Thread(target=work)
    if beside != "nobody":
        worker.start()
    try:
        world.checkpoint(watch)
    finally:
        over.set()
        if beside != "nobody":
            worker.join()
    (watched,) = found
    assert watched.held + watched.free == 5000
    assert not lock.owner
    if beside == "a writer":
        assert watched.held > 1000
    else:
        assert watched.held == 0


def always_held(world: World, monkeypatch: pytest.MonkeyPatch, rows: int) -> Any:
    """The lock of a world with rows to write. Every turn holds it that may."""
    monkeypatch.setattr(checkpoint, "LONG_REST_S", 0.0)
    lock: Any = OwnedLock(wanted=True)
    world.lock = lock
    for i in range(rows):
        world.engine(f"SET k{i} {i}")
    return lock


@pytest.mark.parametrize("at", [0, 700, 1500, None])
def test_the_lock_is_free_afterwards_and_whenever_others_are_asked(
    world: World, monkeypatch: pytest.MonkeyPatch, at: int | None
) -> None:
    """Also where every turn holds it."""
    lock = always_held(world, monkeypatch, 8000)  # a fast machine needs few turns for them
    asked: list[int] = []

    def ask(*_: object) -> bool:
        asked.append(lock.owner)
        return False

    def wrap(frozen: Frozen) -> Any:
        return Failing(frozen, 10_000 if at is None else at, KeyboardInterrupt())

    with contextlib.nullcontext() if at is None else pytest.raises(KeyboardInterrupt):
        world.checkpoint(wrap, sync=ask, cancelled=ask, progress=ask)
    assert not lock.owner and not any(asked)
    if at is None:
        assert len(asked) > 10


def test_a_turn_that_slept_is_followed_by_some_without_the_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is slow, or another thread computes: nobody is to wait for the lock on top of it."""
    lock = always_held(world, monkeypatch, 200)
    turns: list[bool] = []

    class Slow(Watched):
        def rows(self, read: ColdStore) -> Iterator[Operation]:
            for operation in super().rows(read):
                turns.append(lock.owner == threading.get_ident())
                time.sleep(2 * checkpoint.LONG_TURN_S)
                yield operation

    world.checkpoint(lambda frozen: Slow(frozen, lock))
    in_a_row = [len(list(rows)) for held, rows in groupby(turns) if not held][:-1]
    assert in_a_row == sorted(in_a_row) and in_a_row[-1] > 8
    assert sum(turns) < len(turns) / 4


KILLED = """
import os, sys, threading, random
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, sys.argv[2])
from tests.snapshot.histories import World, some_commands
from tidelog.engine.effects.digest import digest

world = World(Path(sys.argv[1]))
rng = random.Random(int(sys.argv[3]))
while True:
    some_commands(world.engine, rng, 30)
    print("about", digest(world.state), flush=True)
    world.checkpoint()
    print("did", digest(world.state), flush=True)
"""


@pytest.mark.parametrize("seed", rest_slow(range(3), 1))
def test_killed_at_any_moment(tmp_path: Path, seed: int) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "c"), str(root), str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]
    deadline = time.monotonic() + 0.3 + seed * 0.37
    while len(lines) < 3 or time.monotonic() < deadline:
        lines.append(process.stdout.readline())
    process.kill()
    lines += process.stdout.read().splitlines()
    process.stdout.close()
    process.wait()
    words = [
        line.split() for line in lines if len(line.split()) == 2 and len(line.split()[1]) == 64
    ]
    last = next((d for word, d in reversed(words) if word == "did"), None)
    possible = {last, words[-1][1]}
    world = World(tmp_path / "c")
    try:
        meta = read_meta(world.rows, world.env.path)
        assert (world.stored() if meta is not None else None) in possible
    finally:
        world.close()
