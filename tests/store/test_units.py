"""Units of the log, and acknowledgements whose unit was refused."""

from __future__ import annotations

import errno
from pathlib import Path

import tidelog
from tidelog import testing
from tidelog.aof import identity
from tidelog.aof.reading.recovery import read_all
from tidelog.disk.simulated import SimulatedDisk
from tidelog.engine.effects.effect import END, Effect

ROOT = Path("/store")
JOBS = 6
DONE = 4


def units(disk: SimulatedDisk) -> int:
    """How many units the log holds."""
    records: list[Effect] = []
    read_all(disk, ROOT / "aof", identity.read(disk, ROOT), records.extend, live=True)
    return sum(bool(record[0] & END) for record in records)


def test_done_and_is_one_unit() -> None:
    """A crash between the acknowledgement and what follows from the job would lose that, or do the job twice."""
    disk = SimulatedDisk()
    with tidelog.open(ROOT, fsync="no", disk=disk) as db:
        jobs, mails = db.queue("jobs"), db.queue("mails")
        jobs.put("order")
        job = jobs.get()
        assert job is not None
        before = units(disk)
        assert job.done_and(mails.new("to ann"), mails.new("to bob"), jobs.new("next"))
        assert units(disk) == before + 1
        assert (db.xlen("jobs"), db.xlen("mails")) == (1, 2)


def test_a_transaction_is_one_unit() -> None:
    disk = SimulatedDisk()
    with tidelog.open(ROOT, fsync="no", disk=disk) as db:
        db.set("k", "v")
        before = units(disk)
        with db.pipeline(transaction=True) as unit:
            unit.xadd("s", {"n": 1}).set("k", "w").delete("k")
            unit.execute()
        assert units(disk) == before + 1


def test_a_command_of_several_effects_is_one_unit() -> None:
    """XADD with MAXLEN adds and trims: no crash leaves the one without the other."""
    disk = SimulatedDisk()
    with tidelog.open(ROOT, fsync="no", disk=disk) as db:
        for n in range(5):
            before = units(disk)
            db.xadd("s", {"n": n}, maxlen=1, approximate=False)
            if n:
                assert units(disk) == before + 1
        assert db.xlen("s") == 1


def test_acknowledgements_that_were_gathered_outlive_a_full_disk() -> None:
    """The beat that was to write them was refused: the next one writes them."""
    disk, clock = SimulatedDisk(), testing.Clock()
    full = False

    def before(operation: str, path: Path) -> None:
        if full and operation in ("create", "write", "fill", "rename", "mkdir"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    disk.before = before
    with tidelog.open(ROOT, fsync="no", disk=disk, clock=clock, segment_bytes=4096) as db:
        jobs = db.queue("jobs")
        for n in range(JOBS):
            jobs.put(n)
        consumer = iter(jobs.consume("w", batch=JOBS))
        for _ in range(DONE):
            with next(consumer):
                pass
        full = True
        try:
            while True:
                db.set("filler", "x" * 100)
        except tidelog.OutOfSpace:
            pass
        clock.advance(2.0)
        full = False
        clock.advance(2.0)
        pending = db.xpending("jobs", "workers")
        assert pending["pending"] == JOBS - DONE, "the finished jobs were forgotten"
