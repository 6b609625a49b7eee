"""`tidelog queue dead purge`: delete dead jobs."""

from __future__ import annotations

import click

from tidelog.tools import console, exits
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.change import agreed, in_batches, must_be_able_to_ask, rehearse
from tidelog.tools.queue.dead.filter import Filter, dead_jobs, filter_options
from tidelog.tools.queue.store import on_queue, reading, writing
from tidelog.tools.queue.value import jobs_text, one_line


@on_queue(
    "tidelog queue dead purge orders-data mails --older-than 7d --dry-run",
    "tidelog queue dead purge orders-data mails --older-than 7d --yes",
    codes=exits.CHANGING,
)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@filter_options
@click.option("--dry-run", is_flag=True, help="List the jobs that would be purged; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(
    path: PathOrUrl,
    name: str,
    ids: tuple[str, ...],
    group: str | None,
    wanted: Filter,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    if dry_run:
        with reading(path, name, group) as queue:
            rehearse(queue, ids, wanted, "purged", as_json)
        return
    must_be_able_to_ask(yes)
    with writing(path, name, group, "queue.dead.purge()") as queue:
        chosen = [job.id for job in dead_jobs(queue.dead, ids, wanted)]
        question = f"Delete {jobs_text(len(chosen), 'dead ')} of {one_line(name)} permanently?"
        if chosen and not agreed(question, yes):
            return
        count = in_batches("purging", chosen, queue.dead.purge)
    facts = {"purged": count, "dry_run": False, "ids": chosen}
    console.told(as_json, facts, f"{jobs_text(count, 'dead ')} purged")
