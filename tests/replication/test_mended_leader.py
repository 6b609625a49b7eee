"""A leader's write breaks off, so its log is recovered and begins another life beneath the links of its followers."""

from __future__ import annotations

import errno
import random
from contextlib import suppress
from pathlib import Path

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import caught_up, equal
from tests.server.durability.faulty_disk import Gate
from tests.until import until

import tidelog
from tidelog.disk.simulated import SimulatedDisk


def broken_and_mended(db: tidelog.Store, gate: Gate) -> None:
    """A write that breaks off, and one that begins a new life. From there on nothing is synced."""
    gate.fails = {"append": errno.EIO, "write": errno.EIO}
    with pytest.raises(tidelog.OutcomeUnknown):
        db.xadd("orders", {"n": "broken"})
    gate.fails.clear()
    db.xlen("orders")  # the log is recovered
    gate.open.clear()
    db.xadd("orders", {"n": "mended"})


@pytest.mark.parametrize("fsync", ["no", "everysec"])
def test_the_new_life_is_shipped_when_no_power_cut_can_take_it(pair: Pair, fsync: str) -> None:
    disk = SimulatedDisk(1)
    db = tidelog.open(Path("/leader"), disk=disk, fsync=fsync)
    gate = Gate(disk)
    serving = pair.serve(db)
    pair.proxy.leader = serving.port
    try:
        db.xadd("orders", {"n": 0})
        follower = pair.follow()
        equal(db, follower)
        broken_and_mended(db, gate)
        lives = len(inside.checkpoints(follower).epochs)
        assert len(inside.checkpoints(db).epochs) == lives + 1
        server = serving.server
        assert server is not None
        feeding = server.replicating.feeding
        until(lambda: feeding._awaited is inside.log(db), "no sync is asked for")
        assert len(inside.checkpoints(follower).epochs) == lives
        gate.open.set()
        equal(db, follower)
        assert pair.proxy.count == 1
        for seed in range(20):
            cut = disk.power_loss(random.Random(seed))
            with tidelog.open(Path("/leader"), disk=cut) as after:
                assert len(inside.checkpoints(after).epochs) >= lives + 1
        for number in range(10):
            db.xadd("orders", {"n": number})
            caught_up(db, follower)
    finally:
        gate.open.set()
        serving.close()
        with suppress(tidelog.StorePoisoned):
            db.close()
