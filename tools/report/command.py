"""`tidelog report`: draw the analyses of a store into one HTML file."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from tidelog.disk.readable import ERRORS
from tidelog.engine.keys.state import DATABASES
from tidelog.figures.queues import in_state
from tidelog.jobs.options import make_options
from tidelog.resp.urls import without_passwords
from tidelog.snapshot.manifest import Manifest
from tidelog.snapshot.place import place_of
from tidelog.snapshot.sealed import Sealed, read_manifest
from tidelog.spark import pin
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.batch.snapshots import opened, resolve, telling
from tidelog.store.errors import DataError
from tidelog.tools import console, names
from tidelog.tools.heads import tool_command
from tidelog.tools.installed import installed
from tidelog.tools.latest import named
from tidelog.tools.logfiles import LogFiles
from tidelog.tools.output import force_option, output_option, publish, writable
from tidelog.tools.report.plain_log import deliveries, log_of
from tidelog.tools.report.rows import Queue
from tidelog.tools.spark_session import spark_session
from tidelog.tools.text import size_text, time_text

SPARK: Final = ("pyspark", "pyarrow")
# Up to this number of entries and pending entries of the snapshot, and streams and groups of all snapshots, are read
# in this process: 2 to 4 microseconds each, 10 for the job of a queue. That is less than the 5 seconds and more in
# which Spark starts and runs its queries over an empty store, and needs at most some hundred MB. So does a log of this
# length.
ITEMS_MAX: Final = 500_000
LOG_BYTES_MAX: Final = 32 << 20
QUEUES_MAX: Final = 10  # shown, unless they are named

if TYPE_CHECKING:
    from tidelog.tools.report.content import Analyses


@tool_command(
    "tidelog report orders-data -o report.html",
    "tidelog report orders-data/snapshots/00000000000000004711 -o report.html --queue mails",
    "tidelog report orders-data -o report.html --log --poison 3 --force",
)
@click.argument("path", metavar="PATH|URL")
@output_option("The HTML file to write.", required=True)
@force_option
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
    help="Read the events from the store's log, as far back as it goes. Not with a Spark master elsewhere.",
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
    help="Number of deliveries from which a message counts as poison.",
)
@click.option(
    "--top", type=click.IntRange(1), default=20, show_default=True, help="Rows of a table."
)
@click.option(
    "--master",
    help="Run the analyses in Spark at this master. Default: in this process, and a large store or --events in Spark "
    "at local[*], with one task for each core of this machine.",
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
    master: str | None,
) -> None:
    installed("tidelog report", "matplotlib", extra="report")
    writable(output, force)
    path = named(path)
    # here: these load matplotlib
    from tidelog.tools.report.content import plan
    from tidelog.tools.report.page import page

    if with_log and events is not None:
        raise click.UsageError("give either --log or --events, not both")
    if with_log and master is not None and not master.startswith("local"):
        raise click.UsageError(
            "--log works only with a Spark master on this machine; with a remote one, export the events, and pass "
            "the exported files with --events"
        )
    if events is not None:
        _find(events)
    if events is not None or master is not None:
        _spark_installed()
    asked = [_queue(name) for name in queues]
    if snapshot == "all":
        raise click.BadParameter("a report shows one snapshot; give latest, now or an LSN")
    with pin(path, snapshot) as pinned, opened(pinned) as sealed:
        manifests = _manifests(path, pinned)
        shown = manifests[pinned]
        log = log_of(Path(path)) if with_log else None
        if master is None:
            master = _master(shown, [*manifests.values()], events, log)
        with (
            _in_process(manifests, pinned, sealed, log)
            if master is None
            else _in_spark(master, manifests, pinned, events, log)
        ) as analyses:
            found = asked or _queues_of(sealed)
            steps = plan(analyses, queues=found, deliveries=poison, top=top)
            sections = []
            with console.progress("report", len(steps)) as advance:
                for step in steps:
                    sections.append(step())
                    advance(1)
    counts = shown.counts
    facts = {
        "store": shown.uuid.hex(),
        "snapshot": f"{without_passwords(pinned)}, everything through LSN {shown.lsn}",
        "last write": time_text(shown.now_ms),
        "contents": f"{counts.entries:,} entries in {counts.streams:,} streams, {counts.groups:,} groups, "
        f"{counts.pending:,} pending, {size_text(shown.data_bytes)}",
        "log": "its events are included" if with_log or events is not None else "not read",
        "report made": time_text(time.time_ns() // 1_000_000),
    }
    html = page(f"Report on {without_passwords(path)}", facts, sections)
    publish(output, html.encode(errors=ERRORS))
    click.echo(f"{output}: {len(sections)} sections of the snapshot at LSN {shown.lsn}")


def _manifests(path: str, pinned: str) -> dict[str, Manifest]:
    """The manifests of the store's snapshots by their paths, or of the one that `path` is."""
    several = [*resolve((path,), "all")] if pinned != path else [path]
    if pinned not in several:
        several = [pinned]
    found = {}
    for each in several:
        with telling(each), closing(place_of(each)) as place:
            found[each] = read_manifest(place)
    return found


