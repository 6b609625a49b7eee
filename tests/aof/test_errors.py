"""EIO and ENOSPC at every call: callers are told the truth, and what was acknowledged stays."""

import errno
import random
from pathlib import Path

import pytest
from tests.aof.world import ROOT, Life, Past, random_step, read_back
from tests.rounds import rest_slow

from tidelog.aof import durable
from tidelog.aof.errors import AofError, LogPoisoned, NoSpace
from tidelog.aof.log import FSYNCED, WRITTEN
from tidelog.crash.logs import UUID
from tidelog.disk.simulated import SimulatedDisk

STEPS = 14
FULL = {"create", "write", "append", "fill", "rename", "mkdir"}


class Fault:
    """Fails the operation number `at` of a disk, once."""

    def __init__(self, disk: SimulatedDisk, at: int, code: int) -> None:
        self.at = at
        self.code = code
        self.left = at
        self.failed: str | None = None
        disk.before = self

    def __call__(self, operation: str, path: Path) -> None:
        if self.left == 0 and self.failed is None:
            if self.code == errno.ENOSPC and operation not in FULL:
                return  # the next operation that needs space
            self.failed = operation
            raise OSError(self.code, "injected", str(path))
        self.left -= self.left > 0


def step(life: Life, rng: random.Random) -> bool:
    """One step. False if the life is over; whatever failed otherwise succeeds when tried again."""
    before = life.log.next_lsn, len(life.past.units)
    state = rng.getstate()
    try:
        random_step(life, rng)
    except (NoSpace, OSError):
        if life.log.failure is not None:
            return False
        assert len(life.past.units) == before[1]
        rng.setstate(state)
        random_step(life, rng)
    except LogPoisoned:
        return False
    return True


def run(seed: int, at: int, code: int) -> str | None:
    """A workload with one fault. Returns the operation that failed, None if there were fewer."""
    rng = random.Random(seed)
    disk, past = SimulatedDisk(seed), Past()
    fault = Fault(disk, at, code)
    steps = 0
    while steps < STEPS:
        try:
            life = Life(disk, past)
        except OSError:
            assert fault.failed
            disk.kill()
            continue
        while steps < STEPS:
            steps += 1
            if not step(life, rng):
                break
        if life.log.failure is None:
            if rng.random() < 0.5:
                life.close()
        else:
            with pytest.raises(LogPoisoned, match="confirmed"):
                life.log.close()
            life.held.close()
            if fault.failed in ("fsync", "fdatasync"):
                past.lost_power()  # the kernel gave the pages up
        disk.kill()
    disk.before = None
    for image in [disk.power_loss(rng) for _ in range(3)]:
        assert past.units_in(read_back(image)) >= past.fsynced
    assert past.units_in(read_back(disk)) >= past.written
    return fault.failed


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("seed", rest_slow(range(6), 2))
def test_an_error_at_every_call(seed: int, code: int) -> None:
    failed: set[str] = set()
    at = 0
    while (operation := run(seed, at, code)) is not None:
        failed.add(operation)
        at += 1
    assert at > 30
    wanted = {"create", "write", "append", "fill", "rename"}
    if code == errno.EIO:
        wanted |= {"pread", "fdatasync", "fsync", "sync_directory", "open", "map", "truncate"}
    assert wanted <= failed


def test_a_full_disk_refuses_and_goes_on_when_there_is_room() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    full = False

    def before(operation: str, path: Path) -> None:
        if full and operation in FULL - {"append"}:
            raise OSError(errno.ENOSPC, "injected", str(path))

    disk.before = before
    refused = 0
    for turn in range(60):
        full = turn % 3 != 0
        lsn, units = life.log.next_lsn, len(past.units)
        try:
            life.add(2, 300)
        except NoSpace as error:
            refused += 1
            assert "nothing was changed" in str(error)
            assert life.log.next_lsn == lsn or turn == 0
            assert len(past.units) == units
            assert life.log.failure is None
    life.wait(FSYNCED)
    assert refused > 5
    assert past.units_in(read_back(disk.killed())) == len(past.units) > 20
    life.close()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ESTALE])
