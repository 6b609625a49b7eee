"""Write docs/guides/reading-*.svg, the pictures of the guide "Reading the log", from the store that its examples read.

The store is made by this program under a clock of its own, so IDs, LSNs and times are the same in each run; a test runs
every example of the guide against it. Only the panel "not synced" of the plot depends on how fast the disk was. It
needs the extras `plot` and `top`. Run after a change of the plots or of top:

    python tools/dev/make_reading_pictures.py
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import tidelog
from tidelog.testing import Clock
from tidelog.tools import cli

GUIDES: Final = Path(__file__).resolve().parents[2] / "docs/guides"
PLOT: Final = "reading-plot.svg"
TOP: Final = "reading-top.svg"
NAME: Final = "orders-data"
START: Final = datetime(2026, 1, 12, 9, tzinfo=UTC)
SECONDS_APART: Final = 20  # of two orders
ORDERS: Final = 120
PACKER_STOPS: Final = 60  # from this order on, nobody packs
CLEANUP: Final = 90  # before this order, the clean-up job runs
NO_ADDRESS: Final = 30  # the order whose mail cannot be delivered
WAIT_S: Final = 30.0


def shop(root: Path) -> None:
    """Forty minutes of a shop. The packers stop, a clean-up trims orders that nobody packed, and one mail fails."""
    r, clock = random.Random(7), Clock(START)
    with tidelog.open(
        root, fsync="no", clock=clock, segment_bytes=16384, save=(), checkpoint_bytes=0
    ) as db:
        db.xgroup_create("orders", "packers", id="0", mkstream=True)
        mails = db.queue("mails", max_deliveries=2, retry_after=5)
        for number in range(ORDERS):
            clock.advance(SECONDS_APART)
            order = f"A-{1000 + number}"
            if number == CLEANUP:
                db.xtrim("orders", maxlen=10, approximate=False)
            db.xadd("orders", {"order": order, "item": r.choice(("tea", "coffee", "cups"))})
            mails.put({"order": order})
            if number < PACKER_STOPS:
                _pack(db, r.choice(("anna", "ben")))
            _send(mails, clock, order, fails=number == NO_ADDRESS)


def _pack(db: tidelog.Store, packer: str) -> None:
    for _, entries in db.xreadgroup("packers", packer, {"orders": ">"}, count=1):
        db.xack("orders", "packers", *(entry_id for entry_id, _ in entries))


def _send(mails: tidelog.Queue, clock: Clock, order: str, *, fails: bool) -> None:
    while (job := mails.get("mailer", block=0)) is not None:
        if fails:
            job.nack(RuntimeError(f"no address for {order}"), delay=1)
            clock.advance(2)
        else:
            job.ack()


async def picture_of_top(root: Path) -> str:
    """The first screen of `tidelog top`."""
    # here: it loads textual, which a test of the examples does not need
    from tidelog.tools.top.app import Top
    from tidelog.tools.top.command import source_of

    source = source_of(str(root))
    try:
        app = Top(source, every=3600, sort="lag", wanted="")
        async with app.run_test(size=(96, 14)) as pilot:
            async with asyncio.timeout(WAIT_S):
                while app.look is None:
                    await pilot.pause(0.01)
            await pilot.pause()
            text = app.export_screenshot(title="tidelog top orders-data")
        app.settle()
    finally:
        source.close()
    return text


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        shop(Path(NAME))
        code = cli.run(["aof", "plot", NAME, "-o", PLOT])
        if code:
            return code
        (GUIDES / PLOT).write_bytes(Path(PLOT).read_bytes())
        (GUIDES / TOP).write_text(asyncio.run(picture_of_top(Path(NAME))))
    for name in PLOT, TOP:
        print(GUIDES / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
