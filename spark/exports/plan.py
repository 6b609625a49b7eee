"""Plan: the tasks of an export, and its seal."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from tidelog.snapshot.sealed import Sealed
from tidelog.spark.exports import index
from tidelog.spark.exports.changes import Packing, RemovedAndKeys
from tidelog.spark.exports.files import ENTRIES
from tidelog.spark.exports.incremental import compare
from tidelog.spark.exports.index import Indexed, IndexWriter, index_of, read_index
from tidelog.spark.exports.request import RANGES, SHAPING, Request
from tidelog.spark.exports.seal import Base, Export, ExportFile, Seal, origin_of
from tidelog.spark.exports.target import Target, telling, writing
from tidelog.spark.exports.task import INDEX, Added, MakeIndex, Task, Whole, heads_of
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.plan import KeysPart, Part
from tidelog.spark.source.batch.read import Read, columns_of, read
from tidelog.spark.source.options import Options, parse

# Columns of entries that are always written as Parquet, and those that are always read, for the order.
ADDED: Final[Mapping[str, pa.DataType]] = {"stream_number": schemas.LONG, "id_key": schemas.BYTES}
ORDERED_BY: Final = ("stream_number", "id_key", "db", "stream")

# Limits of the size of a part, chosen so that a small table is one file and a large one is not thousands of files.
TARGET_BYTES_MIN: Final = 16 << 20
TARGET_BYTES_MAX: Final = 128 << 20
PARTS_WANTED: Final = 256
# Streams of a task that writes a folder for each. Such a task takes long for its bytes, so the cores need several.
FOLDERS: Final = 1_000
# assumed size of a node: tasks for added entries are limited by nodes, not by bytes
NODE_BYTES: Final = 4096


class Plan:
    """One export: its tasks, and its seal."""

    def __init__(
        self, request: Request, identity: str, target: Target, sealed: Sealed, base: Export | None
    ) -> None:
        self.request, self.identity, self.target = request, identity, target
        self.sealed, self.base = sealed, base
        self._tasks: list[Task] = []
        self._parts: dict[str, int] = {}

    def tasks(self) -> tuple[list[Task], list[ExportFile]]:
        """The tasks, and files that were written while planning."""
        done: list[ExportFile] = []
        for table in self.request.tables:
            planned = self._read(table)
            if table != ENTRIES:
                for part in planned.parts():
                    self._add(table, Whole(planned, part))
            elif self.base is not None:
                done += self._incremental(planned, self.base)
            else:
                self._add(INDEX, MakeIndex(planned, self.request.snapshot))
                for part in planned.parts():
                    for piece in self._cut(part):
                        self._add(table, Whole(planned, piece))
        return self._tasks, done

    def seal(self, files: list[ExportFile]) -> Seal:
        """The seal of the finished export."""
        rows = {table: 0 for table in self.request.tables}
        for file in files:
            if file.table != INDEX:
                rows[file.table] = rows.get(file.table, 0) + file.rows
        base = self.base
        return Seal(
            plan=self.identity,
            snapshot=origin_of(self.sealed.place.name, self.sealed.manifest),
            since=None
            if base is None
            else Base(base.name, base.seal.snapshot.position.lsn, base.seal.check),
            selection=self.request.selection,
            shape=self.request.shape,
            tables=rows,
            write={"format": self.request.format, "partition_by": list(self.request.partition_by)},
            files=tuple(files),
            created_ms=time.time_ns() // 1_000_000,
        )

    def _read(self, table: str) -> Read:
        request = self.request
        told = {"path": request.snapshot, "table": table, **request.options}
        if table != ENTRIES:
            for name in (*RANGES, *SHAPING):
                told.pop(name, None)
        told.setdefault("targetPartitionBytes", str(self._target_bytes()))
        options = parse(told)
        more = ("ms",) if "date" in request.partition_by else ()
        return read(options, (request.snapshot,), columns_in_order(options, *more))

    def _cut(self, part: Part | KeysPart) -> Iterator[Part | KeysPart]:
        if isinstance(part, Part) and "stream" in self.request.partition_by:
            yield from part.cut(FOLDERS)
        else:
            yield part

    def _drop(self, planned: Read) -> tuple[str, ...]:
        """Columns that were added for the order, and that were not asked for."""
        asked = planned.options.columns or tuple(schemas.TABLES[ENTRIES])
        kept = (*asked, *(ADDED if self.request.format == "parquet" else ()))
        return tuple(name for name in planned.columns if name not in kept)

    def _target_bytes(self) -> int:
        share = self.sealed.manifest.data_bytes // PARTS_WANTED
        return min(max(share, TARGET_BYTES_MIN), TARGET_BYTES_MAX)

    def _add(self, table: str, work: Whole | Added | MakeIndex) -> None:
        part = self._parts[table] = self._parts.get(table, -1) + 1
        entries = table == ENTRIES
        task = Task(
            number=len(self._tasks),
            plan=self.identity,
            to=self.request.to,
            table=table,
            part=part,
            work=work,
            format=self.request.format,
            partition_by=self.request.partition_by if entries else (),
            drop=self._drop(work.read) if entries else (),
        )
        self._tasks.append(task)

    # --- what came and went

    def _incremental(self, planned: Read, base: Export) -> list[ExportFile]:
        (file,) = base.seal.of_table(INDEX)

        def streams() -> Iterator[Indexed]:
            with telling(base.name), base.target.source(file.name) as source:
                yield from read_index(source)

        sealed, target = self.sealed, self.target
        heads = heads_of(planned, sealed)
        target_bytes = planned.options.target_bytes or self._target_bytes()
        packing = Packing(max(target_bytes // NODE_BYTES, 1))
        with writing(target, index.NAME) as sink, RemovedAndKeys(target) as tables:
            with IndexWriter(sink) as writer:
                newer = writer.recorded(index_of(sealed.rows, heads))
                for change in compare(streams, newer, sealed.rows):
                    tables.add(change)
                    packing.add(change.head, change.added)
            made = ExportFile(index.NAME, INDEX, len(heads), *sink.publish())
        for part in packing.parts():
            self._add(ENTRIES, Added(planned, self.request.snapshot, sealed.manifest.lsn, part))
        return [made, *tables.files]


def columns_in_order(options: Options, *more: str) -> dict[str, pa.DataType]:
    """The columns that are asked for, with those of entries that their order needs, and `more`."""
    columns = columns_of(options)
    if options.table == ENTRIES:
        known = schemas.columns_of(ENTRIES)
        for name in (*ORDERED_BY, *more):
            columns.setdefault(name, known[name])
    return columns
