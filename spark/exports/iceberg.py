"""Iceberg: a table in a directory, without a catalog service.

The layout is that of Hadoop tables, which Spark, DuckDB and pyiceberg read by the directory alone:

    metadata/v1.metadata.json, v2.metadata.json, ...   one per commit; a name that did not exist is the commit
    metadata/version-hint.text                         the number of the newest, or of one shortly before it
    metadata/, data/                                   manifests and Parquet files, written by pyiceberg
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import MetastoreCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table

from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports.target import EXPORT, LOCK, Overtaken, sole
from tidelog.spark.source.options import OPTION

HINT: Final = "metadata/version-hint.text"
NAME: Final = ("tidelog", "export")  # pyiceberg requires a name for the table; any will do
APPEND_BYTES: Final = 256 << 20  # rows gathered in memory before they are written to files


class Iceberg:
    """A table in a local directory."""

    def __init__(self, place: str) -> None:
        if "://" in place:
            raise TidelogSparkError(
                OPTION,
                f"iceberg:{place}: an Iceberg table can only be written to a local directory",
            )
        self._root = Path(place).absolute()
        self._catalog: Any = _Directory(self._root)

    def told(self) -> tuple[int, Mapping[str, str]] | None:
        number = self._catalog.find()
        if not number:
            return None
        table = self._catalog.load_table(NAME)
        known = dict(table.properties)
        return number, known | {"rows": str(_rows(table))}

    def commit(
        self, schema: pa.Schema, batches: Iterator[pa.RecordBatch], told: Mapping[str, str]
    ) -> int:
        if self._catalog.found:
            table = self._catalog.load_table(NAME)
            change = table.transaction()
            if _rows(table):  # pyiceberg warns of a delete that finds nothing
                change.delete(AlwaysTrue())
            _reshape(change, schema, str(self._root))
            change.set_properties(dict(told))
        else:
            recipe.make_directory(RealDisk(), self._root)
            change = self._catalog.create_table_transaction(
                NAME, schema, location=str(self._root), properties=dict(told)
            )
        held: list[pa.RecordBatch] = []
        nbytes = 0
        for batch in batches:
            held.append(batch)
            nbytes += batch.nbytes
            if nbytes >= APPEND_BYTES:
                change.append(pa.Table.from_batches(held, schema))
                held, nbytes = [], 0
        if held:
            change.append(pa.Table.from_batches(held, schema))
        change.commit_transaction()
        return int(self._catalog.found)


def _reshape(change: Any, schema: pa.Schema, place: str) -> None:
    """Give the table the columns of a schema: one that is left would have nulls in all rows."""
    there = change.table_metadata.schema().as_arrow()
    for name in schema.names:
        if name in there.names and _plain(there.field(name).type) != _plain(
            schema.field(name).type
        ):
            raise TidelogSparkError(
                EXPORT,
                f"{place}: the column {name} has another type in the table than it would have now; give another place",
            )
    if set(there.names) != set(schema.names):
        with change.update_schema(allow_incompatible_changes=True) as update:
            update.union_by_name(schema)
            for name in there.names:
                if name not in schema.names:
                    update.delete_column(name)


def _plain(kind: pa.DataType) -> str:
    """A type without what Iceberg does not tell apart: the sizes of offsets, and the names within lists."""
    return re.sub(r"large_|element: |item: | not null|-?field_id[^,>]*", "", str(kind))


def _rows(table: Table) -> int:
    found = table.current_snapshot()
    return int(found.summary["total-records"] or 0) if found and found.summary else 0


class _Directory(MetastoreCatalog):
    """The one table of a directory."""

    def __init__(self, root: Path) -> None:
        super().__init__("tidelog", warehouse=str(root))
        self._root, self._disk = root, RealDisk()
        self.found = 0

    def find(self) -> int:
        """The number of the newest metadata, which the next commit replaces; 0 if there is no table."""
        try:
            hint = int(recipe.read(self._disk, self._root / HINT, 20))
        except (FileNotFoundError, NotADirectoryError):
            hint = 0
        self.found = self._newest(hint)
        if self.found != hint:  # the process that committed it was killed before it said so
            recipe.publish(self._disk, self._root / HINT, b"%d" % self.found)
        return self.found

    def _newest(self, number: int) -> int:
        while self._disk.exists(self._root / self._metadata(number + 1)):
            number += 1
        return number

    def load_table(self, identifier: Any) -> Table:
        if not self.found:
            raise NoSuchTableError(str(self._root))
        place = self._metadata(self.found)
        io = load_file_io(self.properties, place)
        metadata = FromInputFile.table_metadata(io.new_input(place))
        return Table(NAME, metadata, place, io, self)

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> CommitTableResponse:
        """Raises Overtaken if the newest metadata is not what `find` found."""
        current = self.load_table(NAME) if self.found else None
        staged = self._update_and_stage_table(current, NAME, requirements, updates)
        place = self._metadata(self.found + 1)
        data = staged.metadata.model_dump_json(exclude_none=True).encode()
        recipe.make_directory(self._disk, self._root / "metadata")
        with sole(self._root / LOCK) as alone:
            if not alone or self._newest(self.found) != self.found:
                raise Overtaken
            recipe.publish(self._disk, Path(place), data)
            self.found += 1
            recipe.publish(self._disk, self._root / HINT, b"%d" % self.found)
        return CommitTableResponse.model_validate(
            {"metadata": staged.metadata, "metadata-location": place}
        )

    def _metadata(self, number: int) -> str:
        return str(self._root / f"metadata/v{number}.metadata.json")

    def _unused(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("a directory has one table")

    create_namespace = create_table = create_view = drop_namespace = drop_table = _unused
    drop_view = list_namespaces = list_tables = list_views = load_namespace_properties = _unused
    load_view = register_table = register_view = rename_table = _unused
    update_namespace_properties = view_exists = _unused
