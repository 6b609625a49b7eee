"""`tidelog queue cancel`: cancel a job that is not done."""

from __future__ import annotations

import click

from tidelog.tools import console, exits
from tidelog.tools.failed import NotThere
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.store import on_queue, refusals, writing
from tidelog.tools.queue.value import one_line


@on_queue(
    "tidelog queue cancel orders-data mails 1700000000000-0",
    "tidelog queue cancel redis://127.0.0.1:6379 mails 1700000000000-0 --group audit --only",
    codes=exits.CHANGING,
)
@click.argument("job_id", metavar="ID")
@click.option("--only", is_flag=True, help="Only for this group. Default: for all groups.")
def command(
    path: PathOrUrl, name: str, job_id: str, group: str | None, only: bool, as_json: bool
) -> None:
    with writing(path, name, group, "queue.cancel()") as queue, refusals():
        known = queue.cancel(job_id, group=queue.group if only else None)
    if not known:
        raise NotThere(
            f"{one_line(job_id)} of {one_line(name)} cannot be cancelled: it is done, dead or cancelled, or never "
            "was; what became of it: tidelog queue status"
        )
    console.told(as_json, {"cancelled": job_id}, f"{job_id} cancelled")
