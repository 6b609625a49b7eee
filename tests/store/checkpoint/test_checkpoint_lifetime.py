"""A store or its process ends while a checkpoint is being written; forks, interrupts and readers beside it."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tidelog.snapshot import checkpoint

SECONDS_MAX = 60.0


def add(db: tidelog.Store, count: int, key: str = "s") -> None:
    for start in range(0, count, 100):
        db.xadd_many(key, [{"n": start + i, "pad": "x" * 200} for i in range(100)])


def opened(path: Path, **options: Any) -> tidelog.Store:
    return tidelog.open(path, **{"fsync": "no", "checkpoint_bytes": 0, "save": (), **options})


class Slow:
    """Checkpoints that wait in the middle, until told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go = threading.Event(), threading.Event()
        do = checkpoint._Filling._do

        def waiting(filling: Any, operation: Any) -> None:
            self.begun.set()
            while not self.go.wait(0.001):
                filling._rest()
            do(filling, operation)

        monkeypatch.setattr(checkpoint._Filling, "_do", waiting)

    def start(self, db: tidelog.Store) -> tuple[threading.Thread, list[BaseException | int]]:
        told: list[BaseException | int] = []

        def run() -> None:
            try:
                told.append(db.checkpoint())
            except BaseException as error:
                told.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert self.begun.wait(SECONDS_MAX)
        return thread, told


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(monkeypatch)


def in_child(work: Any) -> int:
    """Run it in a forked child; 0 if it returned in time."""
    pid = os.fork()
    if pid == 0:
        code = 1
        faulthandler.dump_traceback_later(SECONDS_MAX / 2)
        try:
            work()
            code = 0
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(code)
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -1


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_fork_while_one_is_in_flight(tmp_path: Path, slow: Slow) -> None:
    db = opened(tmp_path / "db")
    add(db, 500)
    thread, told = slow.start(db)

    def child() -> None:
        calls = db.checkpoint, db.snapshot, lambda: db.xlen("s"), lambda: add(db, 1), db.close
        for call in calls:
            try:
                call()
            except tidelog.StoreClosed as error:
                assert "fork" in str(error), error
            else:
                raise AssertionError(f"it went on: {call}")

    for _ in range(5):
        assert in_child(child) == 0
        add(db, 100)
    assert in_child(lambda: None) == 0
    slow.go.set()
    thread.join()
    assert told == [6] and db.checkpoint() == db.info()["written_lsn"]
    assert db.verify() == []
    expected = db.digest()
    db.close()
    with opened(tmp_path / "db") as db:
        assert db.digest() == expected


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forks_beside_checkpoints_back_to_back(tmp_path: Path) -> None:
    db = opened(tmp_path / "db")
    add(db, 300)
    stop = threading.Event()

    def fold() -> None:
        while not stop.is_set():
            add(db, 100)
            db.checkpoint()

    thread = threading.Thread(target=fold)
    thread.start()

    def child() -> None:
        for call in (db.checkpoint, lambda: db.xlen("s"), db.close):
            try:
                call()
            except tidelog.StoreClosed:
                pass

    try:
        for _ in range(10):
            assert in_child(child) == 0
    finally:
        stop.set()
        thread.join()
    assert db.verify() == []
    db.close()


def test_close_from_another_thread(tmp_path: Path, slow: Slow) -> None:
    db = opened(tmp_path / "db")
    add(db, 500)
    thread, told = slow.start(db)
    expected = db.digest()
    closer = threading.Thread(target=db.close)
    closer.start()
    time.sleep(0.2)
    slow.go.set()
    closer.join(SECONDS_MAX)
    thread.join(SECONDS_MAX)
    assert not closer.is_alive() and not thread.is_alive()
    assert told[0] == 6 or isinstance(told[0], tidelog.StoreClosed)
    with pytest.raises(tidelog.StoreClosed):
        db.checkpoint()
    with opened(tmp_path / "db") as db:
        assert db.digest() == expected and db.verify() == []


@pytest.mark.parametrize("name", ["checkpoint", "snapshot", "close"])
def test_an_interrupt(tmp_path: Path, slow: Slow, name: str) -> None:
    """It ends the waiting; the next call finds everything in order."""
    db = opened(tmp_path / "db")
    add(db, 12_000)
    expected = db.digest()
    main = threading.get_ident()

    def interrupt() -> None:
        assert slow.begun.wait(SECONDS_MAX)
        time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        getattr(db, name)()
    thread.join()
    slow.go.set()
    if name != "close":
        assert db.checkpoint() == db.info()["written_lsn"]
        assert db.digest() == expected and db.verify() == []
    db.close()
    with opened(tmp_path / "db") as db:
        assert db.digest() == expected and db.verify() == []


