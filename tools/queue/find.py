"""`tidelog queue find`: jobs by their facts."""

from __future__ import annotations

from typing import Any, Final, Unpack

import click

from tidelog.jobs.rows import moment as at
from tidelog.jobs.rows import value_of
from tidelog.jobs.search import SOUGHT
from tidelog.jobs.status import JobStatus
from tidelog.jobs.verbs.find import FindOptions
from tidelog.tools import console
from tidelog.tools.heads import LINES
from tidelog.tools.queue.status import facts_of
from tidelog.tools.queue.store import AnyQueue, reads_queue, refusals
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
from tidelog.tools.times import moment

HEAD: Final = ("ID", "STATE", "PUT", "KEY", "VALUE")
NO_VALUE: Final = "the entry has no field 'value'"


@reads_queue(
    "tidelog queue find orders-data mails --job-key ann",
    "tidelog queue find orders-data mails --error Timeout --state paused",
    "tidelog queue find orders-data mails --text ann@example.org",
    "tidelog queue find orders-data mails --header trace=t-17 --since 2h --json",
    json=LINES,
)
@click.option("--job-key", "key", help="Show only jobs that were put with this key.")
@click.option("--header", metavar="NAME=TEXT", help="Show only jobs with this header.")
@click.option("--error", help="Show only jobs with this text in the error of a failure.")
@click.option(
    "--text",
    help="Show only jobs with this text in the value, key, a header, or an error; case does not count.",
)
@click.option("--state", type=click.Choice(SOUGHT), help="Show only jobs in this state.")
@click.option(
    "--since",
    "put_since",
    callback=moment,
    help="Show only jobs put at this time (UTC) or later, or 15m ago.",
)
@codec_option("Codec for the values.")
@count_option("jobs")
def command(
    queue: AnyQueue,
    put_since: int | None,
    codec: str,
    count: int,
    as_json: bool,
    **wanted: Unpack[FindOptions],
) -> None:
    wanted["since"] = None if put_since is None else at(put_since)
    with refusals():
        jobs = _found(queue, count, wanted)
    if as_json:
        console.objects(_as_object(job, codec) for job in jobs)
    else:
        console.table(HEAD, [_shown(job, _value(job, codec)) for job in jobs])


def _found(queue: AnyQueue, count: int, wanted: FindOptions) -> list[JobStatus]:
    """The first `count` jobs, however many have to be looked at. Raises DataError."""
    jobs: list[JobStatus] = []
    after = None
    while True:
        found = queue.find(**wanted | {"limit": count - len(jobs), "after": after})
        jobs += found.jobs
        after = found.until
        if after is None or len(jobs) == count:
            return jobs


def _value(job: JobStatus, codec: str) -> Value:
    raw = value_of(job.row)
    return undecodable(b"", NO_VALUE) if raw is None else decoded(raw, codec)


def _as_object(job: JobStatus, codec: str) -> dict[str, Any]:
    more = {"key": job.key, "headers": job.headers, **_value(job, codec).fields()}
    return facts_of(job, codec) | more


def _shown(job: JobStatus, value: Value) -> tuple[Any, ...]:
    put = moment_text(job.enqueued_at)
    return job.id, job.state, put, cell(one_line(job.key or "-")), value_cell(value)
