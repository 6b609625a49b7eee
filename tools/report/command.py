"""`tidelog report`: draw the analyses of a store into one HTML file."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import click

from tidelog.spark.errors import TidelogSparkError
from tidelog.store.errors import DataError
from tidelog.store.queue.options import make_options
from tidelog.tools import console, names
from tidelog.tools.installed import installed
from tidelog.tools.latest import named
from tidelog.tools.output import publish, writable
from tidelog.tools.spark_session import spark_session
from tidelog.tools.text import examples, size_text, time_text

PACKAGES: Final = ("pyspark", "pyarrow", "matplotlib")


@click.command(
    help="Draw latency, lag, poison messages and queues into an HTML file.",
    epilog=examples(
        "tidelog report orders-data -o report.html",
        "tidelog report orders-data/snapshots/00000000000000004711 -o report.html --queue mails",
        "tidelog report orders-data -o report.html --log --poison 3 --force",
    ),
)
@click.argument("path", metavar="PATH|URL")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="The HTML file to write.",
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--snapshot",
    default="latest",
    show_default=True,
    metavar="WHICH",
    help="Snapshot of a store: latest, now (make one), or an LSN. Lag is always shown over all of them.",
)
@click.option(
    "--events",
    metavar="PARQUET",
    help="The log's events as Parquet files (the table `events`): all deliveries are known then.",
)
@click.option(
    "--log",
    "with_log",
    is_flag=True,
    help="Read the events from the store's log, as far back as it goes. Only with a master on this machine.",
)
@click.option(
    "--queue",
    "queues",
    multiple=True,
    metavar="NAME[:GROUP]",
    shell_complete=names.queues,
    help="A queue to show; repeatable. Default: those that the store seems to have.",
)
@click.option(
    "--poison",
    type=click.IntRange(2),
    default=5,
    show_default=True,
    metavar="N",
    help="Deliveries from which on a message counts as poison.",
)
@click.option(
    "--top", type=click.IntRange(1), default=20, show_default=True, help="Rows of a table."
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Master of Spark. local[*]: one task for each core of this machine.",
)
def command(
    path: str,
    output: Path,
    force: bool,
    snapshot: str,
    events: str | None,
    with_log: bool,
    queues: tuple[str, ...],
    poison: int,
    top: int,
    master: str,
) -> None:
    installed("tidelog report", *PACKAGES, extra="report")
    writable(output, force)
    path = named(path)
    # here: these load pyspark and pyarrow
    from tidelog.snapshot.place import place_of
    from tidelog.snapshot.sealed import read_manifest
    from tidelog.spark import pin
    from tidelog.spark.source.batch.snapshots import resolve, telling
    from tidelog.tools.report.content import Source, plan
    from tidelog.tools.report.log_events import written
    from tidelog.tools.report.page import page

    if with_log and events is not None:
        raise click.UsageError("give either --log or --events, not both")
    if with_log and not master.startswith("local"):
        raise click.UsageError(
            "--log works only with a Spark master on this machine; with a remote one, export the events, and pass "
            "the exported files with --events"
        )
    if events is not None:
        _find(events)
    asked = [_queue(name) for name in queues] or None
    if snapshot == "all":
        raise click.BadParameter("a report shows one snapshot; give latest, now or an LSN")
    with pin(path, snapshot) as pinned, TemporaryDirectory() as scratch:
        if with_log:
            events = str(written(Path(path), Path(scratch, "events.parquet")))
        several = [*resolve((path,), "all")] if pinned != path else [path]
        if pinned not in several:
            several = [pinned]
        manifests = {}
        for each in several:
            with telling(each):
                place = place_of(each)
                try:
                    manifests[each] = read_manifest(place)
                finally:
                    place.close()
        shown = manifests[pinned]
        moments = [(each, manifest.now_ms) for each, manifest in manifests.items()]
        with spark_session(master) as spark:
            log = None if events is None else spark.read.parquet(events)
            source = Source(spark, moments, pinned, shown.now_ms, log)
            steps = plan(source, queues=asked, deliveries=poison, top=top)
            sections = []
            with console.progress("report", len(steps)) as advance:
                for step in steps:
                    sections.append(step())
                    advance(1)
    counts = shown.counts
    facts = {
        "store": shown.uuid.hex(),
        "snapshot": f"{pinned}, everything through LSN {shown.lsn}",
        "last write": time_text(shown.now_ms),
        "contents": f"{counts.entries:,} entries in {counts.streams:,} streams, {counts.groups:,} groups, "
        f"{counts.pending:,} pending, {size_text(shown.data_bytes)}",
        "log": "its events are included" if events is not None else "not read",
        "report made": time_text(time.time_ns() // 1_000_000),
    }
    html = page(f"Report on {path}", facts, sections)
    publish(output, html.encode(errors="backslashreplace"))
    click.echo(f"{output}: {len(sections)} sections of the snapshot at LSN {shown.lsn}")


def _queue(given: str) -> tuple[str, str]:
    """The name and group of `NAME[:GROUP]`. A name may contain colons itself, so the last one counts."""
    name, colon, group = given.rpartition(":")
    found = (name, group) if colon else (given, "workers")
    try:
        make_options(*found)
    except DataError as error:
        raise click.BadParameter(f"{given}: {error}") from None
    return found


def _find(events: str) -> None:
    """Find out before the work that there are no events."""
    if "://" not in events and not Path(events).exists():
        raise TidelogSparkError(
            "TIDELOG_IO", f"{events}: the file or directory of events does not exist"
        )
