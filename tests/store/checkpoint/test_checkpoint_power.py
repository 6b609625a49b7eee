"""A process killed, or its power cut, at each write and sync that LMDB and the log make: everything promised is there.

The same steps every time (checkpoint_steps.py), under `always`. The first checkpoint creates its file; a later one
releases the segments before it; the file of a snapshot is a copy; a restore rolls one forward.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from tests.rounds import rest_slow, some_and_all
from tests.snapshot.lmdb_faults.faults import Ended, run_with_fault
from tests.store.checkpoint.checkpoint_steps import CHECKPOINTS, STEPS, opened
from tests.store.checkpoint.power import DISK, PATHS, World, check_store, child, promised

import tidelog
from tidelog import testing
from tidelog.aof import identity
from tidelog.aof.errors import DamagedFile, NotAStore
from tidelog.crash.preload.faults import Mode
from tidelog.snapshot.restore import restore
from tidelog.snapshot.scrub import HARMLESS, verify_store

EVERYTHING = [(Mode.BEFORE, 0), (Mode.AFTER, 0), (Mode.TORN, 0)]
EVERYTHING += [(Mode.POWER, seed) for seed in range(4)]


def fault(world: World, root: Path, nth: int, mode: Mode, seed: int) -> None:
    ended = run_with_fault(child("run", root), nth, mode, seed=seed, paths=PATHS)
    assert ended.killed, ended
    try:
        check_store(world, root, ended)
    except Exception as error:
        error.add_note(f"call {nth} {ended.calls[-1]} {mode} {seed}, {promised(ended)} promised")
        raise
    shutil.rmtree(root, ignore_errors=True)


def test_the_calls_are_those_that_are_to_be_tried(world: World) -> None:
    names = [Path(call.path).name for call in world.calls]
    assert names.count("data.mdb.new") == 3  # emptied, written, synced; then it gets its name
    assert names.count("manifest.json.new") == 3
    syncs = [call for call in world.calls if call.operation == "fdatasync"]
    assert sum(call.path.endswith("data.mdb") for call in syncs) == len(CHECKPOINTS) + 1
    assert sum(call.path.endswith(".aof") for call in syncs) > STEPS // 2


@pytest.mark.parametrize("seed", rest_slow(range(2), 1))
def test_a_sample(world: World, tmp_path: Path, seed: int) -> None:
    r = random.Random(seed)
    creation = [n for n in world.of_lmdb() if n <= 14]
    later = [n for n in world.of_lmdb() if n > 14]
    fault(world, tmp_path / "first", r.choice(creation), Mode.POWER, seed)
    for number, nth in enumerate(r.sample(later, 1 + seed)):
        fault(world, tmp_path / str(number), nth, *r.choice(EVERYTHING))


@pytest.mark.soak
@pytest.mark.parametrize("mode, seed", EVERYTHING)
def test_every_call_of_lmdb(world: World, tmp_path: Path, mode: Mode, seed: int) -> None:
    for nth in world.of_lmdb():
        fault(world, tmp_path / str(nth), nth, mode, seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(4))
def test_every_call_of_the_log(world: World, tmp_path: Path, part: int) -> None:
    for nth in range(1 + part, len(world.calls) - 4, 4):
        fault(world, tmp_path / str(nth), nth, *random.Random(nth).choice(EVERYTHING))


def restored(world: World, target: Path, nth: int, mode: Mode, seed: int) -> Ended:
    """A restore with a fault, one more into what it left, and what that holds."""
    with tidelog.open(world.root, read_only=True) as db:
        last = db.info()["written_lsn"]
    argv = child("restore", world.snapshot, target, str(last))
    paths = (*PATHS, "data.mdb.new", ".new")
    ended = run_with_fault(argv, nth, mode, seed=seed, paths=paths)
    try:
        if ended.killed:
            try:
                identity.read(DISK, target)
            except (NotAStore, DamagedFile):
                restore(DISK, world.snapshot, target, until_lsn=last)
        assert [f for f in verify_store(DISK, target) if f.check not in HARMLESS] == []
        with opened(target, testing.Clock()) as db:
            assert db.digest() == world.digests[-1]
    except Exception as error:
        error.add_note(f"call {nth} {ended.calls[-1:]} {mode} {seed}")
        raise
    shutil.rmtree(target)
    return ended


@pytest.mark.parametrize("faults", some_and_all(1, 3))
def test_a_restore(world: World, tmp_path: Path, faults: int) -> None:
    calls = restored(world, tmp_path / "whole", 0, Mode.BEFORE, 0).calls
    r = random.Random(1)
    for number in range(faults):
        nth = r.randrange(1, len(calls) + 1)
        assert restored(world, tmp_path / str(number), nth, *r.choice(EVERYTHING)).killed


@pytest.mark.soak
@pytest.mark.parametrize("mode, seed", EVERYTHING)
def test_every_call_of_a_restore(world: World, tmp_path: Path, mode: Mode, seed: int) -> None:
    calls = restored(world, tmp_path / "whole", 0, Mode.BEFORE, 0).calls
    for nth in range(1, len(calls) + 1):
        assert restored(world, tmp_path / str(nth), nth, mode, seed).killed
