"""Lakes: a table of a snapshot as a Delta or Iceberg table, in one atomic commit.

The libraries deltalake and pyiceberg write the files and the commit, in this process. The commit says which snapshot it
holds. A table that an earlier export of the same store made gets a new version; any other table is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from tidelog.snapshot.manifest import Manifest
from tidelog.snapshot.remote import reason_of
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.export import Advance, Progress, silent
from tidelog.spark.exports.files import ENTRIES, in_order
from tidelog.spark.exports.plan import columns_in_order
from tidelog.spark.exports.target import EXPORT, Overtaken, telling
from tidelog.spark.source.batch import snapshots
from tidelog.spark.source.batch.plan import Part
from tidelog.spark.source.batch.read import Read, read
from tidelog.spark.source.options import OPTION, parse

ATTEMPTS: Final = 5  # an export whose commit comes second looks at the table again, and writes it again if it must
UUID: Final = "tidelog.uuid"
LSN: Final = "tidelog.lsn"
TABLE: Final = "tidelog.table"
OPTIONS: Final = "tidelog.options"
TOUCHED: Final = (
    "touched"  # somebody else has changed the rows since the newest commit of an export
)
# Operations of a Delta table that leave its rows as they are.
KEEPING: Final = frozenset(
    ("OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "ADD FEATURE", "FSCK")
)


class Committed(NamedTuple):
    """A table of a lake.

    Attributes:
        path: Its directory or URL.
        version: Of the table, after the commit.
        rows: How many it has.
        lsn: The last LSN of the snapshot.
        existed: This snapshot was committed before; nothing was written.
    """

    path: str
    version: int
    rows: int
    lsn: int
    existed: bool = False


class Lake(Protocol):
    """One table of a lake."""

    def told(self) -> tuple[int, Mapping[str, str]] | None:
        """The version of the existing table and what the newest commit of an export says; None if there is no table."""
        ...

    def commit(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], told: Mapping[str, str]
    ) -> int:
        """Replace the content that `told` found, or create the table, in one commit. Returns the version.

        The table gets the columns of `schema`, and no others. Raises Overtaken if the table is no longer as `told`
        found it.
        """
        ...


def export(
    snapshot: str,
    kind: str,
    place: str,
    *,
    tables: Sequence[str] = (ENTRIES,),
    since: str | None = None,
    options: Mapping[str, str] = {},
    format: str = "parquet",
    partition_by: Sequence[str] = (),
    replace_newer: bool = False,
    progress: Progress = silent,
) -> Committed:
    """Export one table of a snapshot as a table of a lake. Arguments as of `export.export`.

    `replace_newer`: whether the table may hold a newer snapshot of the store. Raises TidelogSparkError.
    """
    if len(tables) != 1 or since is not None or partition_by or format != "parquet":
        raise TidelogSparkError(
            OPTION,
            f"an export to {kind}: must be whole, of exactly one table, without partitions, as Parquet",
        )
    told = dict(options)
    (path,) = snapshots.resolve((snapshot,), told.pop("snapshot", "latest"))
    parsed = parse({"path": path, "table": tables[0], **told})
    planned = read(parsed, (path,), columns_in_order(parsed))
    with snapshots.opened(path) as sealed, telling(place):
        for _ in range(ATTEMPTS):
            with suppress(Overtaken), _own_errors(kind, place):
                lake, facts = _lake(kind, place), _facts(sealed.manifest, tables[0], told)
                there = _there(lake, place, sealed.manifest, facts, replace_newer)
                return there or _exported(lake, place, sealed.manifest, facts, planned, progress)
    raise TidelogSparkError(
        EXPORT, f"{place}: others committed first, {ATTEMPTS} times. Run the same command again"
    )


@contextmanager
def _own_errors(kind: str, place: str) -> Iterator[None]:
    """Tell errors of the library in one line."""
    try:
        yield
    except (TidelogSparkError, Overtaken, OSError, pa.ArrowException):
        raise
    except Exception as error:
        raise TidelogSparkError(
            EXPORT,
            f"{place}: the {kind} table cannot be read or written ({reason_of(place, error)}). Repair it, or give "
            "another place",
        ) from error


def _facts(manifest: Manifest, table: str, options: Mapping[str, str]) -> dict[str, str]:
    told = json.dumps(dict(options), sort_keys=True)
    return {UUID: manifest.uuid.hex(), LSN: str(manifest.lsn), TABLE: table, OPTIONS: told}


def _there(
    lake: Lake, place: str, manifest: Manifest, facts: Mapping[str, str], replace_newer: bool
) -> Committed | None:
    """The commit of this very content, if it is the table's. Raises TidelogSparkError if it must not be replaced."""
    there = lake.told()
    if there is None:
        return None
    version, known = there
    table = facts[TABLE]
    if any(known.get(name) != facts[name] for name in (UUID, TABLE)):
        raise TidelogSparkError(
            EXPORT,
            f"{place} holds a table that was not made by exports of table {table} of this store; give another place",
        )
    lsn = int(known[LSN])
    if lsn > manifest.lsn and not replace_newer:
        raise TidelogSparkError(
            EXPORT,
            f"{place} holds LSN {lsn} of the store, and the snapshot is older: LSN {manifest.lsn}. To replace the "
            "newer content, give --replace-newer",
        )
    same = lsn == manifest.lsn and known.get(OPTIONS, "{}") == facts[OPTIONS]
    if not same or known.get(TOUCHED):
        return None
    return Committed(place, version, _Counted.of(known), lsn, existed=True)


