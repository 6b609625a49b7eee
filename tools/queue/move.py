"""`tidelog queue move`: make a delayed job due at another time."""

from __future__ import annotations

from datetime import datetime

import click

from tidelog.tools import console, exits
from tidelog.tools.failed import NotThere
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.put import moment
from tidelog.tools.queue.store import on_queue, refusals, writing
from tidelog.tools.queue.value import one_line
from tidelog.tools.times import duration


@on_queue(
    "tidelog queue move orders-data mails 1700000000000-2097152 --delay 1d12h",
    "tidelog queue move orders-data mails 1700000000000-2097152 --at 2026-12-24T18:00",
    "tidelog queue move orders-data mails 1700000000000-2097152 --delay 0",
    codes=exits.CHANGING,
)
@click.argument("job_id", metavar="ID")
@duration("--delay", help="The job is due this long after now.")
@click.option("--at", callback=moment, metavar="TIME", help="The job is due then (UTC).")
def command(
    path: PathOrUrl,
    name: str,
    job_id: str,
    group: str | None,
    delay: float | None,
    at: datetime | None,
    as_json: bool,
) -> None:
    if (delay is None) == (at is None):
        raise click.UsageError("give the new time: either --delay or --at")
    with writing(path, name, group, "queue.move()") as queue, refusals():
        known = queue.move(job_id, delay=delay, at=at)
    if not known:
        raise NotThere(
            f"{one_line(job_id)} is no delayed job of {one_line(name)} that waits for its time; what became of it: "
            "tidelog queue status"
        )
    console.told(as_json, {"moved": job_id}, f"{job_id} moved")
