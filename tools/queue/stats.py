"""`tidelog queue stats`: the counts of a queue, and with --over its rates."""

from __future__ import annotations

from time import sleep

import click

from tidelog.figures.model import QueueFigures
from tidelog.jobs.rows import shown
from tidelog.jobs.stats import WorkerStatus
from tidelog.tools import console
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.looks import as_object, look, oldest_s, text, workers_of
from tidelog.tools.queue.store import found, on_queue, opened
from tidelog.tools.queue.value import age_text, jobs_text, progress_text
from tidelog.tools.times import duration


@on_queue(
    "tidelog queue stats orders-data mails",
    "tidelog queue stats orders-data mails --over 10 --json | jq .done_per_second",
    "tidelog queue stats redis://127.0.0.1:6379 mails",
)
@duration("--over", "seconds", above=True, most=86_400, help="Measure the rates over this time.")
def command(
    path: PathOrUrl, name: str, group: str | None, seconds: float | None, as_json: bool
) -> None:
    with opened(path) as store:
        queue = found(store, path, name, group)
        only = name, queue.group
        seen = look(store, only)
        if seconds is not None:
            sleep(seconds)
            seen = look(store, only, seen)
        workers = workers_of(queue)
    for row in seen.rows:
        if as_json:
            told = {"workers": [each.as_dict() for each in workers]}
            console.json_object(as_object(row, seen.at_ms) | told)
        else:
            show(row, seen.at_ms, workers)


def show(row: QueueFigures, at_ms: int, workers: list[WorkerStatus]) -> None:
    come = {each.name: each.progress for each in workers}
    # fmt: off
    click.echo(f"queue        {text(row.key)}, group {text(row.group)}")
    oldest = f", the oldest {age_text(oldest_s(row, at_ms))} old" if row.depth else ""
    click.echo(f"depth        {jobs_text(row.depth, 'unfinished ')}{oldest}")
    click.echo(f"waiting      {row.waiting:,}")
    click.echo(f"in flight    {row.in_flight:,}")
    for worker, count in row.held:
        click.echo(f"             {count:,} with {text(worker)}")
        for job, progress in come.get(shown(worker), {}).items():
            click.echo(f"               {job} {progress_text(progress)}")
    click.echo(f"paused       {row.paused:,} until their next try")
    if row.scheduled:
        click.echo(f"scheduled    {row.scheduled:,} not due yet")
    click.echo(f"dead         {row.dead:,}")
    if row.hanging:
        click.echo(f"hanging      {row.hanging:,} beyond their limit of time")
    if row.killed:
        click.echo(f"killed       {row.killed:,}, at a limit of time or after a cancel")
    if row.cancelled:
        click.echo(f"cancelled    {row.cancelled:,}")
    click.echo(f"failures     {row.failures:,} kept")
    click.echo(f"finished     {row.kept:,} kept")
    # fmt: on
    if row.put_per_s is not None:
        click.echo(f"put          {row.put_per_s:,.1f}/s")
    if row.left_per_s is not None:
        click.echo(f"done         {row.left_per_s:,.1f}/s")
