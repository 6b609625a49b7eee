"""Two snapshots of one store at a time: the second waits for the first, in this process or in another."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tidelog
from tidelog.disk.real import RealDisk
from tidelog.snapshot import portable

CHILD = """
import sys
from pathlib import Path
from tidelog.disk.real import RealDisk
from tidelog.snapshot import portable

with portable.held(RealDisk(), Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read(1)
"""


@contextmanager
def held_here(directory: Path) -> Iterator[Callable[[], object]]:
    """Another snapshot of this process; what is given ends it."""
    held, end = threading.Event(), threading.Event()

    def hold() -> None:
        with portable.held(RealDisk(), directory):
            held.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield end.set
    finally:
        end.set()
        thread.join()


@contextmanager
def held_elsewhere(directory: Path) -> Iterator[Callable[[], object]]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdin is not None and child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    try:
        yield child.stdin.close
    finally:
        child.stdin.close()
        assert child.wait() == 0
        child.stdout.close()


HOLDERS = (held_here, held_elsewhere)


@pytest.mark.parametrize("hold", HOLDERS)
def test_a_snapshot_waits_for_another(
    tmp_path: Path, hold: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Semaphore(0)
    lock = RealDisk.lock

    def watched(disk: RealDisk, path: Path) -> object:
        found = lock(disk, path)
        if found is None:
            refused.release()
        return found

    monkeypatch.setattr(RealDisk, "lock", watched)
    with tidelog.open(tmp_path / "s") as db:
        db.xadd("s", {"n": 1})
        made: list[object] = []
        with hold(tmp_path / "s" / "snapshots") as end:  # type: ignore[attr-defined]
            thread = threading.Thread(target=lambda: made.append(db.snapshot()))
            thread.start()
            for _ in range(3):
                assert refused.acquire(timeout=60), "it never came to the lock"
            assert not made
            end()
            thread.join(60)
            assert len(made) == 1


def test_scheduled_and_manual_snapshots_do_not_collide(tmp_path: Path) -> None:
    with tidelog.open(tmp_path / "s", snapshot_every=0.05, keep_snapshots=2) as db:
        for n in range(5):
            db.xadd("s", {"n": n})
            assert db.snapshot().lsn > n


@pytest.mark.parametrize("hold", HOLDERS)
def test_one_that_is_stuck_is_named(
    tmp_path: Path, hold: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portable, "WAIT_S", 0.1)
    with tidelog.open(tmp_path / "s") as db:
        db.xadd("s", {"n": 1})
        with hold(tmp_path / "s" / "snapshots"):  # type: ignore[attr-defined]
            with pytest.raises(
                tidelog.CheckpointFailed, match=r"still writing .* s \(process \d+ holds LOCK\)"
            ):
                db.snapshot()
        db.snapshot()


def test_closing_does_not_wait_for_another_processs_snapshot(tmp_path: Path) -> None:
    db = tidelog.open(tmp_path / "s")
    db.xadd("s", {"n": 1})
    failed: list[BaseException] = []

    def snapshot() -> None:
        try:
            db.snapshot()
        except tidelog.TidelogError as error:
            failed.append(error)

    with held_elsewhere(tmp_path / "s" / "snapshots"):
        thread = threading.Thread(target=snapshot)
        thread.start()
        db.close()
        thread.join(60)
        assert not thread.is_alive() and failed
