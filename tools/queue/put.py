"""`tidelog queue put`: put jobs into a queue, from the command line or from standard input."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from tidelog.jobs.codecs import NAMED
from tidelog.jobs.dedup import MODES
from tidelog.jobs.options import PRIORITY_MAX
from tidelog.tools import console, exits
from tidelog.tools.path_or_url import PathOrUrl
from tidelog.tools.queue.store import AnyQueue, on_queue, writing
from tidelog.tools.queue.value import codec_option, jobs_text, retry_option
from tidelog.tools.text import age_seconds, parse_time
from tidelog.tools.times import duration

STDIN: Final = "-"


def moment(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """The moment of an ISO 8601 time, which is UTC unless it says otherwise, or of a Unix time; a callback of click."""
    if value is None:
        return None
    try:
        if age_seconds(value) is not None:
            raise ValueError
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=parse_time(value, 0))
    except (ValueError, OverflowError):
        hint = f"{value!r} is not a time; give 2026-11-21T10:00 or a Unix time, or use --delay"
        raise click.BadParameter(hint) from None


def headers_of(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str] | None:
    """The headers of NAME=TEXT; a callback of click."""
    found: dict[str, str] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r} is no header; give NAME=TEXT")
        found[name] = text
    return found or None


@on_queue(
    'tidelog queue put orders-data mails \'{"to": "ann@example.org"}\'',
    "tidelog queue put orders-data mails '\"hello\"' --header trace=4bf92f --delay 15m",
    "tidelog queue put redis://127.0.0.1:6379 mails --codec str one two three",
    "tidelog queue put orders-data mails -",
    codes=exits.CHANGING,
)
@click.argument("values", nargs=-1, required=True, metavar="VALUE...|-")
@codec_option(
    "Codec of the queue. A VALUE is JSON for json and msgpack, else it is taken as it stands."
)
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=headers_of,
    metavar="NAME=TEXT",
    help="A header of each job; repeatable.",
)
@click.option("--dedup-id", metavar="ID", help="Put nothing if this ID is known. For one VALUE.")
@click.option(
    "--dedup-mode",
    "dedup",
    type=click.Choice(MODES),
    help="How long a job has its --dedup-id: for a day, until it is done, or until a put replaces it.",
)
@duration("--delay", help="The job is due later.")
@click.option("--at", callback=moment, metavar="TIME", help="The job is due then (UTC).")
@duration("--ttl", above=True, help="The job is not delivered after this time.")
@click.option(
    "--priority",
    type=click.IntRange(0, PRIORITY_MAX),
    help="From 0 to 9; jobs with a larger number are delivered first.",
)
@click.option(
    "--job-key",
    "key",
    metavar="TEXT",
    help="A name for the subject of each job, for concurrency_per_key.",
)
@retry_option("a job that fails")
@duration(
    "--time-limit", above=True, least=0.001, help="A handler may work on the job for this time."
)
@click.option(
    "--create", is_flag=True, help="Begin the queue, and the store, if there is none of that name."
)
def command(
    path: PathOrUrl,
    name: str,
    values: tuple[str, ...],
    group: str | None,
    codec: str,
    create: bool,
    as_json: bool,
    **given: Any,
) -> None:
    options = {name: value for name, value in given.items() if value is not None}
    if STDIN in values and len(values) > 1:
        raise click.UsageError("give VALUEs, or - for the lines of standard input, not both")
    if "dedup_id" in options and (len(values) > 1 or STDIN in values):
        raise click.UsageError("--dedup-id belongs to one VALUE")
    if "dedup" in options and "dedup_id" not in options:
        raise click.UsageError("--dedup-mode needs --dedup-id")
    if "delay" in options and "at" in options:
        raise click.UsageError("give either --delay or --at, not both")
    if STDIN in values:
        with writing(path, name, group, "queue.put()", create=create) as queue:
            count = put_lines(queue, sys.stdin.buffer, codec, options)
        console.told(as_json, {"put": count}, f"{jobs_text(count)} put")
        return
    # Encode all of them first, so that a mistake in the last one puts nothing.
    encoded = [encode(value.encode("utf-8", "surrogateescape"), codec) for value in values]
    with writing(path, name, group, "queue.put()", create=create) as queue:
        ids = [queue.put(each, **options) for each in encoded]
    console.told(as_json, {"put": len(ids), "ids": ids}, "\n".join(ids))


def put_lines(queue: AnyQueue, lines: Iterable[bytes], codec: str, options: dict[str, Any]) -> int:
    """Put each line as a job and return how many. Blank lines are passed over.

    Raises UsageError for a line that is no value; the lines before it were put.
    """
    wanted = _encoded(lines, codec)
    if not options:
        return int(queue.put_many(wanted))
    count = 0
    for value in wanted:
        queue.put(value, **options)
        count += 1
    return count


def _encoded(lines: Iterable[bytes], codec: str) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        text = line.rstrip(b"\r\n")
        if text.strip():
            yield encode(text, codec, f"the lines before were put; line {number}")


def encode(text: bytes, codec: str, where: str = "VALUE") -> bytes:
    """The bytes of a job's value. Raises UsageError."""
    if codec == "bytes":
        return text
    try:
        value = text.decode() if codec == "str" else json.loads(text)
        return NAMED[codec].encode(value)
    except (ValueError, RecursionError, OverflowError) as error:
        shown = text[:40].decode("utf-8", "backslashreplace")
        kind = "UTF-8" if codec == "str" else "JSON"
        hint = "" if codec == "str" else "; a text needs quotes, or --codec str"
        raise click.UsageError(f"{where} {shown!r} is not {kind}: {error}{hint}") from None
