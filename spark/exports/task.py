"""Task: one part of an export. It reads the snapshot, writes its files, and says what it wrote.

A task is plain data, so it runs in a process of this machine or in a worker of Spark. It publishes its files and then
its own record, `_task-00000.json`. So an export that was killed goes on where it was: a task whose record matches the
plan, and whose files match their checksums, is not run again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa

from tidelog.engine.cold import ColdStore
from tidelog.engine.streams.pages import Page
from tidelog.engine.streams.stored import (
    StoredNode,
    StoredStream,
    nodes_of,
    page_with,
    stored_pages,
    stored_stream,
    tail_node,
)
from tidelog.snapshot.manifest import check_of
from tidelog.snapshot.sealed import Sealed
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.exports import index
from tidelog.spark.exports.files import Shape, write_files
from tidelog.spark.exports.incremental import Piece, page_of
from tidelog.spark.exports.index import Head, blocks_of, index_of, write_index
from tidelog.spark.exports.seal import ExportFile
from tidelog.spark.exports.target import Target, put, target_of, telling, writing, written
from tidelog.spark.source.batch import snapshots
from tidelog.spark.source.batch.columns import Origin
from tidelog.spark.source.batch.plan import KeysPart, Part
from tidelog.spark.source.batch.read import Read

INDEX: Final = "_index"  # the table name of the index file


@dataclass(frozen=True)
class Whole:
    """The rows of a partition of a table."""

    read: Read
    part: Part | KeysPart


@dataclass(frozen=True)
class Added:
    """Entries that an incremental export adds: nodes, or slots of nodes, of some streams."""

    read: Read
    path: str
    lsn: int
    streams: tuple[tuple[Head, tuple[Piece, ...]], ...]


@dataclass(frozen=True)
class MakeIndex:
    """The index of the streams of a read."""

    read: Read
    path: str


@dataclass(frozen=True)
class Task:
    """One task. `number` counts the tasks of an export, `part` those of its table.

    drop          columns that are read only for the order, and not written
    partition_by  any of "stream" and "date"
    """

    number: int
    plan: str
    to: str
    table: str
    part: int
    work: Whole | Added | MakeIndex
    format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()

    def digest(self) -> str:
        """A hash, hexadecimal, of which rows of its table the task reads."""
        match self.work:
            case Whole(part=Part() as part):
                rows = part.packed
            case Whole(part=KeysPart() as part):
                rows = repr((part.db, part.start, part.stop)).encode()
            case Added(streams=streams):
                rows = repr(streams).encode()
            case MakeIndex():
                rows = b""
        return blake2b(rows, digest_size=16).hexdigest()


def record_name(number: int) -> str:
    """The name of a task's record."""
    return f"_task-{number:05d}.json"


def run(task: Task) -> list[ExportFile]:
    """Run a task. Raises TidelogSparkError."""
    with telling(task.to):
        target = target_of(task.to)
        if isinstance(task.work, MakeIndex):
            files = [_index(target, task.work)]
        else:
            shape = Shape(task.table, task.part, task.format, task.partition_by, task.drop)
            schema = pa.schema(list(task.work.read.columns.items()))
            files = list(write_files(target, shape, schema, _batches(task.work)))
        facts = {
            "plan": task.plan,
            "work": task.digest(),
            "files": [file.facts() for file in files],
        }
        facts["check"] = check_of(facts)
        put(target, record_name(task.number), json.dumps(facts).encode())
        return files


def recorded(target: Target, task: Task) -> list[ExportFile] | None:
    """The files of a task that was run before; None if it was not, or if they are not as it said."""
    try:
        facts = json.loads(target.read(record_name(task.number)))
        check = facts.pop("check")
        if check != check_of(facts) or facts["plan"] != task.plan:
            return None
        if facts["work"] != task.digest():  # another version cut the plan at other places
            return None
        files = [ExportFile.of(file) for file in facts["files"]]
        for file in files:
            if written(target, file.name) != (file.nbytes, file.blake2b):
                return None
        return files
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _index(target: Target, work: MakeIndex) -> ExportFile:
    with (
        snapshots.opened(work.path) as sealed,
        telling(target.name),
        writing(target, index.NAME) as sink,
    ):
        heads = heads_of(work.read, sealed)
        write_index(sink, index_of(sealed.rows, heads))
        nbytes, digest = sink.publish()
    return ExportFile(index.NAME, INDEX, len(heads), nbytes, digest)


def heads_of(planned: Read, sealed: Sealed) -> list[Head]:
    """The streams of a read, by number."""
    return sorted(
        Head(key.number, key.db, key.key)
        for key in planned.wanted.keys(sealed)
        if key.number is not None
    )


def _batches(work: Whole | Added) -> Iterator[Any]:
    return _added(work) if isinstance(work, Added) else work.read.batches(work.part)


# --- entries that were added


def _added(work: Added) -> Iterator[Any]:
    with (
        snapshots.opened(work.path, sparing=True) as sealed,
        snapshots.telling(work.path),
    ):
        if sealed.manifest.lsn != work.lsn:
            raise TidelogSparkError(
                snapshots.SNAPSHOT,
                f"{sealed.place.name} holds LSN {sealed.manifest.lsn} now, but "
                f"held LSN {work.lsn} when the export was planned",
            )
        yield from work.read.maker().of(_added_nodes(sealed, work))


def _added_nodes(sealed: Sealed, work: Added) -> Iterator[tuple[Origin, StoredNode]]:
    cold = sealed.rows
    for head, pieces in work.streams:
        origin = Origin(head.db, head.key, head.number, sealed.place.name, work.lsn)
        stream = stored_stream(cold, head.number)
        for piece in pieces:
            for node in piece_nodes(cold, stream, piece):
                yield origin, node


def piece_nodes(cold: ColdStore, stream: StoredStream, piece: Piece) -> Iterator[StoredNode]:
    """The nodes of a piece. The slots that it hides are deleted in them. Raises CorruptBlock."""
    stop = min(piece.stop, stream.stop)
    if piece.start < stop:
        if piece.first is not None:
            page = page_of(cold, stream.number, piece.first)
        else:
            page = page_with(cold, stream, piece.start)
        for each in stored_pages(cold, stream, page.first):
            wanted = range(max(piece.start, each.ordinal), min(stop, each.stop))
            if len(wanted) == len(each.counts) and piece.hide is None:
                yield from nodes_of(cold, stream, each)
            else:
                yield from _some_nodes(cold, stream, each, wanted, piece.hide)
            if each.stop >= stop:
                break
    if piece.start <= stream.stop < piece.stop:
        tail = tail_node(stream)
        if tail is not None:
            yield tail if piece.hide is None else tail._replace(deleted=piece.hide)


def _some_nodes(
    cold: ColdStore, stream: StoredStream, page: Page, wanted: range, hide: int | None
) -> Iterator[StoredNode]:
    """Some nodes of a page. Only their blocks are read if possible."""
    blocks = blocks_of(cold, stream.number, page, wanted.start, wanted.stop)
    start = wanted.start - page.ordinal
    for node in nodes_of(cold, stream, page, data=False):
        if node.ordinal in wanted:
            end = sum(page.lengths[start : node.ordinal - page.ordinal + 1])
            data = blocks[end - node.length : end]
            yield node._replace(data=data, deleted=node.deleted if hide is None else hide)
