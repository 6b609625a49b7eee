"""A follower stops reading while its disk is full or its memory is over its budget. It shows that, and that it lags."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest
from tests import inside
from tests.replication.conftest import Pair
from tests.replication.stores import equal
from tests.server.durability.faulty_disk import Gate, full
from tests.until import until

import tidelog
from tidelog.disk.simulated import SimulatedDisk
from tidelog.replication.link import Link
from tidelog.replication.status import lag_seconds


def test_with_a_full_disk(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "tidelog.replication")
    pair.db.xadd("orders", {"n": 0})
    disk = SimulatedDisk(1)
    url = f"tidelog://127.0.0.1:{pair.proxy.port}"
    with tidelog.follow(Path("/copy"), url, disk=disk, fsync="no", segment_bytes=4096) as db:
        gate = Gate(disk)
        equal(pair.db, db)
        link = inside.core(db).link
        assert isinstance(link, Link)
        full(gate)
        for number in range(50):
            pair.db.xadd("orders", {"n": number, "pad": "x" * 1000})
        until(lambda: "receives nothing until there is room" in caplog.text, "it does not tell")
        until(lambda: db.info()["replication"]["lag"] > 0)
        until(lambda: lag_seconds(inside.core(db), link.loop.time()) > 0)
        gate.fails.clear()
        equal(pair.db, db)
        until(lambda: "receives its leader's records again" in caplog.text)
        until(lambda: db.info()["replication"]["lag"] == 0)
    told = [line for line in caplog.messages if "until there is room" in line]
    assert len(told) == 1


def test_with_too_much_in_memory(pair: Pair) -> None:
    pair.db.xadd("orders", {"n": 0})
    db = pair.follow()
    equal(pair.db, db)
    durability = inside.core(db).durability
    durability.relief = threading.Event()  # as while a checkpoint makes room
    pair.db.xadd("orders", {"n": 1})
    until(lambda: "memory is over its budget" in db.info()["replication"]["stalled"])
    assert db.info()["replication"]["lag"] == 1
    link = inside.core(db).link
    assert isinstance(link, Link)
    assert lag_seconds(inside.core(db), link.loop.time()) > 0
    durability.relief = None
    equal(pair.db, db)
    until(lambda: not db.info()["replication"]["stalled"])