@pytest.mark.parametrize("operation", ["create", "rename", "sync_directory"])
def test_a_segment_that_could_not_be_begun_is_begun_later(operation: str, code: int) -> None:
    """No descriptor was free, say: the disk was not asked, so nothing is in doubt."""
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add()
    short = False

    def before(named: str, path: Path) -> None:
        if short and named == operation:
            raise OSError(code, "injected", str(path))

    disk.before = before
    refused = 0
    for turn in range(90):
        short = turn % 3 != 0
        units = len(past.units)
        try:
            life.add(2, 300)
        except OSError as error:
            assert error.errno == code
            refused += 1
            assert len(past.units) == units and life.log.failure is None
    assert refused > 3
    life.wait(FSYNCED)
    assert past.units_in(read_back(disk.killed())) == len(past.units)
    assert past.units_in(read_back(disk.power_loss(random.Random(1)))) == len(past.units)
    life.close()


def test_after_a_failed_fsync_nothing_is_acknowledged() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add()
    life.wait(FSYNCED)
    good = life.log.next_lsn - 1
    life.add()

    def before(operation: str, path: Path) -> None:
        if operation == "fdatasync":
            disk.before = None  # the next one succeeds, and lies
            raise OSError(errno.EIO, "injected", str(path))

    disk.before = before
    with pytest.raises(LogPoisoned, match="outcome unknown"):
        life.wait(FSYNCED)
    for level in (WRITTEN, FSYNCED):
        with pytest.raises(LogPoisoned):
            life.wait(level)
    with pytest.raises(LogPoisoned):
        life.add()
    life.log.wait(good, FSYNCED)  # that one held before
    assert life.log.parked and life.log.synced_lsn == good
    answers: list[LogPoisoned | None] = []
    life.log.subscribe(good + 1, WRITTEN, answers.append)
    life.log.subscribe(good, FSYNCED, answers.append)
    assert isinstance(answers[0], LogPoisoned) and answers[1] is None
    with pytest.raises(LogPoisoned, match="1 records from LSN 3 on were never confirmed"):
        life.log.close()
    life.held.close()
    past.lost_power()
    # The page cache still shows the unit; recovery asks the disk.
    assert past.units_in(read_back(disk)) == 1


def test_errors_of_recovery_change_nothing() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    for _ in range(5):
        life.add(2, 50)
    disk.kill()
    path = ROOT / "aof" / "00000000000000000001.aof"
    file = disk.open(path, write=True)
    file.write(200, b"\xff")
    slots = disk.open(ROOT / "aof" / "DURABLE", write=True)
    slots.write(0, durable.pack(UUID, 1, 9))
    before = disk.tree()
    with pytest.raises(AofError, match="tidelog repair"):
        read_back(disk)
    after = disk.tree()
    after[str(ROOT / "LOCK")] = before[str(ROOT / "LOCK")]
    assert after == before


def test_a_gathered_frame_that_cannot_be_written_is_doubt_and_no_failed_fsync() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add()
    life.wait(FSYNCED)
    life.add(flush=False)

    def before(operation: str, path: Path) -> None:
        if operation == "append":
            raise OSError(errno.EIO, "injected", str(path))

    disk.before = before
    for level in (WRITTEN, FSYNCED):
        with pytest.raises(LogPoisoned):
            life.wait(level)
    assert life.log.in_doubt
    disk.before = None
    with life.log.lock:
        life.log.retire()
    life.held.close()
    again = Life(disk, past)
    again.add()
    again.wait(FSYNCED)
    assert past.units_in(read_back(disk.killed())) == len(past.units)


def test_everysec_does_not_unpark_a_poisoned_log() -> None:
    disk, past = SimulatedDisk(), Past()
    life = Life(disk, past)
    life.add()

    def before(operation: str, path: Path) -> None:
        if operation == "fdatasync":
            raise OSError(errno.EIO, "injected", str(path))

    disk.before = before
    with pytest.raises(LogPoisoned):
        life.wait(FSYNCED)
    life.log._park(False)
    assert life.log.parked and not life.log.in_doubt
    with life.log.lock:
        life.log.retire()
    assert isinstance(life.log.failure, OSError)  # retiring it does not make the disk good
