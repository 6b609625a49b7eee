"""Options of a batch read, parsed and checked by name. Spark passes their names in lower case and their values as text.

docs/guides/spark.md lists them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

from tidelog.engine.ids import MAX, SEQ_MAX
from tidelog.engine.keys.state import DATABASES
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source import schemas

OPTION: Final = "TIDELOG_OPTION"
TARGET_BYTES: Final = 16 << 20
BATCH_ROWS: Final = 10_000

NAMES: Final = (
    *("path", "paths", "table", "snapshot", "db", "columns", "fields", "decode", "onBadValue"),
    *("streams", "streamsPattern", "startId", "endId", "startTimestamp", "endTimestamp"),
    *("targetPartitionBytes", "maxPartitions", "batchRows", "verify"),
)


@dataclass(frozen=True)
class Options:
    """The request of a batch read.

    paths               of snapshots or stores; local paths or URLs
    snapshot            "latest", "all", "now" or an LSN: which snapshot of a store
    table               one of `schemas.TABLES`
    db                  only this database; None: all
    columns             names of the columns asked for, or None for the usual ones
    fields              "array", "map", "json" or "wide"
    decode              "none" or "utf8"
    on_bad_value        "null" or "fail": a value that is no UTF-8, or does not have its column's type
    streams, pattern    only these streams; only those whose names match a glob pattern of Redis
    start, end          IDs of the first and last entry, both included
    target_bytes        of a partition, before decoding; None: TARGET_BYTES, or less so that each core has work
    partitions_max      None: any number
    batch_rows          entries in an Arrow batch
    verify              whether the checksum of each block is verified
    """

    paths: tuple[str, ...]
    snapshot: str = "latest"
    table: str = "entries"
    db: int | None = None
    columns: tuple[str, ...] | None = None
    fields: str = "array"
    decode: str = "none"
    on_bad_value: str = "fail"
    streams: tuple[bytes, ...] | None = None
    pattern: bytes | None = None
    start: int = 0
    end: int = MAX
    target_bytes: int | None = None
    partitions_max: int | None = None
    batch_rows: int = BATCH_ROWS
    verify: bool = True


def parse(given: Mapping[str, str]) -> Options:
    """Parse the options of a batch read. Raises TidelogSparkError."""
    told = {name.lower(): value for name, value in given.items()}
    refuse_unknown(told, NAMES)
    table = choice(told, "table", schemas.TABLES, "entries")
    snapshot = told.get("snapshot", "latest")
    if snapshot not in ("latest", "all", "now") and not (snapshot.isascii() and snapshot.isdigit()):
        raise refused("snapshot", snapshot, "latest, all, now or an LSN")
    fields = choice(told, "fields", ("array", "map", "json", "wide"), "array")
    start, end = _span(told)
    columns = _columns(told.get("columns"), table, fields)
    partitions_max = number(told, "maxPartitions", 1, 1 << 20)
    if table != "entries":
        for name in ("startId", "endId", "startTimestamp", "endTimestamp", "fields"):
            if name.lower() in told:
                raise TidelogSparkError(
                    OPTION, f"option {name} can only be used with table=entries, not {table}"
                )
    return Options(
        paths=_paths(told),
        snapshot=snapshot,
        table=table,
        db=number(told, "db", 0, DATABASES - 1),
        columns=columns,
        fields=fields,
        decode=choice(told, "decode", ("none", "utf8"), "none"),
        on_bad_value=choice(told, "onBadValue", ("null", "fail"), "fail"),
        streams=None if "streams" not in told else _streams(told["streams"]),
        pattern=_name("streamsPattern", told["streamspattern"])
        if "streamspattern" in told
        else None,
        start=start,
        end=end,
        target_bytes=number(told, "targetPartitionBytes", 1, 1 << 40),
        partitions_max=partitions_max,
        batch_rows=number(told, "batchRows", 1, 1 << 24) or BATCH_ROWS,
        verify=choice(told, "verify", ("crc", "none"), "crc") == "crc",
    )


def refuse_unknown(told: Iterable[str], known: Iterable[str]) -> None:
    """Raise TidelogSparkError if an option is unknown. `told`: names in lower case."""
    names = {name.lower(): name for name in known}
    for name in told:
        if name not in names:
            close = get_close_matches(name, names, 1)
            hint = f"the options are {', '.join(names.values())}"
            if close:
                hint = f"did you mean {names[close[0]]}?"
            raise TidelogSparkError(OPTION, f"unknown option {name}; {hint}")


def refused(name: str, value: str, wanted: str) -> TidelogSparkError:
    """The error for an option whose value is not allowed."""
    return TidelogSparkError(OPTION, f"option {name}: {value!r} is not allowed; give {wanted}")


def choice(told: Mapping[str, str], name: str, choices: Iterable[str], default: str) -> str:
    value = told.get(name.lower(), default).lower()
    if value not in choices:
        raise refused(name, value, " or ".join(choices))
    return value


def number(told: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    value = told.get(name.lower())
    if value is None:
        return None
    if not (value.isascii() and value.isdigit()) or not least <= int(value) <= most:
        raise refused(name, value, f"a number from {least} to {most}")
    return int(value)


def _paths(told: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in told:
        if "path" in told:
            raise TidelogSparkError(OPTION, "give either path or paths, not both")
        return _list(told["paths"], "paths", "a JSON list of paths")
    if not told.get("path"):
        raise TidelogSparkError(
            OPTION,
            "no snapshot or store is named; give its path with .load(PATH) or .option('path', PATH)",
        )
    return (told["path"],)


def _streams(value: str) -> tuple[bytes, ...]:
    if value.lstrip().startswith("["):
        names = _list(value, "streams", "a name, or a JSON list of names")
        return tuple(_name("streams", each) for each in names)
    return (_name("streams", value),)


def _name(option: str, value: str) -> bytes:
    """The bytes of a name. A byte that is not UTF-8 is the surrogate U+DC00 plus the byte, as Python has it in the
    arguments of a command."""
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise refused(
            option,
            value,
            "names as text, in which a byte that is not UTF-8 is \\udc80 to \\udcff",
        ) from None


def _list(value: str, name: str, wanted: str) -> tuple[str, ...]:
    try:
        found = json.loads(value)
    except ValueError:
        raise refused(name, value, wanted) from None
    if not isinstance(found, list) or not found or not all(isinstance(each, str) for each in found):
        raise refused(name, value, wanted)
    return tuple(found)


def _columns(value: str | None, table: str, fields: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    names = tuple(each.strip() for each in value.split(",") if each.strip())
    check_columns(names, table, fields)
    return names


def check_columns(names: tuple[str, ...], table: str, fields: str) -> None:
    """Raise TidelogSparkError for columns that a table does not have, or that appear twice."""
    known = schemas.columns_of(table)
    if not names:
        raise TidelogSparkError(OPTION, "the list of columns is empty")
    if len(set(names)) < len(names):
        raise TidelogSparkError(OPTION, f"a column appears twice in {', '.join(names)}")
    for name in names:
        if name not in known and fields != "wide":
            raise TidelogSparkError(
                OPTION,
                f"the table {table} has no column {name}; it has {', '.join(known)}",
            )


def _span(told: Mapping[str, str]) -> tuple[int, int]:
    start, end = 0, MAX
    if "startid" in told:
        start = _id("startId", told["startid"], 0)
    if "endid" in told:
        end = _id("endId", told["endid"], SEQ_MAX)
    if "starttimestamp" in told:
        start = max(start, ms_of("startTimestamp", told["starttimestamp"]) << 64)
    if "endtimestamp" in told:
        end = min(end, ms_of("endTimestamp", told["endtimestamp"]) << 64 | SEQ_MAX)
    return start, end


def _id(name: str, value: str, seq: int) -> int:
    """An ID `ms-seq`, or `ms` alone with the `seq` that makes the range include the millisecond."""
    ms, dash, rest = value.partition("-")
    parts = [ms, rest] if dash else [ms]
    if not all(part.isascii() and part.isdigit() and int(part) <= SEQ_MAX for part in parts):
        raise refused(name, value, "an ID as ms or ms-seq")
    return int(ms) << 64 | (int(rest) if dash else seq)


def ms_of(name: str, value: str) -> int:
    """Unix ms of a time: a number of ms, or ISO 8601; UTC if it names no zone."""
    if value.isascii() and value.isdigit() and int(value) <= SEQ_MAX:
        return int(value)
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        raise refused(
            name, value, "Unix milliseconds, or a time such as 2026-01-31T12:00:00Z"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return max(int(time.timestamp() * 1000), 0)
