"""`tidelog queue peek`: the next waiting jobs."""

from __future__ import annotations

from typing import Any

import click

from tidelog.jobs.rows import WaitingJob
from tidelog.tools import console
from tidelog.tools.heads import LINES
from tidelog.tools.queue.store import AnyQueue, reads_queue
from tidelog.tools.queue.value import (
    Value,
    cell,
    codec_option,
    count_option,
    decoded,
    moment_text,
    one_line,
    undecodable,
    value_cell,
)
from tidelog.tools.text import milliseconds

HEAD = ("ID", "ENQUEUED", "HEADERS", "VALUE")
LATER_HEAD = ("ID", "DUE", "HEADERS", "VALUE")


@reads_queue(
    "tidelog queue peek orders-data mails",
    "tidelog queue peek orders-data mails --count 100 --json | jq .value.to",
    "tidelog queue peek orders-data mails --scheduled",
    json=LINES,
)
@codec_option("Codec for the values.")
@count_option("jobs")
@click.option(
    "--scheduled", is_flag=True, help="Show the delayed jobs that are not due yet instead."
)
def command(queue: AnyQueue, codec: str, count: int, scheduled: bool, as_json: bool) -> None:
    jobs = [(job, value_of(job, codec)) for job in queue.peek(count, scheduled=scheduled)]
    if as_json:
        console.objects(as_object(job, value) for job, value in jobs)
    else:
        console.table(LATER_HEAD if scheduled else HEAD, [shown(job, value) for job, value in jobs])


def value_of(job: WaitingJob, codec: str) -> Value:
    """The value, decoded with `codec`; an entry of another program may have none."""
    return decoded(job.raw, codec) if job.problem is None else undecodable(job.raw, job.problem)


def as_object(job: WaitingJob, value: Value) -> dict[str, Any]:
    return {
        "id": job.id,
        "enqueued_ms": milliseconds(job.enqueued_at),
        **({} if job.due_at is None else {"due_ms": milliseconds(job.due_at)}),
        "headers": dict(job.headers),
        **value.fields(),
    }


def shown(job: WaitingJob, value: Value) -> tuple[str, ...]:
    headers = " ".join(f"{key}={text}" for key, text in job.headers.items())
    moment = job.enqueued_at if job.due_at is None else job.due_at
    return (job.id, moment_text(moment), cell(one_line(headers)), value_cell(value))
