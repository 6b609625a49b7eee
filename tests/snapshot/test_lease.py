"""Tests of leases: a snapshot that a reader holds is not pruned, and a dead reader holds none."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.snapshot.portable.portable_store import DISK, opened, work

from tidelog.snapshot import lease, portable
from tidelog.snapshot.errors import SnapshotGone, SnapshotRefused
from tidelog.snapshot.manifest import NAME
from tidelog.snapshot.place import place_of
from tidelog.snapshot.sealed import open_sealed

CHILD = """
import sys
from tidelog.snapshot.place import place_of

with place_of(sys.argv[1]).hold():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with three snapshots."""
    root = tmp_path / "db"
    with opened(root) as db:
        for seed in range(3):
            work(db, random.Random(seed), 20)
            db.snapshot()
    return root


def paths(root: Path) -> list[Path]:
    return sorted(path for path in (root / "snapshots").iterdir() if path.name.isdigit())


@contextmanager
def reader(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lease."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def test_a_held_snapshot_is_passed_over_until_its_reader_is_killed(store: Path) -> None:
    first, second, third = paths(store)
    files = sorted(path.name for path in second.iterdir())
    with reader(second) as child, reader(second):
        assert sorted(path.name for path in second.iterdir()) == files, "no file was created"
        pruned = portable.prune(DISK, store / "snapshots", 1)
        assert [item.path for item in pruned.deleted] == [first]
        assert [item.path for item in pruned.held] == [second]
        assert [item.path for item in pruned.kept] == [third]
        assert paths(store) == [second, third]
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        assert portable.prune(DISK, store / "snapshots", 1).held, "the other reader still holds it"
    pruned = portable.prune(DISK, store / "snapshots", 1)
    assert ([item.path for item in pruned.deleted], pruned.held) == ([second], [])
    assert paths(store) == [third]


def test_keep_snapshots_passes_over_a_held_one(store: Path) -> None:
    first, *_ = paths(store)
    with reader(first), opened(store, keep_snapshots=1) as db:
        work(db, random.Random(7), 5)
        made = db.snapshot()
        assert paths(store) == [first, made.path]
    with opened(store, keep_snapshots=1) as db:
        work(db, random.Random(8), 5)
        made = db.snapshot()
        assert paths(store) == [made.path]


def test_a_snapshot_that_was_pruned_cannot_be_held(store: Path) -> None:
    first, second, _ = paths(store)
    place = place_of(first)
    portable.prune(DISK, store / "snapshots", 1)
    with (
        pytest.raises(SnapshotGone, match=f"{first}: the snapshot is gone"),
        place.hold(),
    ):
        pass
    shutil.rmtree(store / "snapshots")
    with pytest.raises(SnapshotGone), place_of(second).hold():
        pass


def test_a_foreign_lock_is_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "WAIT_S", 0.05)
    first, *_ = paths(store)
    with lease.unleased(DISK, first) as free:
        assert free
        with pytest.raises(
            SnapshotRefused, match=f"{NAME}: another process has held an exclusive flock"
        ):
            with place_of(first).hold():
                pass


def test_a_lease_ends_although_a_forked_child_has_its_descriptor(store: Path) -> None:
    first, *_ = paths(store)
    ended, ending = os.pipe()
    with place_of(first).hold():
        child = os.fork()
        if child == 0:
            os.close(ending)
            os.read(ended, 1)
            os._exit(0)
    try:
        with lease.unleased(DISK, first) as free:
            assert free
    finally:
        os.close(ending)
        os.close(ended)
        os.waitpid(child, 0)


def test_readers_and_prunes_at_the_same_time(tmp_path: Path) -> None:
    """A reader either gets a lease, and then reads everything, or an error that says that the snapshot is gone."""
    root = tmp_path / "db"
    with opened(root) as db:
        work(db, random.Random(1), 60)
        path = db.snapshot().path
    spare = Path(shutil.copytree(path, tmp_path / "spare"))
    ended = threading.Event()
    read = []
    wrong: list[BaseException] = []

    def reading() -> None:
        try:
            while not ended.is_set():
                try:
                    with place_of(path).hold():
                        sealed = open_sealed(place_of(path))
                        read.append(sum(1 for _ in sealed.rows.rows(b"")))
                        sealed.close()
                except SnapshotGone:
                    pass
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=reading) for _ in range(2)]
    for thread in threads:
        thread.start()
    deleted = 0
    try:
        while (deleted < 6 or not read) and not wrong:
            if not path.exists():
                shutil.copytree(spare, tmp_path / "new")
                (tmp_path / "new").rename(path)
            deleted += len(portable.prune(DISK, root / "snapshots", 0).deleted)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not wrong
    assert len(set(read)) == 1
