"""A store with queues: delayed jobs, jobs of priorities, dead ones, and schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import tidelog
from tidelog.testing import Clock

TICKS: Final = 8  # of the schedule: more than deliveries make a message poison


def made(path: Path) -> None:
    """Make the store and its snapshots. Databases 0 and 3, a key that is no text, jobs in all states."""
    clock = Clock()
    with tidelog.open(path, fsync="no", clock=clock) as db:
        mails = db.queue("mails", max_deliveries=3, retry_after=5)
        for number in range(3):
            mails.put({"to": number}, priority=number * 3, headers={"trace": "x"})
            mails.put({"later": number}, delay=3600 * (number + 1), priority=number * 3)
        db.schedule("beat", every=60, queue="mails", value={"beat": True})
        for _ in range(TICKS):
            clock.advance(60)
            job = mails.get("ann", block=0)
            assert job is not None
            if job.value.get("beat"):
                job.ack()
            elif job.value["to"]:
                job.fail("no such address")
            else:
                job.nack("busy", delay=3600)
        db.snapshot()
        clock.advance(20)
        held = mails.get("bob", block=0)
        assert held is not None
        db.queue("only-later").put("soon", delay=60)
        odd: Any = db  # its types ask for names that are text
        odd.xgroup_create(b"\xff\x00odd", b"g\xfe", id="0", mkstream=True)
        for number in range(5):
            odd.xadd(b"\xff\x00odd", {b"\xffname": b"\xfe" * number, b"n": b"%d" % number})
        odd.xreadgroup(b"g\xfe", b"c\xfd", {b"\xff\x00odd": ">"}, count=3)
        clock.advance(7)
        claimed = odd.xautoclaim(b"\xff\x00odd", b"g\xfe", b"other", 0, "0", count=2)
        odd.xdel(b"\xff\x00odd", claimed[1][0][0])
        third = db.db(3)
        parcels = third.queue("parcels", "packers", keep=10)
        parcels.put_many(range(4))
        first = parcels.get("eve", block=0)
        assert first is not None
        first.ack()
        second = parcels.get("eve", block=0)
        assert second is not None
        second.fail("lost")
        assert parcels.get("eve", block=0) is not None
        db.snapshot()