EXIT = """
import os, sys, threading, time
import tidelog
from tidelog.snapshot import checkpoint

db = tidelog.open(sys.argv[1], fsync="no", checkpoint_bytes=0, save=())
way = sys.argv[2]
for n in range(60):
    db.xadd_many("s", [{"n": n * 100 + i, "pad": "x" * 200} for i in range(100)])
if way == "reading":
    db.checkpoint()
    from tidelog.store.residence import Residence
    def read():
        while True:
            Residence(1).relieve(db._core)
            for entry_id, _ in list(db.xrange("s", count=3000))[::500]:
                db.xrange("s", entry_id, entry_id)
    targets = [read] * 3
else:
    begun = threading.Event()
    do = checkpoint._Filling._do
    def slowly(filling, operation):
        begun.set()
        time.sleep(0.02)
        filling._rest()
        do(filling, operation)
    checkpoint._Filling._do = slowly
    def fold():
        try:
            (db.snapshot if way == "snapshot" else db.checkpoint)()
        except tidelog.StoreClosed:
            pass
    targets = [fold]
for target in targets:
    threading.Thread(target=target, daemon=True).start()
if way == "reading":
    time.sleep(0.3)
else:
    begun.wait()
db.xadd("s", {"n": 6000})
print(time.time(), flush=True)
if way == "collected":
    del db
"""


@pytest.mark.parametrize("way", ["checkpoint", "snapshot", "reading", "collected"])
def test_the_process_ends_in_the_middle(tmp_path: Path, way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXIT, str(tmp_path / "db"), way],
        capture_output=True,
        text=True,
        timeout=120,
    )
    ended = time.time()
    assert (done.returncode, done.stderr) == (0, "")
    assert ended - float(done.stdout) < 60, "it is prompt"
    with opened(tmp_path / "db") as db:
        numbers = [int(fields[b"n"]) for _, fields in db.xrange("s")]
        assert numbers == list(range(6001))
        assert db.verify() == []


READER = """
import sys, time
import tidelog
with tidelog.open(sys.argv[1], read_only=True) as db:
    print(db.xlen("s"), flush=True)
    time.sleep(600)
"""


def grown(
    db: tidelog.Store, path: Path, checkpoints: int, reader: tidelog.Store | None = None
) -> int:
    """Bytes of the file after checkpoints of changes that hold no more than before."""
    for n in range(checkpoints):
        db.xadd("s", {"n": n, "pad": "x" * 2000}, maxlen=100, approximate=False)
        db.checkpoint()
        if reader is not None and n % 5 == 0:
            reader.refresh()
    return path.stat().st_size


def test_readers_that_stay_open(tmp_path: Path) -> None:
    hours(tmp_path, 60)


@pytest.mark.soak
def test_readers_that_stay_open_for_a_thousand_checkpoints(tmp_path: Path) -> None:
    hours(tmp_path, 1000)


def hours(tmp_path: Path, checkpoints: int) -> None:
    """While a reader holds on to an old checkpoint the file grows, until it refreshes, closes or is killed."""
    root = tmp_path / "db"
    path = root / "checkpoint" / "data.mdb"
    with opened(root, retain_bytes=0) as db:
        add(db, 200)
        settled = grown(db, path, 160)
        assert grown(db, path, checkpoints) <= settled + (64 << 10), "it grows without a reader"

        reader = tidelog.open(root, read_only=True)
        expected = reader.digest()
        held = grown(db, path, checkpoints)
        assert held > settled, "a reader pins what it sees"
        assert reader.digest() == expected
        reader.refresh()
        assert reader.digest() == db.digest()
        room = grown(db, path, 30, reader)
        assert grown(db, path, checkpoints // 2, reader) <= room + (64 << 10), "it refreshes"
        reader.close()

        child = subprocess.Popen(
            [sys.executable, "-c", READER, str(root)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and int(child.stdout.readline()) == 100
        held = grown(db, path, 30)
        child.kill()
        child.wait()
        child.stdout.close()
        room = grown(db, path, 30)
        assert grown(db, path, checkpoints // 2) <= room + (64 << 10), "it was killed"
        assert db.verify() == []


def test_a_close_in_the_thread_that_writes_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the collector comes by there and runs a __del__ that closes the store."""
    db = opened(tmp_path / "s")
    add(db, 1000)
    write = checkpoint._Filling.fill

    def closing(filling: Any, frozen: Any) -> None:
        monkeypatch.undo()
        db.close()  # goes on beside
        write(filling, frozen)

    monkeypatch.setattr(checkpoint._Filling, "fill", closing)
    db.checkpoint()
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        try:
            with opened(tmp_path / "s") as again:
                assert again.xlen("s") >= 1000
            return
        except tidelog.StoreLocked:
            assert time.monotonic() < deadline
            time.sleep(0.01)
