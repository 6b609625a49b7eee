"""Request: the arguments of an export, checked, and whether it can continue another export."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from tidelog.snapshot.sealed import Sealed
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.files import ENTRIES
from tidelog.spark.exports.formats import FORMATS
from tidelog.spark.exports.incremental import continues
from tidelog.spark.exports.seal import Export, verify
from tidelog.spark.exports.target import EXPORT
from tidelog.spark.exports.task import INDEX
from tidelog.spark.source import schemas
from tidelog.spark.source.batch import snapshots
from tidelog.spark.source.options import OPTION, parse

REMOVED: Final = "removed"
KEYS: Final = "keys"

# Options by what they determine: which keys and entries, the columns of entries, and the rest.
RANGES: Final = ("startId", "endId", "startTimestamp", "endTimestamp")
SELECTING: Final = ("db", "streams", "streamsPattern", *RANGES)
SHAPING: Final = ("columns", "fields", "decode", "onBadValue")
GENERAL: Final = ("snapshot", "verify", "targetPartitionBytes")
PARTITIONS: Final = ("stream", "date")


class Request(NamedTuple):
    """An export that was asked for. `snapshot` is the path or URL of the snapshot itself."""

    snapshot: str
    to: str
    tables: tuple[str, ...]
    options: dict[str, str]
    format: str
    partition_by: tuple[str, ...]

    def identity(self, sealed: Sealed, base: Export | None) -> str:
        """The same for the same command over the same snapshot."""
        manifest = sealed.manifest
        told = {
            "uuid": manifest.uuid.hex(),
            "position": list(manifest.position),
            "data": manifest.blake2b,
            "tables": self.tables,
            "options": self.options,
            "format": self.format,
            "partition_by": self.partition_by,
            "since": None if base is None else base.seal.check,
        }
        packed = json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
        return blake2b(packed, digest_size=16).hexdigest()

    @property
    def selection(self) -> dict[str, str]:
        """The options that choose keys and entries."""
        return {name: value for name, value in self.options.items() if name in SELECTING}

    @property
    def shape(self) -> dict[str, str]:
        """The options that shape the columns of entries."""
        return {name: value for name, value in self.options.items() if name in SHAPING}


def checked(
    snapshot: str,
    to: str,
    tables: Sequence[str],
    since: str | None,
    options: Mapping[str, str],
    format: str,
    partition_by: Sequence[str],
) -> Request:
    """Check the arguments of `export.export`. Raises TidelogSparkError."""
    for table in tables:
        if table not in schemas.TABLES:
            raise _wrong(f"there is no table {table}; there are {', '.join(schemas.TABLES)}")
    if not tables or len(set(tables)) < len(tables):
        raise _wrong("name at least one table, and no table twice")
    if format not in FORMATS:
        raise _wrong(f"the format {format!r} is not one of {', '.join(FORMATS)}")
    for each in partition_by:
        if each not in PARTITIONS:
            raise _wrong(f"entries can be partitioned by stream and date, not by {each}")
    known = {name.lower(): name for name in (*SELECTING, *SHAPING, *GENERAL)}
    told: dict[str, str] = {}
    for name, value in options.items():
        if name.lower() not in known:
            raise _wrong(f"the option {name} is not one of {', '.join(known.values())}")
        told[known[name.lower()]] = value
    if told.get("fields") == "wide":
        raise _wrong(
            "fields=wide needs a schema, which an export does not take; read the snapshot with a schema in Spark, and "
            "write that DataFrame"
        )
    if since is not None:
        if any(name in told for name in RANGES):
            raise _wrong(
                "an incremental export takes whole streams: leave out the range of IDs or times"
            )
        if KEYS in tables:
            raise _wrong(
                "an incremental export always writes its own table keys; leave keys out of the tables"
            )
        if ENTRIES not in tables:
            raise _wrong(
                "an incremental export must include the table entries: the other tables are always written whole"
            )
        if partition_by or format != "parquet":
            raise _wrong("an incremental export can only be written as Parquet without partitions")
    (path,) = snapshots.resolve((snapshot,), told.pop("snapshot", "latest"))
    parse({"path": path, **told})  # raises for wrong values
    return Request(path, to, tuple(tables), told, format, tuple(partition_by))


def check_base(base: Export, request: Request, sealed: Sealed) -> None:
    """Check that an export can be continued with this one. Raises TidelogSparkError."""
    why = continues(
        base.seal.snapshot.line,
        (sealed.manifest.uuid, sealed.manifest.position, sealed.manifest.epochs),
    )
    if why:
        raise refused(f"{base.name} cannot be continued with {sealed.place.name}: {why}")
    if not base.seal.of_table(INDEX):
        raise refused(
            f"{base.name} has no index: only an export of the table entries can be continued"
        )
    if any(name in base.seal.selection for name in RANGES):
        raise refused(f"{base.name} holds only a range of IDs or times, and cannot be continued")
    if base.seal.selection != request.selection:
        raise refused(
            f"{base.name} was made with other filters ({json.dumps(base.seal.selection)}); give the same ones"
        )
    if base.seal.shape != request.shape:
        raise refused(
            f"{base.name} was made with other columns ({json.dumps(base.seal.shape)}); give the same options"
        )
    verify(base, *base.seal.of_table(INDEX))


def _wrong(message: str) -> TidelogSparkError:
    return TidelogSparkError(OPTION, message)


def refused(message: str) -> TidelogSparkError:
    return TidelogSparkError(EXPORT, message)
