"""Power is lost under a server that syncs always: whatever it had answered by then is on the disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests import inside
from tests.server.durability.load import Load, Promised, check

import tidelog
from tidelog.disk.simulated import SimulatedDisk

ROOT = Path("/db")
CLIENTS = 8


def image(db: tidelog.Store, disk: SimulatedDisk, pick: random.Random) -> SimulatedDisk:
    """The content of the disk if power fails at this moment."""
    core = inside.core(db)
    while True:
        try:
            with core.lock, core.log._mutex:  # no write and no sync is half done
                return disk.power_loss(pick)
        except RuntimeError:  # space was being prepared in the background
            pass


def run(seed: int, moments: int) -> None:
    print(f"seed {seed}")
    pick = random.Random(seed)
    disk = SimulatedDisk(seed)
    disk.mkdir(ROOT.parent) if not disk.exists(ROOT.parent) else None
    load = Load(CLIENTS)
    with (
        tidelog.open(ROOT, fsync="always", disk=disk) as db,
        tidelog.serve(db, port=0) as serving,
    ):
        for moment in range(moments):
            # By the log's own thread, or, as on a disk that is known to be quick, by the loop's.
            inside.log(db).slowest_s = 0.1 if moment % 2 else 0.0
            load.start(serving.port, pick.randint(5, 120))
            assert load.enough.wait(60)
            told = [Promised(list(p.added), list(p.acked)) for p in load.promised]
            after = image(db, disk, pick)
            load.stop()
            with tidelog.open(ROOT, disk=after) as again:
                check(again, told)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_answered_is_on_the_disk(seed: int) -> None:
    run(seed, 4)


@pytest.mark.slow
def test_many_moments() -> None:
    for seed in range(100, 110):
        run(seed, 20)
