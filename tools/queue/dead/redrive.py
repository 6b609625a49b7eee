"""`tidelog queue dead redrive`: put dead jobs back into their queue as new jobs."""

from __future__ import annotations

import click

from tidelog.tools import console, exits
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.change import in_batches, rehearse
from tidelog.tools.queue.dead.filter import Filter, dead_jobs, filter_options
from tidelog.tools.queue.store import on_queue, reading, writing
from tidelog.tools.queue.value import jobs_text, one_line


@on_queue(
    "tidelog queue dead redrive orders-data mails --dry-run",
    "tidelog queue dead redrive orders-data mails 1700000009000-0",
    "tidelog queue dead redrive orders-data mails --error Timeout --older-than 15m",
    codes=exits.CHANGING,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@filter_options
@click.option(
    "--dry-run", is_flag=True, help="List the jobs that would be redriven; change nothing."
)
def command(
    path: PathOrUrl,
    name: str,
    ids: tuple[str, ...],
    group: str | None,
    wanted: Filter,
    dry_run: bool,
    as_json: bool,
) -> None:
    if dry_run:
        with reading(path, name, group) as queue:
            rehearse(queue, ids, wanted, "redriven", as_json)
        return
    with writing(path, name, group, "queue.dead.redrive()") as queue:
        chosen = [job.id for job in dead_jobs(queue.dead, ids, wanted)]
        count = in_batches("redriving", chosen, queue.dead.redrive)
    facts = {"redriven": count, "dry_run": False, "ids": chosen}
    said = f"redriven: waiting in {one_line(name)} again"
    console.told(as_json, facts, f"{jobs_text(count, 'dead ')} {said}")
