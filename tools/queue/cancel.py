"""`tidelog queue cancel`: delete a delayed job."""

from __future__ import annotations

import click

import tidelog
from tidelog.tools import console, exits
from tidelog.tools.places import Place
from tidelog.tools.queue.store import NoSuch, on_queue, writing
from tidelog.tools.queue.value import one_line


@on_queue("tidelog queue cancel orders-data mails 1700000000000-2097152", codes=exits.CHANGING)
@click.argument("job_id", metavar="ID")
def command(path: Place, name: str, job_id: str, group: str | None, as_json: bool) -> None:
    with writing(path, name, group, "queue.cancel()") as (_, queue):
        try:
            known = queue.cancel(job_id)
        except tidelog.DataError as error:
            raise click.UsageError(str(error)) from None
    if not known:
        raise no_delayed_job(name, job_id)
    console.told(as_json, {"cancelled": job_id}, f"{job_id} cancelled")


def no_delayed_job(name: str, job_id: str) -> NoSuch:
    """The error about an ID that names no job which waits for its time."""
    return NoSuch(
        f"{one_line(job_id)} is no delayed job of {one_line(name)} that waits for its time; what became of it: "
        "tidelog queue status"
    )
