"""Read: one batch read: its columns, its partitions, and the batches of each. Needs no JVM.

The driver makes it, and Spark pickles it into the workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source import schemas
from tidelog.spark.source.batch import entries, tables, values
from tidelog.spark.source.batch.columns import Batches
from tidelog.spark.source.batch.plan import KeysPart, Part, Selection, keys_parts, parts, selection
from tidelog.spark.source.batch.snapshots import opened, telling
from tidelog.spark.source.options import OPTION, Options, check_columns

Parts = Part | KeysPart


def columns_of(options: Options, snapshots: int = 1) -> dict[str, pa.DataType]:
    """The columns of a read without a schema of the user's. `snapshots`: how many are read."""
    known = schemas.columns_of(options.table)
    if options.table == "entries":
        known["fields"] = values.field_type(options.fields, options.decode)
    names = options.columns
    if names is None:
        if options.fields == "wide":
            raise TidelogSparkError(
                OPTION,
                "fields=wide needs a schema that names the fields: spark.read.schema('id STRING, amount DOUBLE')",
            )
        names = (*schemas.TABLES[options.table], *(schemas.WHERE if snapshots > 1 else ()))
    return {name: known[name] for name in names}


def columns_by(options: Options, given: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns of a read with a schema of the user's. Raises TidelogSparkError."""
    check_columns(tuple(given), options.table, options.fields)
    known = schemas.columns_of(options.table)
    if options.table == "entries":
        known["fields"] = values.field_type(options.fields, options.decode)
    if options.fields == "wide":
        known.pop("fields")
    for name, kind in given.items():
        if name in known:
            if kind != known[name]:
                raise TidelogSparkError(
                    OPTION,
                    f"column {name} has the type {schemas.ddl_of(known[name])}, but the schema says {kind}",
                )
        elif kind not in values.WIDE_TYPES:
            raise TidelogSparkError(
                OPTION, f"column {name}: the value of a field cannot be read as {kind}"
            )
    return dict(given)


@dataclass(frozen=True)
class Read:
    """A batch read.

    options     what was asked for
    paths       of the snapshots
    columns     names and types, in order
    wanted      which keys and entries
    """

    options: Options
    paths: tuple[str, ...]
    columns: Mapping[str, pa.DataType]
    wanted: Selection

    def parts(self) -> list[Parts]:
        """The partitions. Raises TidelogSparkError."""
        found: list[Parts] = []
        if self.wanted.dbs == frozenset() or self.wanted.names == frozenset():
            return found
        for path in self.paths:
            with opened(path) as sealed, telling(path):
                planned: Sequence[Parts]
                if self.options.table == "entries":
                    planned = parts(sealed, self.wanted, self.options, len(self.paths))
                else:
                    planned = keys_parts(sealed, self.wanted)
                # A worker needs the whole URL to open the snapshot, but the name of a Place lacks the URL's options.
                found += [replace(part, path=path) for part in planned]
        return found

    def batches(self, part: Parts) -> Iterator[pa.RecordBatch]:
        """The rows of a partition. Raises TidelogSparkError."""
        with opened(part.path) as sealed, telling(part.path):
            if sealed.manifest.lsn != part.lsn:
                raise TidelogSparkError(
                    "TIDELOG_SNAPSHOT",
                    f"{sealed.place.name} holds LSN {sealed.manifest.lsn} now, but "
                    f"held LSN {part.lsn} when the read was planned",
                )
            if isinstance(part, Part):
                named = replace(part, path=sealed.place.name)
                nodes = entries.nodes(sealed.rows, named, self.wanted.span)
                yield from self.maker().of(nodes)
                return
            found = self.wanted.keys(sealed, part)
            rows = self.options.batch_rows
            yield from tables.batches(self.options.table, sealed, found, list(self.columns), rows)

    def maker(self) -> Batches:
        """The maker of the batches of `entries`."""
        options = self.options
        known = schemas.columns_of("entries")
        if options.fields == "wide":
            known.pop("fields")
        wide = {name: kind for name, kind in self.columns.items() if name not in known}
        fields = None
        if wide or "fields" in self.columns:
            fields = values.field_columns(
                options.fields, options.decode, options.on_bad_value, wide
            )
        return Batches(
            list(self.columns),
            fields,
            self.wanted.span,
            verify=options.verify,
            rows=options.batch_rows,
        )


def read(options: Options, paths: Sequence[str], columns: Mapping[str, pa.DataType]) -> Read:
    """A read of these snapshots."""
    return Read(options, tuple(paths), columns, selection(options))
