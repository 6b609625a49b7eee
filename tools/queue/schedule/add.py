"""`tidelog queue schedule add`: a schedule that puts a job again and again."""

from __future__ import annotations

import json
from typing import Any

import click

from tidelog.tools import console, exits
from tidelog.tools.names import queues, schedules
from tidelog.tools.path_or_url import PathOrUrl, at_path_or_url
from tidelog.tools.queue.schedule.ls import as_object, next_text
from tidelog.tools.queue.store import refusals, writable
from tidelog.tools.queue.value import one_line
from tidelog.tools.times import duration


@at_path_or_url(
    "tidelog queue schedule add orders-data nightly reports --cron '0 3 * * *' --tz Europe/Berlin",
    'tidelog queue schedule add orders-data poll feeds --every 15m --value \'{"url": "https://example.org"}\'',
    codes=exits.CHANGING,
)
@click.argument("name", shell_complete=schedules)
@click.argument("queue", shell_complete=queues)
@click.option("--cron", help="A cron expression of five fields, or of six with seconds first.")
@duration("--every", help="The interval instead.")
@click.option("--tz", help="Time zone of the cron expression. Default: UTC.")
@click.option(
    "--catch-up",
    type=click.Choice(("one", "all", "none")),
    default="one",
    show_default=True,
    help="Jobs for ticks that were due while no worker fetched.",
)
@click.option("--value", default="null", show_default=True, help="The value of each job, as JSON.")
@click.option("--text", is_flag=True, help="The value is text, for a queue with the codec str.")
def command(
    path: PathOrUrl,
    name: str,
    queue: str,
    cron: str | None,
    value: str,
    text: bool,
    as_json: bool,
    **times: Any,
) -> None:
    given: Any = value
    if not text:
        try:
            given = json.loads(value)
        except ValueError as error:
            raise click.UsageError(f"--value is not JSON: {error}; for text add --text") from None
    codec = "str" if text else "json"
    with writable(path, "db.schedule()") as store, refusals():
        made = store.schedule(name, cron, queue=queue, value=given, codec=codec, **times)
    said = f"next puts a job into {one_line(made.queue)} at {next_text(made)}"
    console.told(as_json, as_object(made), f"{one_line(made.name)} {said}")
