"""`tidelog queue dead show`: a dead job with its whole evidence."""

from __future__ import annotations

import click

from tidelog.jobs.rows import DeadJob
from tidelog.tools import console
from tidelog.tools.queue.dead.filter import matching
from tidelog.tools.queue.dead.ls import CODEC, as_object, value_of
from tidelog.tools.queue.failures import show as show_failure
from tidelog.tools.queue.store import AnyQueue, reads_queue
from tidelog.tools.queue.value import codec_option, moment_text, one_line


@reads_queue(
    "tidelog queue dead show orders-data mails 1700000009000-0",
    "tidelog queue dead show orders-data mails 1700000009000-0 --json | jq .errors",
)
@click.argument("job_id", metavar="ID")
@codec_option(CODEC, None)
def command(queue: AnyQueue, job_id: str, codec: str | None, as_json: bool) -> None:
    for number, job in enumerate(matching(queue.dead, job_id)):
        if as_json:
            console.json_object(as_object(job, codec))
            continue
        # A second dead job can match: one has this ID now, and the other had it before it died.
        if number:
            click.echo()
        show(job, codec)


def show(job: DeadJob, codec: str | None) -> None:
    click.echo(f"dead job     {job.id}")
    click.echo(f"original     {one_line(job.original_id)}")
    click.echo(f"reason       {one_line(job.reason) or '-'}")
    click.echo(f"enqueued     {moment_text(job.enqueued_at)}")
    click.echo(f"died         {moment_text(job.died_at)}")
    click.echo(f"deliveries   {job.deliveries:,}")
    click.echo(f"workers      {', '.join(map(one_line, job.workers)) or '-'}")
    for name, text in job.headers.items():
        click.echo(f"header       {one_line(name)}: {one_line(text)}")
    click.echo(f"codec        {one_line(job.codec) or '-'}")
    click.echo(f"value        {value_of(job, codec).text}")
    for failure in job.errors:
        click.echo()
        show_failure(failure)
