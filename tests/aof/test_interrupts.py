"""An exception at every line of the writer: the log stays good, or says that it is in doubt."""

import linecache
import sys
from types import FrameType
from typing import Any

import pytest
from tests.aof.world import Life, Past, data_only, read_back

from tidelog.aof import log as log_module
from tidelog.aof.errors import AofError
from tidelog.aof.log import FSYNCED, WRITTEN
from tidelog.disk.simulated import SimulatedDisk

LOG_FILE = log_module.__file__


class Trap:
    """Raises at the `at`-th line that is executed in aof/log.py."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.left = at
        self.error = error
        self.sprung = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self.line if frame.f_code.co_filename == LOG_FILE else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        # Not where a `with` ends, nor at a `try`: they lie outside the exception table's ranges, so an
        # exception would leave the lock held; only tracing can raise there.
        source = linecache.getline(LOG_FILE, frame.f_lineno)
        if (
            event == "line"
            and not self.sprung
            and not source.lstrip().startswith(("with ", "try:"))
        ):
            if self.left == 0:
                self.sprung = True
                raise self.error
            self.left -= 1
        return self.line


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
    trap = Trap(at, error)
    tracing = sys.gettrace()
    sys.settrace(trap)
    try:
        work(life)
    except (error, AofError):
        pass
    finally:
        sys.settrace(tracing)
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
    return trap.sprung


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_exception_at_every_line(error: type[BaseException]) -> None:
    at = 0
    while run(at, error):
        at += 1
    assert at > 300
