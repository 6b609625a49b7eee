"""The sink: `df.write.format("tidelog").mode("append")`, and the same for streams, into a served store or Redis.

The tasks write their partitions at once, each over a connection of its own, in chunks that are stored whole or not at
all (`writing/chunks.py`). A task that Spark runs again continues after the rows that are stored.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from redis.exceptions import RedisError

from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source.writing.chunks import ENDED_EXPIRES_MS, Attempt, Progress
from tidelog.spark.source.writing.link import Link
from tidelog.spark.source.writing.options import WriteOptions, write_options
from tidelog.spark.source.writing.rows import Columns, Row, columns_of, rows_of

CHUNK_BYTES_MAX: Final = 4 << 20
# Spark sets these properties for the tasks of a micro-batch.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"

log = logging.getLogger("tidelog.spark")


class Written(WriterCommitMessage):
    """One task's part: its progress key, and how many rows of the partition are stored, by all attempts together."""

    def __init__(self, key: str, rows: int) -> None:
        self.key, self.rows = key, rows


class Task:
    """The plan of a write: all that a task needs besides its rows. Planned once, pickled into every task.

    run      a new random name for each plan. Within a run, a later attempt has a greater number
    """

    def __init__(self, options: WriteOptions, columns: Columns) -> None:
        self.options = options
        self.columns = columns
        self.run = uuid4().hex

    def write(
        self,
        batches: Iterator[pa.RecordBatch],
        *,
        job: str,
        partition: int,
        attempt: int,
        batch: int = 0,
        expires: bool = False,
    ) -> Written:
        """Write a partition, or the rest of it.

        Args:
            job: The job or query, the same in each attempt.
            attempt: Greater than that of earlier attempts of this run.
            batch: Number of the micro-batch.
            expires: Whether the progress key expires, because nobody needs it after the job.
        """
        own = Progress(batch, 0, 0, self.run, attempt)
        one = Attempt(self.options, job, partition, own, expires=expires)
        try:
            begun = one.begin()
            if one.committed:
                for _ in batches:  # Spark uses the worker again only if all rows were read
                    pass
                return Written(one.key, 0)
            if self.columns.id_index is None:
                if begun.last_id:
                    raise _changed(partition, "the earlier attempt had an ID column")
                skipped = _Skipped(batches, begun.rows)
                for chunk in self._chunks(skipped, partition, begun.rows):
                    one.store(chunk)
                if skipped.left:
                    raise _changed(
                        partition,
                        f"{begun.rows} of its rows are stored, but now it has fewer rows",
                    )
            else:
                if begun.rows and not begun.last_id:
                    raise _changed(partition, "the earlier attempt had no ID column")
                for chunk in self._chunks(batches, partition, 0, begun.last_id):
                    one.store(chunk, chunk[-1].id or 0)
            return Written(one.key, one.progress.rows)
        finally:
            one.close()

    def _chunks(
        self, batches: Iterator[pa.RecordBatch], partition: int, first: int, after_id: int = 0
    ) -> Iterator[list[Row]]:
        """The rows in chunks. With an ID column: those with IDs above `after_id`; equal IDs share a chunk."""
        with_ids = self.columns.id_index is not None
        chunk: list[Row] = []
        nbytes = 0
        last_id = 0
        of_last_id: set[bytes] = set()  # streams that have an entry with `last_id`
        for batch in batches:
            base = first

            def where(n: int, base: int = base) -> str:
                return f"row {base + n} of partition {partition}"

            for n, row in enumerate(rows_of(batch, self.columns, where)):
                if row.id is not None:
                    if row.id < last_id or (row.id == last_id and row.stream in of_last_id):
                        raise _unordered(where(n))
                    if row.id > last_id:
                        of_last_id.clear()
                        last_id = row.id
                    of_last_id.add(row.stream)
                    if row.id <= after_id:
                        continue
                full = len(chunk) >= self.options.chunk_rows or nbytes >= CHUNK_BYTES_MAX
                if full and not (with_ids and chunk[-1].id == row.id):
                    yield chunk
                    chunk, nbytes = [], 0
                chunk.append(row)
                nbytes += len(row.command)
            first += batch.num_rows
        if chunk:
            yield chunk


