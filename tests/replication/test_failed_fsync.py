"""A follower whose disk fails an fsync tells of it, acknowledges nothing more, and its leader goes on."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest
from tests.replication.conftest import Pair
from tests.replication.stores import equal, last_lsn
from tests.server.durability.faulty_disk import Gate
from tests.until import until

import tidelog
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication import link as links


@pytest.mark.parametrize("fsync", ["always", "everysec"])
def test_it_is_told_and_nothing_more_is_acknowledged(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fsync: str
) -> None:
    monkeypatch.setattr(links, "REFUSED_PAUSE_S", 0.01)
    pair.db.xadd("orders", {"n": 0})
    disk = SimulatedDisk(1)
    db = tidelog.follow(
        Path("/copy"), f"tidelog://127.0.0.1:{pair.proxy.port}", disk=disk, fsync=fsync
    )
    try:
        gate = Gate(disk)
        equal(pair.db, db)
        client = pair.client()
        assert client.waitaof(0, 1, 60_000) == [1, 1]
        before = last_lsn(pair.db)
        gate.fails["fdatasync"] = errno.EIO
        feeds = pair.server.replicating.feeding.feeds
        (link,) = feeds
        client.xadd("orders", {"n": 1})
        until(
            lambda: "the disk of this store has failed" in db.info()["replication"]["link_failure"]
        )
        assert db.info()["replication"]["link"] != "connected"
        until(lambda: len(feeds) == 0, "the leader is not told")
        assert link.feed.fsynced_lsn <= before
        client.xadd("orders", {"n": 2})
        assert client.wait(1, 100) == 0
        gate.fails.clear()  # a second fsync proves nothing of what the first one lost
        assert client.waitaof(0, 1, 100)[1] == 0
        assert not len(feeds) and pair.proxy.count == 1
        told = [line for line in caplog.messages if "the disk of this store has failed" in line]
        assert len(told) == 1
    finally:
        with suppress(tidelog.StorePoisoned):
            db.close()
    with tidelog.follow(
        Path("/copy"), f"tidelog://127.0.0.1:{pair.proxy.port}", disk=disk, fsync=fsync
    ) as again:
        equal(pair.db, again)
