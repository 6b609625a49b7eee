"""Space prepared ahead: late, failing, left over, in the way of a close. It may only ever save time."""

import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.aof.opened import Opened
from tests.aof.world import ROOT, Life, Past, random_step, read_back, unit
from tests.until import until

from tidelog.aof import segment
from tidelog.aof.ahead import Ahead
from tidelog.aof.errors import LogPoisoned, NoSpace
from tidelog.aof.log import FSYNCED
from tidelog.crash.logs import SIZES
from tidelog.disk.interface import Disk
from tidelog.disk.real import RealDisk, RealFile
from tidelog.disk.simulated import SimulatedDisk

PATIENCE_S = 60.0
SPARE = segment.SPARE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "db"


class Late(Ahead):
    """Does what it is asked only when told to, in any order: the thread at its slowest."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        super().__init__(disk, directory)
        self.waiting: list[Callable[[], object]] = []

    def do(self, job: Callable[[], object]) -> None:
        self.waiting.append(job)

    def some(self, rng: random.Random) -> None:
        rng.shuffle(self.waiting)
        for _ in range(rng.randint(0, len(self.waiting))):
            self.waiting.pop()()


def spare_is_there(opened: Opened) -> bool:
    return (opened.root / "aof" / SPARE).exists()


def test_however_late_it_is_the_log_is_the_same() -> None:
    """Work that comes late, out of order, or never must not touch bytes that were written meanwhile."""
    for seed in range(60):
        rng = random.Random(seed)
        disk, past = SimulatedDisk(seed), Past()
        late = Late(disk, ROOT / "aof")
        life = Life(disk, past, ahead=late)
        for _ in range(60):
            random_step(life, rng)
            late.some(rng)
        life.wait(FSYNCED)
        for job in late.waiting:
            job()
        assert past.units_in(read_back(disk.killed())) == len(past.units)
        life.close()
        assert SPARE not in disk.listdir(ROOT / "aof")
        assert past.units_in(read_back(disk)) == len(past.units)


def test_a_roll_uses_the_spare_and_creates_nothing() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    while SPARE not in disk.listdir(ROOT / "aof"):
        life.add(1, 300)
    created = disk.operations.count(("create", ROOT / "aof" / SPARE))
    while SPARE in disk.listdir(ROOT / "aof"):
        began = len(disk.operations)
        life.add(1, 300)
    during = [name for name, path in disk.operations[began:]]
    assert "create" not in during and "fill" not in during
    assert during.index("fsync") < during.index("rename")
    assert disk.operations.count(("create", ROOT / "aof" / SPARE)) == created == 2
    life.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_its_errors_are_nobodys(code: int) -> None:
    """Filling, syncing and creating fail in the background only: callers see nothing of it."""
    disk, past = SimulatedDisk(), Past()
    failed: set[str] = set()
    may_fail = {"create", "fill"} | ({"fsync"} if code == errno.EIO else set())
    rng = random.Random(1)

    class Unlucky(Ahead):
        def do(self, job: Callable[[], object]) -> None:
            def before(operation: str, path: Path) -> None:
                if operation in may_fail and rng.random() < 0.3:
                    failed.add(operation)
                    raise OSError(code, "injected", str(path))

            disk.before = before
            try:
                job()
            finally:
                disk.before = None

    life = Life(disk, past, ahead=Unlucky(disk, ROOT / "aof"))
    for _ in range(200):
        life.add(1, 300)
    life.wait(FSYNCED)
    assert failed == may_fail
    assert life.log.failure is None
    life.close()
    assert SPARE not in disk.listdir(ROOT / "aof")
    assert past.units_in(read_back(disk)) == 200


def test_no_space_is_told_once_it_is_needed_and_gone_when_there_is_room() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add()

    def before(operation: str, path: Path) -> None:
        if operation in ("create", "fill"):
            raise OSError(errno.ENOSPC, "injected", str(path))

    disk.before = before
    with pytest.raises(NoSpace):
        for _ in range(100):
            life.add(1, 300)
    assert len(past.units) > 1, "what was prepared before is used up first"
    disk.before = None
    life.add(1, 300)
    life.close()
    assert past.units_in(read_back(disk)) == len(past.units)


def test_a_failed_sync_ahead_of_the_end_poisons() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add()

    def before(operation: str, path: Path) -> None:
        if operation == "fdatasync":
            raise OSError(errno.EIO, "injected", str(path))

    disk.before = before
    with pytest.raises(LogPoisoned):
        for _ in range(100):
            life.add(1, 300)
    assert life.log.synced_lsn == 0 and life.log.failure is not None
    disk.before = None
    with pytest.raises(LogPoisoned):
        life.log.close()
    assert SPARE not in disk.listdir(ROOT / "aof")


def test_a_spare_of_a_killed_process_is_not_trusted(root: Path) -> None:
    opened = Opened(root)
    opened.add()
    opened.close()
    left = root / "aof" / SPARE
    left.write_bytes(b"\xff" * 50_000)
    opened = Opened(root, **SIZES)
    for _ in range(100):
        opened.add(1, 300)
        opened.log.wait(opened.log.next_lsn - 1, FSYNCED)
    opened.close()
    assert not left.exists()
    again = Opened(root)
    assert again.recovered.quarantined is None and again.recovered.records == 103
    again.close()


def test_the_thread_makes_a_spare_and_close_removes_it(root: Path) -> None:
    opened = Opened(root, segment_bytes=200_000, chunk_bytes_min=4096, chunk_bytes_max=16384)
    while opened.log._ahead._spare is None:
        opened.add(1, 300)
    until(lambda: spare_is_there(opened))
    thread = opened.log._ahead._thread
    assert thread is not None and thread.daemon
    opened.close()
    assert not thread.is_alive() and not spare_is_there(opened)


def test_rolls_with_the_thread_while_others_sync(root: Path) -> None:
    opened = Opened(root, segment_bytes=100_000, chunk_bytes_min=4096, chunk_bytes_max=32768)
    stop = threading.Event()

    def sync() -> None:
        while not stop.is_set():
            opened.log.wait(opened.log.written_lsn, FSYNCED)

    threads = [threading.Thread(target=sync) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(4000):
        opened.add(1, 300)
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    opened.close()
    assert len(opened.names()) > 10
    assert read_back(opened.disk, root) == [e for n in range(1, 4001) for e in unit(n, 1, 300)]


class Gate:
    """Holds the thread inside a call on a file of a real disk until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        self.inside = threading.Event()
        self.open = threading.Event()
        real = getattr(RealFile, call)

        def held(file: RealFile, *args: Any) -> Any:
            if threading.current_thread().name == "tidelog-ahead":
                self.inside.set()
                assert self.open.wait(PATIENCE_S)
            return real(file, *args)

        monkeypatch.setattr(RealFile, call, held)


