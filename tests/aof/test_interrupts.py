"""An exception at every line of the writer: the log stays good, or says that it is in doubt."""

import contextlib

import pytest
from tests.aof.world import Life, Past, read_back
from tests.rounds import some_and_all
from tests.traps import Trap

from tidelog.aof import log as log_module
from tidelog.aof.errors import AofError
from tidelog.aof.log import FSYNCED, WRITTEN
from tidelog.crash.logs import data_only
from tidelog.disk.simulated import SimulatedDisk

LOG_FILE = log_module.__file__


def work(life: Life) -> None:
    """Everything the writer does: begin, gather, flush, extend, roll, an own segment, a sync."""
    life.add(1, 300)
    life.add(2, 100, flush=False)
    life.add(1, 100, flush=False)
    life.wait(WRITTEN)
    life.add(1, 1500)
    life.wait(FSYNCED)
    life.add(2, 40, flush=False)
    life.add(1, 2500)
    life.add(1, 20)
    life.add(1, 50, flush=False)
    life.wait(FSYNCED)


def run(at: int, error: type[BaseException]) -> bool:
    disk, past = SimulatedDisk(at), Past()
    life = Life(disk, past, segment_bytes=3000)
    trap = Trap(at, lambda code: code.co_filename == LOG_FILE, error)
    with contextlib.suppress(AofError):
        trap.breaks(lambda: work(life))
    log = life.log
    if log.failure is None:
        # The log is sound: what it has is what was added, and it goes on. A unit whose `add` never
        # began is not in it.
        with log.lock:
            log.flush()
        left = read_back(disk.killed())
        past.units = past.units[: past.units_in(left)]
        assert len(data_only(left)) == len(left)
        life.add(3, 30)
        life.wait(FSYNCED)
    fsynced = past.fsynced
    disk.kill()
    for image in (disk.killed(), disk.power_loss(disk.rng)):
        assert past.units_in(read_back(image)) >= fsynced
    again = Life(disk, past)
    again.add()
    again.wait(FSYNCED)
    assert past.units_in(read_back(disk.killed())) == len(past.units)
    return bool(trap.where)


@pytest.mark.parametrize("every", some_and_all(3, 1))
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_exception_at_every_line(error: type[BaseException], every: int) -> None:
    at = 0 if error is MemoryError else every // 2  # other lines than those of the other error
    while run(at, error):
        at += every
    assert at > 300
