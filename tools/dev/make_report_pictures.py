"""Write docs/guides/report-*.svg: charts of a real report, on a store that this program makes under a clock of its own.

It needs the extra `plot`. Run after a change of the charts:

    python tools/dev/make_report_pictures.py
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from pathlib import Path
from typing import Final

import tidelog
from tidelog.testing import Clock
from tidelog.tools import cli

GUIDES: Final = Path(__file__).resolve().parents[2] / "docs/guides"
PICTURES: Final = {
    "Delivery latency": "report-latency.svg",
    "Lag of groups": "report-lag.svg",
    "Queue mails": "report-queue.svg",
}
SNAPSHOTS: Final = 12
GROUPS: Final = {"packers": 0.9, "billing": 0.75, "search": 0.4}


def shop(path: Path) -> None:
    """A morning of a shop: orders for three groups, one of which falls behind, and a queue of mails."""
    r, clock = random.Random(7), Clock()
    with tidelog.open(path, fsync="no", clock=clock) as db:
        for group in GROUPS:
            db.xgroup_create("orders", group, id="0", mkstream=True)
        mails = db.queue("mails", retry_after=5, keep=400)
        held: list[tidelog.Job] = []
        for _ in range(SNAPSHOTS):
            for _ in range(150):
                clock.advance(r.expovariate(1))
                db.xadd(
                    "orders",
                    {
                        "user": f"user-{r.randrange(500)}",
                        "item": "tea",
                        "note": "x" * r.randrange(60),
                    },
                )
                mails.put({"to": f"user-{r.randrange(500)}"})
                for group, share in GROUPS.items():
                    if r.random() < share:
                        _work(db, group, r)
                if r.random() < 0.9 and (job := mails.get(f"worker-{r.randrange(3)}", block=0)):
                    _end(job, held, r)
            clock.advance(240)
            db.snapshot()


def _work(db: tidelog.Store, group: str, r: random.Random) -> None:
    worker = f"worker-{r.randrange(2)}"
    found = db.xreadgroup(group, worker, {"orders": ">"}, count=1)
    for entry_id, _ in found[0][1] if found else ():
        if r.random() < 0.9:
            db.xack("orders", group, entry_id)


def _end(job: tidelog.Job, held: list[tidelog.Job], r: random.Random) -> None:
    chance = r.random()
    if chance < 0.05:
        job.fail("no such address")
    elif chance < 0.15:
        job.nack("no answer", delay=7200)
    elif chance < 0.2:
        held.append(job)
    else:
        job.ack()


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        path, report = Path(place, "orders-data"), Path(place, "report.html")
        shop(path)
        code = cli.run(["report", str(path), "-o", str(report), "--log"])
        if code:
            return code
        html = report.read_text()
    for title, name in PICTURES.items():
        section = html.split(f"<h2>{title}</h2>", 1)[1]
        found = re.search(r"<svg.*?</svg>", section, re.S)
        assert found is not None
        (GUIDES / name).write_text(found[0] + "\n")
        print(GUIDES / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