@pytest.mark.parametrize("end", ["close", "retire"])
@pytest.mark.parametrize("call", ["fill", "fsync", "fdatasync"])
def test_an_end_while_it_prepares(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str, end: str
) -> None:
    gate = Gate(monkeypatch, call)
    opened = Opened(root, segment_bytes=100_000, chunk_bytes_min=65536, chunk_bytes_max=65536)
    while not gate.inside.is_set():
        opened.add(1, 300)
        if opened.number > 240:  # the next ones would have to wait for it
            assert gate.inside.wait(PATIENCE_S)

    def finish() -> None:
        if end == "close":
            opened.log.close()
        else:
            with opened.log.lock:
                opened.log.retire()

    ending = threading.Thread(target=finish)
    ending.start()
    gate.open.set()
    ending.join(PATIENCE_S)
    assert not ending.is_alive() and not spare_is_there(opened)
    opened.held.close()
    assert len(read_back(RealDisk(), root)) == opened.number


def test_segments_that_end_while_another_one_is_cut(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them is cut and closed, and none of them twice."""
    gate = Gate(monkeypatch, "truncate")
    cut: list[str] = []
    real = RealFile.truncate

    def noted(file: RealFile, size: int) -> None:
        cut.append(os.path.basename(os.readlink(f"/proc/self/fd/{file._fd}")))
        real(file, size)

    monkeypatch.setattr(RealFile, "truncate", noted)
    opened = Opened(root, segment_bytes=20_000, chunk_bytes_min=4096, chunk_bytes_max=16384)
    while len(opened.names()) < 5:
        opened.add(1, 300)
    assert gate.inside.wait(PATIENCE_S)
    gate.open.set()
    opened.close()
    assert sorted(name for name in cut if name.endswith(".aof")) == sorted(opened.names())


def test_a_forked_child_leaves_the_spare_to_its_parent(root: Path) -> None:
    opened = Opened(root, segment_bytes=200_000, chunk_bytes_min=4096, chunk_bytes_max=16384)
    while opened.log._ahead._spare is None:
        opened.add(1, 300)
    until(lambda: spare_is_there(opened))
    pid = os.fork()
    if pid == 0:
        opened.log.abandon()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert spare_is_there(opened)
    for _ in range(300):
        opened.add(1, 300)
    opened.close()
    assert len(read_back(opened.disk, root)) == opened.number
