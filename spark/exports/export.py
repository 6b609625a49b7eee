"""Export: the tables of a snapshot as files in a directory or at a URL.

The driver plans tasks, a runner runs them (spark/exports/run.py), and the driver seals the result. An export that was
interrupted goes on when the same command is run again. Until it is sealed, no reader takes it for an export.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.disk.recipe import BESIDE
from tidelog.engine.ids import text
from tidelog.snapshot.sealed import Sealed
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports import index, seal
from tidelog.spark.exports.formats import FORMATS
from tidelog.spark.exports.incremental import Change, Piece, compare, continues
from tidelog.spark.exports.index import Head, Indexed, IndexWriter, index_of, read_index
from tidelog.spark.exports.run import Runner, in_processes
from tidelog.spark.exports.seal import Base, Export, ExportFile, Seal, origin_of, read_export
from tidelog.spark.exports.target import EXPORT, LOCK, Target, put, target_of, telling, writing
from tidelog.spark.exports.task import (
    INDEX,
    Added,
    MakeIndex,
    Task,
    Whole,
    heads_of,
    record_name,
    recorded,
)
from tidelog.spark.source import schemas
from tidelog.spark.source.batch import snapshots
from tidelog.spark.source.batch.read import Read, columns_of, read
from tidelog.spark.source.options import OPTION, parse

PLAN: Final = "_plan.json"
ENTRIES: Final = "entries"
REMOVED: Final = "removed"
KEYS: Final = "keys"

# Options by what they determine: which keys and entries, the columns of entries, and the rest.
RANGES: Final = ("startId", "endId", "startTimestamp", "endTimestamp")
SELECTING: Final = ("db", "streams", "streamsPattern", *RANGES)
SHAPING: Final = ("columns", "fields", "decode", "onBadValue")
GENERAL: Final = ("snapshot", "verify", "targetPartitionBytes")
PARTITIONS: Final = ("stream", "date")

ADDED: Final[Mapping[str, pa.DataType]] = {"stream_number": schemas.LONG, "id_key": schemas.BYTES}
REMOVED_SCHEMA: Final = pa.schema(
    [
        ("stream_number", schemas.LONG),
        ("db", schemas.INT),
        ("stream", schemas.BYTES),
        ("id", schemas.TEXT),
        ("first_id", schemas.TEXT),
        ("last_id", schemas.TEXT),
        ("first_key", schemas.BYTES),
        ("last_key", schemas.BYTES),
        ("count", schemas.LONG),
    ]
)
KEYS_SCHEMA: Final = pa.schema(
    [
        ("stream_number", schemas.LONG),
        ("event", schemas.TEXT),
        ("db", schemas.INT),
        ("stream", schemas.BYTES),
        ("was_db", schemas.INT),
        ("was_stream", schemas.BYTES),
        ("source_number", schemas.LONG),
    ]
)

# Limits of the size of a file, chosen so that a small table is one file and a large one is not thousands of files.
TARGET_BYTES_MIN: Final = 16 << 20
TARGET_BYTES_MAX: Final = 128 << 20
PARTS_WANTED: Final = 256
# assumed size of a node: tasks for added entries are limited by nodes, not by bytes
NODE_BYTES: Final = 4096
REMOVALS_HELD: Final = 1 << 16

Advance = Callable[[int], object]
Progress = Callable[[str, int], AbstractContextManager[Advance]]


class Exported(NamedTuple):
    """A finished export.

    Attributes:
        path: The directory or URL.
        seal: Its description.
        existed: It had been exported before; nothing was written.
        kept: Tasks of an interrupted export whose files were kept.
    """

    path: str
    seal: Seal
    existed: bool = False
    kept: int = 0


class _Plan(NamedTuple):
    """The arguments of an export, checked."""

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


def silent(what: str, total: int) -> AbstractContextManager[Advance]:
    """A Progress that shows nothing."""
    return nullcontext(lambda done: None)


def export(
    snapshot: str,
    to: str,
    *,
    tables: Sequence[str] = (ENTRIES,),
    since: str | None = None,
    options: Mapping[str, str] = {},
    format: str = "parquet",
    partition_by: Sequence[str] = (),
    runner: Runner | None = None,
    progress: Progress = silent,
) -> Exported:
    """Export tables of a snapshot.

    Args:
        snapshot: Path or URL of a snapshot, or of a store, whose newest snapshot is taken (option `snapshot`).
        to: A directory or URL that is empty, or has the same export unfinished.
        tables: Names of tables.
        since: An earlier export of the same store: only what was added and removed since is written.
        options: As of the batch source: `db`, `streams`, `streamsPattern`, `columns`, `fields` and so on.
        format: "parquet", "csv", "json" or "orc".
        partition_by: Any of "stream" and "date", for folders of `entries`.
        runner: Runs the tasks; by default processes of this machine.

    Raises:
        TidelogSparkError: The text says what is wrong, where, and what to do.
    """
    plan = _checked(snapshot, to, tables, since, options, format, partition_by)
    base = None if since is None else read_export(since)
    with snapshots.opened(plan.snapshot) as sealed, telling(to):
        if base is not None:
            _check_base(base, plan, sealed)
        target = target_of(to)
        identity = plan.identity(sealed, base)
        done = _existing(target, to, identity)
        if done is not None:
            return Exported(target.name, done, existed=True)
        with target.locked():
            done = _existing(target, to, identity)  # another process may have made it meanwhile
            if done is not None:
                return Exported(target.name, done, existed=True)
            _begin(target, identity, plan, sealed)
            making = _Making(plan, identity, target, sealed, base)
            tasks, written = making.tasks()
            kept = {task.number: recorded(target, task) for task in tasks}
            missing = [task for task in tasks if kept[task.number] is None]
            with progress("exporting", len(tasks)) as advance:
                advance(len(tasks) - len(missing))
                made = (runner or in_processes())(missing, advance)
            kept.update(zip((task.number for task in missing), made))
            for task in tasks:
                written += kept[task.number] or []
            sealed_as = making.seal(written)
            _clean(target, sealed_as)
            sealed_as = seal.publish(target, sealed_as)
            for name in (PLAN, *(record_name(task.number) for task in tasks)):
                target.remove(name)
        return Exported(target.name, sealed_as, kept=len(tasks) - len(missing))


# --- checks


def _checked(
    snapshot: str,
    to: str,
    tables: Sequence[str],
    since: str | None,
    options: Mapping[str, str],
    format: str,
    partition_by: Sequence[str],
) -> _Plan:
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
    return _Plan(path, to, tuple(tables), told, format, tuple(partition_by))


def _check_base(base: Export, plan: _Plan, sealed: Sealed) -> None:
    why = continues(
        base.seal.snapshot.line,
        (sealed.manifest.uuid, sealed.manifest.position, sealed.manifest.epochs),
    )
    if why:
        raise _refused(f"{base.name} cannot be continued with {sealed.place.name}: {why}")
    if not base.seal.of_table(INDEX):
        raise _refused(
            f"{base.name} has no index: only an export of the table entries can be continued"
        )
    if any(name in base.seal.selection for name in RANGES):
        raise _refused(f"{base.name} holds only a range of IDs or times, and cannot be continued")
    if base.seal.selection != _selection(plan):
        raise _refused(
            f"{base.name} was made with other filters ({json.dumps(base.seal.selection)}); give the same ones"
        )
    seal.verify(base, *base.seal.of_table(INDEX))


def _selection(plan: _Plan) -> dict[str, str]:
    return {name: value for name, value in plan.options.items() if name in SELECTING}


def _existing(target: Target, to: str, identity: str) -> Seal | None:
    """The seal if this very export exists. Raises TidelogSparkError if something else does."""
    found = target.files()
    if seal.NAME in found:
        there = read_export(to).seal
        if there.plan == identity:
            return there
        raise _refused(
            f"{target.name} holds another export, of LSN {there.snapshot.position.lsn}; give another directory"
        )
    if PLAN in found:
        try:
            begun = json.loads(target.read(PLAN))
            same, what = begun["plan"] == identity, begun["what"]
        except (ValueError, KeyError, TypeError):
            same, what = False, "the file that names it is damaged"
        if not same:
            raise _refused(
                f"{target.name} holds an unfinished export of other content ({what}). Repeat the command that began "
                "it, or delete the directory"
            )
        return None
    strange = sorted(name for name in found if name != LOCK and not name.endswith(BESIDE))
    if strange:
        raise _refused(
            f"{target.name} is not empty: it contains {strange[0]}, which is not part of an export. "
            "Give another directory"
        )
    return None


def _begin(target: Target, identity: str, plan: _Plan, sealed: Sealed) -> None:
    what = f"LSN {sealed.manifest.lsn} of {sealed.place.name}, tables {', '.join(plan.tables)}"
    put(target, PLAN, json.dumps({"plan": identity, "what": what}).encode())


def _clean(target: Target, sealed_as: Seal) -> None:
    """Remove what killed attempts left."""
    wanted = {file.name for file in sealed_as.files}
    for name in target.files():
        if name.endswith(BESIDE) or (not name.startswith("_") and name not in wanted):
            target.remove(name)


def _wrong(message: str) -> TidelogSparkError:
    return TidelogSparkError(OPTION, message)


def _refused(message: str) -> TidelogSparkError:
    return TidelogSparkError(EXPORT, message)


# --- planning


class _Making:
    """One export: its tasks, and its seal."""

    def __init__(
        self, plan: _Plan, identity: str, target: Target, sealed: Sealed, base: Export | None
    ) -> None:
        self.plan, self.identity, self.target = plan, identity, target
        self.sealed, self.base = sealed, base
        self._tasks: list[Task] = []
        self._parts: dict[str, int] = {}

    def tasks(self) -> tuple[list[Task], list[ExportFile]]:
        """The tasks, and files that were written while planning."""
        done: list[ExportFile] = []
        for table in self.plan.tables:
            planned = self._read(table)
            if table != ENTRIES:
                for part in planned.parts():
                    self._add(table, Whole(planned, part))
            elif self.base is not None:
                done += self._incremental(planned, self.base)
            else:
                self._add(INDEX, MakeIndex(planned, self.plan.snapshot))
                for part in planned.parts():
                    self._add(table, Whole(planned, part))
        return self._tasks, done

    def seal(self, files: list[ExportFile]) -> Seal:
        """The seal of the finished export."""
        rows = {table: 0 for table in self.plan.tables}
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
            selection=_selection(self.plan),
            tables=rows,
            write={"format": self.plan.format, "partition_by": list(self.plan.partition_by)},
            files=tuple(files),
            created_ms=time.time_ns() // 1_000_000,
        )

    def _read(self, table: str) -> Read:
        plan = self.plan
        told = {"path": plan.snapshot, "table": table, **plan.options}
        if table != ENTRIES:
            for name in (*RANGES, *SHAPING):
                told.pop(name, None)
        told.setdefault("targetPartitionBytes", str(self._target_bytes()))
        options = parse(told)
        columns = columns_of(options)
        if table == ENTRIES:
            known = schemas.columns_of(ENTRIES)
            for name in ("stream_number", "id_key", "db", "stream", "ms"):
                if name != "ms" or "date" in plan.partition_by:
                    columns.setdefault(name, known[name])
        return read(options, (plan.snapshot,), columns)

    def _drop(self, planned: Read) -> tuple[str, ...]:
        """Columns that were added for the order, and that were not asked for."""
        asked = planned.options.columns or tuple(schemas.TABLES[ENTRIES])
        kept = (*asked, *(ADDED if self.plan.format == "parquet" else ()))
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
            to=self.plan.to,
            table=table,
            part=part,
            work=work,
            format=self.plan.format,
            partition_by=self.plan.partition_by if entries else (),
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
        nodes_max = max(planned.options.target_bytes // NODE_BYTES, 1)
        packing = _Packing(nodes_max)
        with (
            writing(target, index.NAME) as sink,
            _Rows(target, REMOVED, REMOVED_SCHEMA) as removed,
            _Rows(target, KEYS, KEYS_SCHEMA) as keys,
        ):
            with IndexWriter(sink) as writer:
                newer = writer.recorded(index_of(sealed.rows, heads))
                for change in compare(streams, newer, sealed.rows):
                    removed.add(_removed_rows(change))
                    keys.add(_key_rows(change))
                    packing.add(change.head, change.added)
            made = ExportFile(index.NAME, INDEX, len(heads), *sink.publish())
        for part in packing.parts():
            self._add(ENTRIES, Added(planned, self.plan.snapshot, sealed.manifest.lsn, part))
        return [made, removed.file, keys.file]


class _Packing:
    """Packs pieces of streams into tasks of about `nodes_max` nodes."""

    def __init__(self, nodes_max: int) -> None:
        self._max = nodes_max
        self._parts: list[tuple[tuple[Head, tuple[Piece, ...]], ...]] = []
        self._open: list[tuple[Head, list[Piece]]] = []
        self._held = 0

    def add(self, head: Head, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            start, first = piece.start, piece.first
            while start < piece.stop:
                stop = min(piece.stop, start + max(self._max - self._held, 1))
                if not self._open or self._open[-1][0] != head:
                    self._open.append((head, []))
                self._open[-1][1].append(Piece(start, stop, first, piece.hide))
                self._held += stop - start
                if self._held >= self._max:
                    self._close()
                start, first = stop, None

    def parts(self) -> list[tuple[tuple[Head, tuple[Piece, ...]], ...]]:
        self._close()
        return self._parts

    def _close(self) -> None:
        if self._open:
            self._parts.append(tuple((head, tuple(pieces)) for head, pieces in self._open))
            self._open, self._held = [], 0


class _Rows:
    """Writes a small table of an incremental export as one Parquet file. `file` describes it afterwards."""

    file: ExportFile

    def __init__(self, target: Target, table: str, schema: pa.Schema) -> None:
        self._table, self._schema = table, schema
        self._name = f"{table}/part-00000.parquet"
        self._writing = writing(target, self._name)
        self._held: list[tuple[Any, ...]] = []
        self._rows = 0

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        self._held += rows
        if len(self._held) >= REMOVALS_HELD:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            columns = [
                pa.array(column, field.type)
                for column, field in zip(zip(*self._held), self._schema)
            ]
            self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
            self._rows += len(self._held)
            self._held.clear()

    def __enter__(self) -> _Rows:
        self._sink = self._writing.__enter__()
        self._writer = pq.ParquetWriter(self._sink, self._schema, compression="zstd")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            self._flush()
            self._writer.close()
            self.file = ExportFile(self._name, self._table, self._rows, *self._sink.publish())
        self._writing.__exit__(kind, error, trace)


def _removed_rows(change: Change) -> Iterator[tuple[Any, ...]]:
    head = change.was or change.head
    for first, last, count in change.removed:
        texts = text(first).decode(), text(last).decode()
        only = texts[0] if first == last else None
        keys = first.to_bytes(16, "big"), last.to_bytes(16, "big")
        yield change.head.number, head.db, head.key, only, *texts, *keys, count


def _key_rows(change: Change) -> Iterator[tuple[Any, ...]]:
    if change.event:
        head, was = change.head, change.was
        before = (None, None) if was is None else (was.db, was.key)
        yield head.number, change.event, head.db, head.key, *before, change.source
