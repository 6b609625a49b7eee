"""A sync covers nothing that was written after it began, and no segment but its own."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from tests.aof.world import ROOT, Life, Past, read_back

from tidelog.aof import durable
from tidelog.aof.errors import LogPoisoned
from tidelog.aof.log import FSYNCED, Log
from tidelog.crash.logs import UUID
from tidelog.disk.simulated import SimulatedDisk

PATIENCE_S = 60.0
LINES_MAX = 60


def test_what_is_written_while_a_sync_runs_is_not_called_durable() -> None:
    disk = SimulatedDisk()
    life = Life(disk, Past())
    lsn = life.add()
    came: list[int] = []

    def meanwhile(operation: str, path: Path) -> None:
        if operation == "fdatasync" and not came:
            came.append(life.add())

    disk.before = meanwhile
    life.log.wait(lsn, FSYNCED)
    assert came == [lsn + 1]
    assert life.log.written_lsn == lsn + 1
    assert life.log.synced_lsn == lsn
    assert max(p.lsn for p in durable.read(disk, ROOT / "aof", UUID)) == lsn
    nbytes, _ = life.log.exposed()
    assert nbytes > 0
    life.log.wait(lsn + 1, FSYNCED)
    assert life.log.synced_lsn == lsn + 1
    life.close()


def test_durable_is_written_when_the_sync_has_returned() -> None:
    disk = SimulatedDisk()
    life = Life(disk, Past())
    lsn = life.add()
    promised: list[int] = []

    def look(operation: str, path: Path) -> None:
        if operation == "fdatasync" and path.suffix == ".aof":
            disk.before = None
            found = durable.read(disk, ROOT / "aof", UUID)
            promised.append(max([0, *(promise.lsn for promise in found)]))

    disk.before = look
    life.log.wait(lsn, FSYNCED)
    assert promised == [0]
    life.close()


class Roll:
    """A roll that stops as its new segment gets its name, and ends with one unit in that segment."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.life = Life(self.disk, Past(), segment_bytes=20_000)
        while self.life.log.offset < 18_500:
            self.life.add(1, 500)
        self.life.wait(FSYNCED)
        self.first = self.life.log.next_lsn  # of the new segment
        self._named = threading.Event()
        self._go = threading.Event()
        self._failed: list[BaseException] = []
        self.disk.before = self._stop
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._named.wait(PATIENCE_S)

    def _stop(self, operation: str, path: Path) -> None:
        if operation == "rename" and path.suffix == ".aof":
            self._named.set()
            assert self._go.wait(PATIENCE_S)

    def _run(self) -> None:
        try:
            self.life.add(1, 2000)
        except BaseException as error:
            self._failed.append(error)

    def end(self) -> None:
        self._go.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive() and not self._failed


def roll_at_line(number: int) -> bool:
    """Sync beside a roll that ends before the given line of the sync. Whether the sync came to that line."""
    roll = Roll()
    log = roll.life.log
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_code is not Log._sync_file.__code__:
            return None
        if event == "line":
            lines += 1
            if lines == number:
                roll.end()
        return trace

    sys.settrace(trace)
    try:
        # The record is not there yet: what the log then says is that it does not know.
        with contextlib.suppress(LogPoisoned):
            log.sync_through(roll.first)
    finally:
        sys.settrace(None)
    reached = lines >= number
    if not reached:
        roll.end()
    assert log.failure is None, f"line {number}: the segment that ended was synced"
    records = 1 + len(read_back(roll.disk.synced()))  # the EPOCH is one
    assert records >= log.synced_lsn, f"line {number}: LSN {log.synced_lsn} is said to be durable"
    return reached


def test_a_sync_beside_a_roll_says_of_the_new_segment_only_what_it_synced_there() -> None:
    number = 1
    while roll_at_line(number):
        number += 1
        assert number < LINES_MAX
    assert number > 3, "the sync was not traced"
