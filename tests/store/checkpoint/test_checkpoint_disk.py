"""Checkpoints on a disk that is full, or has no room for the map: the log goes on, and the next one succeeds."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import inside
from tests.rounds import some_and_all
from tests.small_disk import resize, small_disk, unmount
from tests.snapshot.lmdb_faults.faults import run_with_fault
from tests.store.checkpoint.checkpoint_steps import STEPS
from tests.store.checkpoint.power import PATHS, World, check_store, child
from tests.until import until

import tidelog
from tidelog.crash.preload.faults import Mode
from tidelog.snapshot.rows import environment
from tidelog.store.residence import Residence

KIB = 1 << 10
QUIET: dict[str, Any] = {"fsync": "no", "checkpoint_bytes": 0, "save": ()}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB, of which `fill` takes all but some."""
    with small_disk(tmp_path / "small") as at:
        yield at
        bound = tmp_path / "store" / "checkpoint"  # see `beside`
        if bound.is_mount():
            unmount(bound)


def fill(small: Path, left: int) -> None:
    """Leave this room, in bytes."""
    room = os.statvfs(small)
    (small / "filler").write_bytes(bytes(max(room.f_bavail * room.f_bsize - left, 0)))


def beside(tmp_path: Path, small: Path) -> Path:
    """A store whose checkpoint lies on the small file system, and its log elsewhere."""
    root = tmp_path / "store"
    with tidelog.open(root, **QUIET):
        pass
    for folder in small / "checkpoint", root / "checkpoint":
        folder.mkdir()
    subprocess.run(["mount", "--bind", small / "checkpoint", root / "checkpoint"], check=True)
    return root


def add(db: tidelog.Store, count: int, nbytes: int = 1000) -> None:
    for n in range(count):
        db.xadd("s", {"n": n, "pad": os.urandom(nbytes)})