def _master(
    shown: Manifest, every: Sequence[Manifest], events: str | None, log: LogFiles | None
) -> str | None:
    """The master of Spark if the caller named none. None: the store is small, so Spark is not worth its start."""
    counts = shown.counts.entries + shown.counts.pending
    counts += sum(each.counts.streams + each.counts.groups for each in every)
    small = counts <= ITEMS_MAX and (log is None or log.size() <= LOG_BYTES_MAX)
    return None if small and events is None else "local[*]"


@contextmanager
def _in_process(
    manifests: Mapping[str, Manifest], pinned: str, sealed: Sealed, log: LogFiles | None
) -> Iterator[Analyses]:
    # here: a report in Spark does not load it
    from tidelog.tools.report.plain import Plain

    found = None if log is None else deliveries(log)
    yield Plain(_moments(manifests), pinned, manifests[pinned].now_ms, sealed, found)


@contextmanager
def _in_spark(
    master: str,
    manifests: Mapping[str, Manifest],
    pinned: str,
    events: str | None,
    log: LogFiles | None,
) -> Iterator[Analyses]:
    _spark_installed()
    # here: these load pyspark and pyarrow
    from tidelog.tools.report.log_events import written
    from tidelog.tools.report.over_spark import OverSpark

    with TemporaryDirectory() as scratch:
        if log is not None:
            events = str(written(log, Path(scratch, "events.parquet")))
        with spark_session(master) as spark:
            table = None if events is None else spark.read.parquet(events)
            yield OverSpark(spark, _moments(manifests), pinned, manifests[pinned].now_ms, table)


def _spark_installed() -> None:
    installed("tidelog report in Spark", *SPARK, extra="report")


def _moments(manifests: Mapping[str, Manifest]) -> list[tuple[str, int]]:
    return [(each, manifest.now_ms) for each, manifest in manifests.items()]


def _queues_of(sealed: Sealed) -> list[Queue]:
    """The queues of a snapshot whose names are text, those with the most jobs that are not done first."""
    found = []
    rows = in_state(sealed.state(), range(DATABASES), sealed.manifest.now_ms)
    for row in sorted(rows, key=lambda row: -row.depth):
        with suppress(UnicodeDecodeError):
            found.append(Queue(row.db, row.key.decode(), (row.group or b"").decode()))
    return found[:QUEUES_MAX]


def _queue(given: str) -> Queue:
    """The queue of `NAME[:GROUP]` in database 0. A name may contain colons itself, so the last one counts."""
    name, colon, group = given.rpartition(":")
    found = (name, group) if colon else (given, "workers")
    try:
        make_options(*found)
    except DataError as error:
        raise click.BadParameter(f"{given}: {error}") from None
    return Queue(0, *found)


def _find(events: str) -> None:
    """Find out before the work that there are no events."""
    if "://" not in events and not Path(events).exists():
        raise TidelogSparkError(
            "TIDELOG_IO", f"{events}: the file or directory of events does not exist"
        )
