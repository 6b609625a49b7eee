"""`tidelog queue dead ls`: one line per dead job."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import click

from tidelog.jobs.rows import DeadJob
from tidelog.tools import console
from tidelog.tools.queue.dead.filter import Filter, dead_jobs, filter_options
from tidelog.tools.queue.failures import as_object as failure_object
from tidelog.tools.queue.store import AnyQueue, reads_queue
from tidelog.tools.queue.value import (
    CODECS,
    Value,
    cell,
    codec_option,
    decoded,
    moment_text,
    one_line,
    value_cell,
)
from tidelog.tools.text import milliseconds

HEAD = ("ID", "DIED", "DELIVERIES", "REASON", "LAST ERROR", "VALUE")
CODEC = "Codec for the values. Default: the codec that each job was put with."


@reads_queue(
    "tidelog queue dead ls orders-data mails",
    "tidelog queue dead ls orders-data mails --error Timeout --older-than 1d",
    "tidelog queue dead ls orders-data mails --json | jq -r .reason",
    json="Print one JSON object per line, with everything.",
)
@codec_option(CODEC, None)
@filter_options
@click.option("--count", type=click.IntRange(1), help="List at most this many jobs.")
def command(
    queue: AnyQueue, codec: str | None, wanted: Filter, count: int | None, as_json: bool
) -> None:
    jobs = islice(dead_jobs(queue.dead, (), wanted), count)
    if as_json:
        console.objects(as_object(job, codec) for job in jobs)
    else:
        table(jobs, codec)


def table(jobs: Iterable[DeadJob], codec: str | None) -> None:
    console.table(HEAD, [shown(job, codec) for job in jobs], right="DELIVERIES")


def value_of(job: DeadJob, codec: str | None) -> Value:
    """The value, decoded with `codec`, or else with the job's codec; with JSON if that codec belongs to a program."""
    return decoded(job.raw, codec or (job.codec if job.codec in CODECS else "json"))


def shown(job: DeadJob, codec: str | None) -> tuple[str, ...]:
    last = job.errors[-1].error if job.errors else "-"
    return (
        job.id,
        moment_text(job.died_at),
        str(job.deliveries),
        cell(one_line(job.reason)),
        cell(one_line(last)),
        value_cell(value_of(job, codec)),
    )


def as_object(job: DeadJob, codec: str | None) -> dict[str, Any]:
    """Everything about a dead job."""
    return {
        "id": job.id,
        "original_id": job.original_id,
        "died_ms": milliseconds(job.died_at),
        "enqueued_ms": None if job.enqueued_at is None else milliseconds(job.enqueued_at),
        "reason": job.reason,
        "deliveries": job.deliveries,
        "workers": job.workers,
        "errors": [failure_object(error) for error in job.errors],
        "headers": dict(job.headers),
        "codec": job.codec,
        **value_of(job, codec).fields(),
    }
