"""The queue without waiting: the common part of the faces for threads and for asyncio."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice
from typing import Any, Generic, Unpack

from tidelog.api.face import Face
from tidelog.engine.api import EntryRow
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.job_options import JobOptions, PutOptions, job_options
from tidelog.jobs.options import Options, named
from tidelog.jobs.putting import BATCH_JOBS, Put, put_aside
from tidelog.jobs.typed import T
from tidelog.jobs.units import PAYLOAD_BYTES_MAX, UNIT_BYTES, in_units
from tidelog.jobs.work.later import Due
from tidelog.jobs.work.results import Found, missing_result
from tidelog.store.durations import Duration
from tidelog.store.errors import DataError, EncodeError

_numbers = count(1)


class QueueOf(Generic[T]):
    """The common part of a queue of an open store and one of a shared store."""

    _kind = ""  # in the names of its workers

    def __init__(self, options: Options) -> None:
        self._options = options
        self._encode, self._decode = options.codec.encode, options.codec.decode
        self._raw = options.codec.name == "bytes"  # bytes need no encoding
        self._own_worker: str | None = None

    @property
    def name(self) -> str:
        """Name of the queue, the key of its stream."""
        return self._options.name

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._options.group

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}, group {self.group!r}>"

    def _batches(self, values: Iterable[Any]) -> Iterator[tuple[list[bytes], Exception | None]]:
        """The encoded values of put_many in batches; the last one comes with the error that ended them, if any."""
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise DataError(f"put_many needs an iterable of values, not {type(values).__name__!r}")
        source = iter(values)
        error: Exception | None = None
        while error is None:
            chunk: list[Any] = []
            try:
                chunk.extend(islice(source, BATCH_JOBS))  # keeps the values before an error
            except Exception as broken:
                error = broken
            if not chunk and error is None:
                return
            if self._raw and set(map(type, chunk)) == {bytes}:
                encoded = chunk
            else:
                try:
                    encoded = list(map(self._encode, chunk))
                except Exception:
                    encoded, refused = self._encode_until(chunk)
                    error = refused or error
            if sum(map(len, encoded)) <= UNIT_BYTES:
                yield encoded, error
            else:
                if max(map(len, encoded)) > PAYLOAD_BYTES_MAX:
                    encoded, refused = self._encode_until(chunk)
                    error = refused or error
                *parts, last = list(in_units(encoded, len)) or [[]]
                yield from ((part, None) for part in parts)
                yield last, error

    def _encode_until(self, chunk: list[Any]) -> tuple[list[bytes], EncodeError | None]:
        encoded: list[bytes] = []
        for value in chunk:
            try:
                encoded.append(rows.encode_value(self._options, value))
            except EncodeError as error:
                return encoded, error
        return encoded, None  # the codec failed only once

    def _result(self, job_id: str, outcome: Reply) -> Any:
        """The value that a worker left. Raises JobFailed, NoResult, ResultLate, DecodeError."""
        if isinstance(outcome, Found):
            return rows.decode_result(self._options.codec, outcome.value)
        raise missing_result(job_id, outcome)

    def _worker(self, worker: Any) -> str:
        if worker is None:
            if self._own_worker is None:
                self._own_worker = (
                    f"{socket.gethostname()}-{os.getpid()}-{self._kind}{next(_numbers)}"
                )
            return self._own_worker
        named("worker", worker)
        name: str = worker
        return name


class QueueBase(QueueOf[T]):
    """The common part of both faces of a queue."""

    def __init__(self, face: Face, options: Options) -> None:
        super().__init__(options)
        self._face = face
        self._engine = QueueEngine(face._core, face._db, options)
        # The hot paths of `put` and of the consumers use these.
        self._core, self._db, self._key = face._core, face._db, options.key
        self._bounded = self._engine.bounded

    @property
    def store(self) -> Any:
        """The open store that holds the queue."""
        return self._face

    def __reduce__(self) -> Any:
        raise TypeError(
            "a queue cannot be pickled: it belongs to its open store; open the store in the other process"
        )

    # --- putting

    def new(self, value: T, **options: Unpack[PutOptions]) -> Put:
        """A job for `Job.done_and` to put.

        Args:
            value: As in `Queue.put`.
            options: As in `Queue.put`.

        Raises:
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
            DataError: Another argument is invalid.
        """
        given = job_options(options)
        return self._put_of(value, given, self._engine.due(given))

    def _put_of(self, value: T, options: JobOptions, due: Due | None) -> Put:
        row = options.row(rows.encode_value(self._options, value))
        return Put(self._engine, row, options, due)

    def _put_aside(
        self, value: T, options: JobOptions, due: Due | None, timeout: Duration | None
    ) -> tuple[Any, Any] | None:
        """Put one job without a dedup ID that need not wait for room: (ID, promise). None if it is none of these."""
        if (
            options.dedup_id is not None
            or due is None
            and (self._bounded or timeout is not None or not options.priority)
        ):
            return None
        return put_aside(self._engine, rows.encode_value(self._options, value), options, due)

    # --- consuming

    def _value(self, row: EntryRow) -> Any:
        """The value of a job's row, in any form that is valid. Raises DecodeError, which says what is wrong."""
        return rows.decode_row(self._options.codec, row)