def _exported(
    lake: Lake,
    place: str,
    manifest: Manifest,
    facts: Mapping[str, str],
    planned: Read,
    progress: Progress,
) -> Committed:
    """Commit the rows to the table as `told` found it. Raises Overtaken, TidelogSparkError."""
    parts = planned.parts()
    with progress("exporting", len(parts)) as advance:
        batches = _Counted(planned, parts, advance)
        schema = pa.schema(list(planned.columns.items()))
        try:
            version = lake.commit(schema, iter(batches), facts)
        except Exception:
            if batches.failure is not None:  # a library would tell it as an error of its own
                raise batches.failure from None
            raise
    return Committed(place, version, batches.rows, manifest.lsn)


class _Counted:
    """The batches of a read, in order within each partition. `rows`: how many rows they had."""

    def __init__(self, planned: Read, parts: Sequence[Any], advance: Advance) -> None:
        self._planned, self._parts, self._advance = planned, parts, advance
        self._schema = pa.schema(list(planned.columns.items()))
        self.rows = 0
        self.failure: TidelogSparkError | None = None

    @staticmethod
    def of(known: Mapping[str, str]) -> int:
        """How many rows a commit says."""
        return int(known.get("rows", 0))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._all()
        except TidelogSparkError as error:
            self.failure = error
            raise

    def _all(self) -> Iterator[pa.RecordBatch]:
        for part in self._parts:
            batches = self._planned.batches(part)
            if isinstance(part, Part) and len(part.pieces) > 1:
                batches = iter(in_order(pa.Table.from_batches(batches, self._schema)).to_batches())
            for batch in batches:
                self.rows += len(batch)
                yield batch
            self._advance(1)


def _lake(kind: str, place: str) -> Lake:
    if kind == "delta":
        return _Delta(place)
    if kind == "iceberg":
        # Loaded here, because each library is needed for its own kind of table only.
        from tidelog.spark.exports.iceberg import Iceberg

        return Iceberg(place)
    raise TidelogSparkError(OPTION, f"{kind}: is not a kind of table; use delta: or iceberg:")


class _Delta:
    def __init__(self, place: str) -> None:
        self._place = place if "://" in place else str(Path(place).absolute())
        self._table: Any = None  # as `told` found it

    def told(self) -> tuple[int, Mapping[str, str]] | None:
        import deltalake

        if not deltalake.DeltaTable.is_deltatable(self._place):
            return None
        table = self._table = deltalake.DeltaTable(self._place)
        known: dict[str, str] = {}
        touched = ""
        for commit in table.history():  # the newest first
            if UUID in commit:
                known = {name: str(value) for name, value in commit.items()}
                break
            if commit.get("operation") not in KEEPING:
                touched = "yes"
        known[TOUCHED] = touched
        known["rows"] = str(table.count() if known.get(UUID) else 0)
        return table.version(), known

    def commit(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], told: Mapping[str, str]
    ) -> int:
        import deltalake

        new = self._table is None
        try:
            deltalake.write_deltalake(
                self._place if new else self._table,
                pa.RecordBatchReader.from_batches(schema, batches),
                mode="error" if new else "overwrite",
                schema_mode=None if new else "overwrite",
                # With a retry, deltalake would take what another commit added for rows that do not concern this one.
                commit_properties=deltalake.CommitProperties(
                    custom_metadata=dict(told), max_commit_retries=0
                ),
            )
        except deltalake.exceptions.CommitFailedError as error:
            raise Overtaken from error
        except deltalake.exceptions.DeltaError as error:
            if new and deltalake.DeltaTable.is_deltatable(self._place):
                raise Overtaken from error
            raise
        return 0 if new else int(self._table.version())