@pytest.mark.parametrize("left", [0, 4 * KIB, 16 * KIB, 64 * KIB])
def test_a_full_disk(
    tmp_path: Path, small: Path, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    root = beside(tmp_path, small)
    with tidelog.open(root, **QUIET) as db:
        if left != 4 * KIB:  # or the first of all
            add(db, 10)
            db.checkpoint()
        add(db, 200)
        fill(small, left)
        for again in range(3):
            before = db.digest()
            with pytest.raises(
                tidelog.CheckpointFailed, match="[Nn]o space|[Ff]ree some space|has space"
            ):
                db.checkpoint()
            assert db.digest() == before
            add(db, 5)
        warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert len(warnings) == 3 and "the checkpoint of" in warnings[0].getMessage()
        assert "The log continues" in warnings[0].getMessage()
        checkpoints: Any = inside.checkpoints(db)
        assert checkpoints.info()["checkpoint_failure"]
        with pytest.raises(tidelog.CheckpointFailed):
            db.snapshot()
        expected = db.digest()
        with tidelog.open(root, read_only=True) as other:
            assert other.digest() == expected
    with tidelog.open(root, **QUIET) as db:  # closing and opening found no room either
        assert db.digest() == expected
        (small / "filler").unlink()
        lsn = db.checkpoint()
        assert lsn == db.info()["written_lsn"]
        assert db.digest() == expected and db.verify() == []
    with tidelog.open(root, **QUIET) as db:
        assert db.digest() == expected and db.verify() == []


def test_it_is_tried_again_by_itself(tmp_path: Path, small: Path) -> None:
    root = beside(tmp_path, small)
    with tidelog.open(root, **{**QUIET, "checkpoint_bytes": 64 * KIB}) as db:
        fill(small, 32 * KIB)
        add(db, 300)
        checkpoints: Any = inside.checkpoints(db)
        until(lambda: checkpoints.failure is not None)
        (small / "filler").unlink()
        until(lambda: checkpoints.failure is None and checkpoints.meta is not None)
        assert db.verify() == []


def test_writers_over_the_budget_do_not_hang(tmp_path: Path, small: Path) -> None:
    root = beside(tmp_path, small)
    with tidelog.open(root, **QUIET, memory_budget=1 << 20) as db:
        fill(small, 64 * KIB)
        threads = [threading.Thread(target=add, args=(db, 1500), daemon=True) for _ in range(3)]
        started = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        print(f"{time.monotonic() - started:.1f} s")
        checkpoints: Any = inside.checkpoints(db)
        until(lambda: checkpoints.failure is not None)  # noted behind the relief
        assert db.xlen("s") == 4500
        with pytest.raises(tidelog.CheckpointFailed):
            db.checkpoint()
        expected = db.digest()
    with tidelog.open(root, **QUIET) as db:
        assert db.digest() == expected


def test_a_map_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "store"
    monkeypatch.setattr(environment, "MAP_BYTES", 256 * KIB)
    with tidelog.open(root, **QUIET) as db:
        add(db, 10)
        db.checkpoint()
        add(db, 500)
        for _ in range(2):
            with pytest.raises(tidelog.CheckpointFailed, match="larger than"):
                db.checkpoint()
            add(db, 5)
        Residence(1).relieve(inside.core(db))
        expected = db.digest()
        with tidelog.open(root, read_only=True) as other:
            assert other.digest() == expected
    with tidelog.open(root, **QUIET) as db:
        assert db.digest() == expected
    monkeypatch.undo()
    with tidelog.open(root, **QUIET) as db:
        db.checkpoint()
        assert db.digest() == expected and db.verify() == []


CHECKPOINT = """
import sys, tidelog
with tidelog.open(sys.argv[1], fsync="no", checkpoint_bytes=0, save=()) as db:
    db.xadd("s", {"n": 1})
    try:
        db.checkpoint()
    except tidelog.CheckpointFailed as error:
        print(error)
"""


@pytest.mark.parametrize("left", [8 * KIB, 12 * KIB])
def test_a_disk_that_is_full_behind_the_first_pages(tmp_path: Path, small: Path, left: int) -> None:
    """There is room for data.mdb, and not for LMDB's table of readers: a store into its map was SIGBUS."""
    root = beside(tmp_path, small)
    fill(small, left)
    done = subprocess.run([sys.executable, "-c", CHECKPOINT, root], capture_output=True, text=True)
    assert done.returncode == 0, done
    assert f"No space left on device: '{root}/checkpoint/lock.mdb'" in done.stdout
    (small / "filler").unlink()
    with tidelog.open(root, **QUIET) as db:
        db.checkpoint()
        assert db.xlen("s") == 1 and db.verify() == []
    assert not (root / "checkpoint" / "lock.mdb.new").exists()


def test_the_log_and_the_checkpoint_fill_one_disk(small: Path) -> None:
    """All on one: calls are refused when there is no room for them either, and go on with it."""
    root = small / "store"
    with tidelog.open(root, **QUIET, segment_bytes=128 * KIB, retain_bytes=0) as db:
        add(db, 300)
        db.checkpoint()
        with pytest.raises(tidelog.OutOfSpace):
            while True:
                add(db, 1)
        expected = db.digest()
        with pytest.raises(tidelog.CheckpointFailed):
            db.checkpoint()
        assert db.digest() == expected
        resize(small, "16m")
        add(db, 1)
        db.checkpoint()
        expected = db.digest()
    with tidelog.open(root, **QUIET) as db:
        assert db.digest() == expected and db.verify() == []


@pytest.mark.parametrize("every", some_and_all(37, 11))
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_errors_of_lmdbs_writes(world: World, tmp_path: Path, code: int, every: int) -> None:
    errors_of(world, tmp_path, code, slice(code % every, None, every))


@pytest.mark.soak
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_error_of_every_write_of_lmdb(world: World, tmp_path: Path, code: int) -> None:
    errors_of(world, tmp_path, code, slice(None))


def errors_of(world: World, tmp_path: Path, code: int, some: slice) -> None:
    paths = [path for path in PATHS if path != ".aof"]
    calls = [call for call in world.calls if not call.path.endswith(".aof")]
    for nth in range(1, len(calls) + 1)[some]:
        root = tmp_path / str(nth)
        ended = run_with_fault(child("run", root), nth, Mode.ERROR, error=code, paths=paths)
        note = f"call {nth} {calls[nth - 1]}: {ended.err}"
        assert not ended.killed and ended.code == 0, note
        # How many pages a checkpoint writes depends on what came before it, so a run may be over before that call.
        assert "failed" in ended.out or len(ended.calls) < nth, note
        assert str(STEPS) in ended.out.split(), note
        try:
            check_store(world, root, ended)
        except Exception as error:
            error.add_note(note)
            raise
        shutil.rmtree(root)
