"""`tidelog queue purge`: delete every waiting and paused job."""

from __future__ import annotations

import click

from tidelog.tools import console, exits
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.change import agreed, must_be_able_to_ask
from tidelog.tools.queue.store import on_queue, reading, writing
from tidelog.tools.queue.value import jobs_text, one_line


@on_queue(
    "tidelog queue purge orders-data mails --dry-run",
    "tidelog queue purge orders-data mails --yes",
    codes=exits.CHANGING,
)
@click.option(
    "--dry-run", is_flag=True, help="Print how many jobs would be deleted; change nothing."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def command(
    path: PathOrUrl, name: str, group: str | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    held = reading(path, name, group)
    if not dry_run:
        must_be_able_to_ask(yes)
        held = writing(path, name, group, "queue.purge()")
    with held as queue:
        stats = queue.stats()
        count = stats.waiting + stats.paused
        in_flight = sum(stats.in_flight.values())
        question = (
            f"Delete {jobs_text(stats.waiting, 'waiting ')} and {stats.paused:,} paused of {one_line(name)} "
            "permanently?"
        )
        if not dry_run:
            if count and not agreed(question, yes):
                return
            count = queue.purge()
    facts = {"purged": count, "dry_run": dry_run, "in_flight": in_flight}
    done = "would be purged; nothing was changed" if dry_run else "purged"
    left = f" ({in_flight:,} in flight left)" if in_flight else ""
    console.told(as_json, facts, f"{jobs_text(count)} {done}{left}")
