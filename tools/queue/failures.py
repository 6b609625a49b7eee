"""`tidelog queue failures`: the latest failures of jobs, whether they are tried again or dead."""

from __future__ import annotations

from typing import Any

import click

from tidelog.jobs.rows import Failure
from tidelog.tools import console
from tidelog.tools.heads import LINES
from tidelog.tools.queue.store import AnyQueue, reads_queue
from tidelog.tools.queue.value import cell, count_option, lines, moment_text, one_line
from tidelog.tools.text import milliseconds

HEAD = ("TIME", "JOB", "DELIVERY", "WORKER", "ERROR")


@reads_queue(
    "tidelog queue failures orders-data mails",
    "tidelog queue failures orders-data mails --job 1700000001000-0 --traceback",
    json=LINES,
)
@click.option("--job", help="Show only failures of the job with this ID.")
@count_option("failures")
@click.option(
    "--traceback", "with_traceback", is_flag=True, help="Show the traceback of each failure."
)
def command(
    queue: AnyQueue, job: str | None, count: int, with_traceback: bool, as_json: bool
) -> None:
    failures = queue.failures(job, count)
    if as_json:
        console.objects({"job": failure.job_id, **as_object(failure)} for failure in failures)
    elif with_traceback:
        for failure in failures:
            show(failure, f"{failure.job_id}  ")
    else:
        console.table(HEAD, [shown(failure) for failure in failures], right="DELIVERY")


def as_object(failure: Failure) -> dict[str, Any]:
    """A failure, in the same form as in the evidence of a dead job."""
    return {
        "at_ms": milliseconds(failure.at),
        "delivery": failure.deliveries,
        "worker": failure.worker,
        "error": failure.error,
        "traceback": failure.traceback,
    }


def shown(failure: Failure) -> tuple[str, ...]:
    return (
        moment_text(failure.at),
        one_line(failure.job_id),
        str(failure.deliveries),
        one_line(failure.worker),
        cell(one_line(failure.error)),
    )


def show(failure: Failure, job: str = "") -> None:
    """Print a failure: a heading, then its traceback, or its error if it has no traceback."""
    click.echo(
        f"{one_line(job)}{moment_text(failure.at)}  delivery {failure.deliveries},"
        f" worker {one_line(failure.worker)}"
    )
    for line in lines(failure.traceback.rstrip()) or lines(failure.error) or ["(no reason given)"]:
        click.echo(f"    {line}".rstrip())