class _Skipped(Iterator[pa.RecordBatch]):
    """Drops the first rows of some batches. `left` is the number of rows that are still to be dropped."""

    def __init__(self, batches: Iterator[pa.RecordBatch], nrows: int) -> None:
        self.left = nrows
        self._batches = batches

    def __next__(self) -> pa.RecordBatch:
        while True:
            batch = next(self._batches)
            if not self.left:
                return batch
            gone = min(self.left, batch.num_rows)
            self.left -= gone
            if gone < batch.num_rows:
                return batch.slice(gone)


class BatchWriter(DataSourceArrowWriter):
    """A batch write. Without a `jobId` nothing continues it, so its progress keys expire."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self._app, self._version = task.options.txn or ("", 0)
        self.job = task.options.job_id or (f"{self._app}=txn" if self._app else task.run)

    @property
    def _unnamed(self) -> bool:
        return self.task.options.job_id is None

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        return self.task.write(
            iterator,
            job=self.job,
            partition=context.partitionId(),
            attempt=context.taskAttemptId(),
            batch=self._version,
            expires=self._unnamed,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._app:
            own = Progress(self._version, 0, 0, self.task.run, 0)
            one = Attempt(self.task.options, self.job, 0, own, expires=True)
            try:
                one.commit()
            finally:
                one.close()
        self._end(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if not self._app:  # a write of the same version goes on
            self._end(messages)

    def _end(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Of a committed version no attempt writes, so its keys go; late attempts of other jobs need theirs."""
        keys = [message.key for message in messages if isinstance(message, Written)]
        if self._unnamed and keys:
            link = Link(self.task.options)
            try:
                if self._app:
                    link.call("DEL", *keys)
                else:
                    link.calls([("PEXPIRE", key, str(ENDED_EXPIRES_MS)) for key in keys])
            # harmless: the rows are stored, and the keys expire by themselves
            except RedisError as error:
                log.warning("%s: %s", self.task.options.place, error)
            finally:
                link.close()


class StreamWriter(DataSourceStreamArrowWriter):
    """A streaming write. The query's own ID and the number of the micro-batch say what is stored already."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise TidelogSparkError(
                "TIDELOG_WRITE_QUERY",
                f"Spark did not give the task {QUERY_ID} and {BATCH_ID}, so it is unknown which rows are stored",
            )
        return self.task.write(
            iterator,
            job=query,
            partition=context.partitionId(),
            attempt=context.taskAttemptId(),
            batch=int(batch),
        )


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write`. Raises TidelogSparkError: TIDELOG_OPTION, TIDELOG_COLUMN, TIDELOG_WRITE_MODE."""
    return BatchWriter(_task(options, schema, overwrite, streaming=False))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream`. Raises as `writer`."""
    return StreamWriter(_task(options, schema, overwrite, streaming=True))


def _task(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, streaming: bool
) -> Task:
    if overwrite:
        raise TidelogSparkError(
            "TIDELOG_WRITE_MODE",
            "a write only appends to streams: use mode append; to replace a stream, delete it first",
        )
    given = write_options(options, streaming=streaming)
    return Task(given, columns_of(schema, given))


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "Spark runs write() in a task"
    return context


def _changed(partition: int, fault: str) -> TidelogSparkError:
    return TidelogSparkError(
        "TIDELOG_WRITE_CHANGED",
        f"partition {partition} has changed: {fault}; a task that runs again must get the same rows in "
        "the same order, or the rows need IDs (idColumn)",
    )


def _unordered(where: str) -> TidelogSparkError:
    return TidelogSparkError(
        "TIDELOG_WRITE_ORDER",
        f"{where}: its ID is not above those before it; with an ID column, sort the rows of each partition by ID: "
        "df.repartition(N, stream).sortWithinPartitions(ms, seq)",
    )
