"""`tidelog export`: the tables of a snapshot as files, whole or as what changed since an earlier export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from tidelog.tools import console
from tidelog.tools.heads import json_option, tool_command
from tidelog.tools.installed import installed
from tidelog.tools.latest import named
from tidelog.tools.spark_session import spark_session
from tidelog.tools.text import path_value
from tidelog.tools.times import renamed

if TYPE_CHECKING:
    from tidelog.spark.exports.run import Runner
    from tidelog.spark.exports.seal import ExportFile
    from tidelog.spark.exports.task import Task

TABLES: Final = ("entries", "streams", "groups", "consumers", "pending", "keys")
FORMATS: Final = ("parquet", "csv", "json", "orc")
LAKES: Final = {"delta": "deltalake", "iceberg": "pyiceberg"}
NO_SPARK: Final = "none"

# Flags with the names of the batch source's options.
# fmt: off
FILTERS: Final = {
    "db": ("N", "Only this database."),
    "streams": ("NAME", "Only this stream, or those in a JSON list."),
    "streamsPattern": ("GLOB", "Only streams whose names match."),
    "startId": ("ID", "Only entries from this ID on."),
    "endId": ("ID", "Only entries up to this ID."),
    "startTimestamp": ("TIME", "Only entries from this time on: ISO 8601, or Unix milliseconds."),
    "endTimestamp": ("TIME", "Only entries up to this time."),
    "columns": ("NAMES", "Only these columns of entries, separated by commas."),
    "fields": ("FORM", "Fields as array (default), map or json."),
    "decode": ("HOW", "Names and values of fields as bytes (none, the default) or text (utf8)."),
    "onBadValue": ("WHAT", "A value that is no UTF-8: fail (default) or null."),
    "snapshot": ("WHICH", "Snapshot of a store: latest (default), now, or an LSN."),
}
# fmt: on


def filters(command: Any) -> Any:
    """Add a flag for each option of the batch source."""
    for name, (metavar, text) in reversed(FILTERS.items()):
        flag = "--" + "".join(f"-{each.lower()}" if each.isupper() else each for each in name)
        command = click.option(flag, name.lower(), metavar=metavar, help=text)(command)
    return command


@tool_command(
    "tidelog export orders-data --to monday",
    "tidelog export orders-data --to tuesday --changed-since monday",
    "tidelog export backup/00000000000000004711 --to s3://bucket/orders --table entries --table groups",
    "tidelog export orders-data --to files --partition-by stream,date --streams-pattern 'orders:*'",
    "tidelog export orders-data --to csv --format csv --master none",
    "tidelog export orders-data --to delta:tables/orders --master none",
)
@click.argument("path", metavar="SNAPSHOT")
@click.option(
    "--to",
    required=True,
    metavar="DIR|URL",
    help="Where to write: an empty directory or URL; delta:DIR or iceberg:DIR for a table of that kind. If an export "
    "was interrupted, the same command goes on with it.",
)
@click.option(
    "--table",
    "tables",
    multiple=True,
    default=("entries",),
    show_default=True,
    type=click.Choice(TABLES),
    help="A table; repeatable.",
)
@renamed(
    "--changed-since",
    "since",
    formerly=("--since",),
    metavar="EXPORT",
    help="An earlier export of the same store: write only what was added and removed since.",
)
@click.option(
    "--format",
    "form",
    default="parquet",
    show_default=True,
    type=click.Choice(FORMATS),
    help="The form of the files.",
)
@click.option(
    "--partition-by", default="", metavar="COLUMNS", help="Folders by stream, date or stream,date."
)
@click.option(
    "--replace-newer",
    is_flag=True,
    help="For delta: and iceberg:, replace a table that holds a newer snapshot of the store.",
)
@click.option(
    "--master",
    default="local[*]",
    show_default=True,
    help="Master of Spark, which runs the tasks; none: processes of this machine, without Java.",
)
@filters
@json_option()
def command(
    path: str,
    to: str,
    tables: tuple[str, ...],
    since: str | None,
    form: str,
    partition_by: str,
    replace_newer: bool,
    master: str,
    as_json: bool,
    **options: str | None,
) -> None:
    installed("tidelog export", "pyarrow", extra="spark")
    path = named(path)
    # here: it loads pyarrow
    from tidelog.spark.exports import export, lakes

    told: dict[str, Any] = {
        "tables": tables,
        "since": since,
        "format": form,
        "partition_by": [each.strip() for each in partition_by.split(",") if each.strip()],
        "options": {name: value for name, value in options.items() if value is not None},
    }
    kind, _, place = to.partition(":")
    if kind in LAKES and not place.startswith("//"):
        installed("tidelog export", LAKES[kind], extra=kind)
        told["replace_newer"] = replace_newer
        made = lakes.export(path, kind, place, **told, progress=console.progress)
        facts: dict[str, Any] = made._asdict()
        existed = made.existed
        text = f"{made.path}: {made.rows:,} rows, committed as version {made.version}"
    else:
        runner = _runner(master)
        done = export.export(path, to, **told, runner=runner, progress=console.progress)
        seal, existed = done.seal, done.existed
        facts = {
            "path": path_value(done.path),
            "lsn": seal.snapshot.position.lsn,
            "since": None if seal.since is None else seal.since.lsn,
            "existed": existed,
            "kept": done.kept,
            "tables": seal.tables,
            "files": len(seal.files),
            "bytes": sum(file.nbytes for file in seal.files),
        }
        rows = ", ".join(f"{count:,} rows of {table}" for table, count in seal.tables.items())
        text = f"{done.path}: {rows}, through LSN {seal.snapshot.position.lsn}"
    if existed:
        text += " (exported before; nothing was written)"
    console.told(as_json, facts, text)


def _runner(master: str) -> Runner:
    """The runner of the tasks. Spark is started when there are tasks to run."""
    # here: it loads pyarrow
    from tidelog.spark.exports.run import in_processes, in_spark

    if master == NO_SPARK:
        return in_processes()
    installed("tidelog export", "pyspark", extra="spark")

    def run(tasks: Sequence[Task], advance: Callable[[int], object]) -> list[list[ExportFile]]:
        with spark_session(master) as spark:
            return in_spark(spark)(tasks, advance)

    return run
