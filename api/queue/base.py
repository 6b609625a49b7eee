"""The queue without waiting: the common part of its faces for threads and for asyncio, whatever the store."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, islice
from typing import Any, Generic

from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.options import Options, named
from tidelog.jobs.putting import BATCH_JOBS
from tidelog.jobs.typed import T
from tidelog.jobs.units import PAYLOAD_BYTES_MAX, UNIT_BYTES, in_units
from tidelog.jobs.work.results import Found, missing_result
from tidelog.store.errors import DataError, EncodeError

_numbers = count(1)


class QueueOf(Generic[T]):
    """The common part of all faces of a queue."""

    _backend: Any  # see abackend.py

    def __init__(self, options: Options) -> None:
        self._options = options
        self._encode, self._decode = options.codec.encode, options.codec.decode
        self._raw = options.codec.name == "bytes"  # bytes need no encoding
        self._own_worker: str | None = None
        self._named_by = 0

    @property
    def name(self) -> str:
        """Name of the queue, the key of its stream."""
        return self._options.name

    @property
    def group(self) -> str:
        """Name of the group."""
        return self._options.group

    @property
    def backend(self) -> Any:
        """The part that answers what the queue is asked, for a run that has it answer another process."""
        return self._backend

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
            kind = self._backend.kind
            # A child of a fork has names of its own. The queue of an open store does not work in it.
            if self._own_worker is None or kind and self._named_by != os.getpid():
                self._named_by = os.getpid()
                self._own_worker = f"{socket.gethostname()}-{self._named_by}-{kind}{next(_numbers)}"
            return self._own_worker
        named("worker", worker)
        name: str = worker
        return name
