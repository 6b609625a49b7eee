"""The streaming source: the log of a store, beside its writer, as the table entries or events.

The driver finds out how far the log goes and where its frames end (`latestOffset`, `partitions`); each task reads a
range of bytes and checks every frame again (`read`). A batch ends where a frame ends, or with maxOffsetsPerTrigger
where a unit ends; a unit that has more rows than a batch may have is split.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from tidelog.aof import bookmarks, durable
from tidelog.aof.bookmarks import Bookmark, is_name
from tidelog.aof.errors import AofError, Damage, Vanished
from tidelog.aof.frame import HEADER_BYTES
from tidelog.aof.reading.reader import FrameTuple
from tidelog.aof.segment import Position
from tidelog.aof.tail import Tail
from tidelog.engine.errors import CorruptBlock
from tidelog.snapshot.errors import CheckpointError, SnapshotGone
from tidelog.snapshot.place import place_of
from tidelog.snapshot.sealed import read_manifest
from tidelog.spark.errors import TidelogSparkError
from tidelog.spark.source import options as batch_options
from tidelog.spark.source import schemas
from tidelog.spark.source.batch.plan import KeysPart, Part
from tidelog.spark.source.batch.read import Read, columns_of, read
from tidelog.spark.source.batch.snapshots import DAMAGED, IO, resolve, telling
from tidelog.spark.source.log import records
from tidelog.spark.source.log.offsets import (
    RELEASED,
    REWOUND,
    Gap,
    Log,
    Loss,
    Offset,
    Within,
    offset_of,
)
from tidelog.spark.source.options import OPTION, choice, ms_of, number, refuse_unknown, refused

NAMES: Final = (
    *("path", "table", "startingOffsets", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
    *("level", "failOnDataLoss", "targetPartitionBytes", "bookmark"),
)
STREAM_ONLY: Final = frozenset(
    name.lower() for name in NAMES if name not in ("path", "table", "targetPartitionBytes")
)
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
SNAPSHOT: Final = "snapshot"

_LOOK_BYTES: Final = 1 << 20
_SKIM_BYTES: Final = 4 << 20
_ATTEMPTS: Final = 5
_WALKS: Final = 4  # planned batches that are remembered
_ANY: Final = 1 << 63  # no limit
# While nothing is written, a query looks that often, and answers Spark after this time. In a query of several sources,
# an idle one delays the others for as long.
_LOOK_EVERY_S: Final = 0.02
_WAIT_S: Final = 0.25

_CODES: Final = {
    RELEASED: "TIDELOG_LOSS_RELEASED",
    REWOUND: "TIDELOG_LOSS_REWOUND",
}
_OTHER_STORE: Final = "TIDELOG_LOSS_OTHER_STORE"

_logger = logging.getLogger("tidelog")


@dataclass(frozen=True)
class StreamOptions:
    """The options of a streaming read.

    starting       "earliest", "latest", "snapshot", or an LSN, or ("ms", unix ms)
    rows_max       of a batch, None: any number; bytes_max: of the log
    fsynced        read only what survives a power cut
    fail           whether a loss ends the query
    target_bytes   of the log in a partition
    bookmark       name of the bookmark that keeps the log which the query has not committed; "" for none
    """

    path: str
    table: str = "entries"
    starting: str | int | tuple[str, int] = EARLIEST
    rows_max: int | None = None
    bytes_max: int | None = None
    fsynced: bool = False
    fail: bool = True
    target_bytes: int = batch_options.TARGET_BYTES
    bookmark: str = ""


def parse(given: Mapping[str, str]) -> StreamOptions:
    """Parse the options of a streaming read. Raises TidelogSparkError."""
    told = {name.lower(): value for name, value in given.items()}
    refuse_unknown(told, NAMES)
    path = told.get("path")
    if not path:
        raise TidelogSparkError(
            OPTION, "no store is named; give its path with .load(PATH) or .option('path', PATH)"
        )
    if "://" in path:
        raise refused(
            "path",
            path,
            "the directory of a store on this machine; a streaming read cannot use a URL",
        )
    table = choice(told, "table", records.COLUMNS, "entries")
    starting = _starting(told.get("startingoffsets", EARLIEST))
    if starting == SNAPSHOT and table != "entries":
        raise refused(
            "startingOffsets",
            SNAPSHOT,
            "a start in the log, because table=events reads only the log",
        )
    return StreamOptions(
        path=path,
        table=table,
        starting=starting,
        rows_max=number(told, "maxOffsetsPerTrigger", 1, 1 << 60),
        bytes_max=number(told, "maxBytesPerTrigger", 1, 1 << 60),
        fsynced=choice(told, "level", ("written", "fsynced"), "written") == "fsynced",
        fail=choice(told, "failOnDataLoss", ("true", "false"), "true") == "true",
        target_bytes=number(told, "targetPartitionBytes", 1, 1 << 40) or batch_options.TARGET_BYTES,
        bookmark=_bookmark(told),
    )


def _bookmark(told: Mapping[str, str]) -> str:
    name = told.get("bookmark")
    if name is None:
        return ""
    if not is_name(name):
        raise refused("bookmark", name, "up to 64 letters, digits and _ . -")
    return name


def _starting(value: str) -> str | int | tuple[str, int]:
    plain = value.strip().lower()
    if plain in (EARLIEST, LATEST, SNAPSHOT):
        return plain
    if plain.isascii() and plain.isdigit():
        # digits alone are an LSN; a time in ms, which could be the same number, ends in "ms"
        return int(plain)
    if plain.endswith("ms") and plain[:-2].isascii() and plain[:-2].isdigit():
        return "ms", int(plain[:-2])
    wanted = (
        "earliest, latest, snapshot, an LSN, Unix milliseconds as 1700000000000ms, or a time as "
        "2026-01-31T12:00:00Z"
    )
    try:
        return "ms", ms_of("startingOffsets", value)
    except TidelogSparkError:
        raise refused("startingOffsets", value, wanted) from None


def columns(given: Mapping[str, str]) -> Mapping[str, pa.DataType]:
    """The columns of a streaming read. Raises TidelogSparkError."""
    return records.COLUMNS[parse(given).table]


def is_stream(given: Mapping[str, str]) -> bool:
    """Whether options can only be those of a streaming read."""
    told = {name.lower(): value for name, value in given.items()}
    return not STREAM_ONLY.isdisjoint(told) or told.get("table", "").lower() == "events"


class LogPart(NamedTuple):
    """A partition: the frames of the store `uuid` between two positions.

    first, last   where the rows begin in the first frame, and end in the last one, if the batch splits them
    """

    uuid: bytes
    start: Position
    end: Position
    first: Within | None = None
    last: Within | None = None


class GapPart(NamedTuple):
    """A partition: one event that says what is lost."""

    ms: int
    gap: Gap


def reader(
    given: Mapping[str, str], columns: Mapping[str, pa.DataType] | None = None
) -> StreamReader:
    """The reader of a streaming read. `columns`: only these, in this order. Raises TidelogSparkError."""
    options = parse(given)
    known = records.COLUMNS[options.table]
    for name, kind in (columns or {}).items():
        if name not in known:
            raise TidelogSparkError(
                OPTION,
                f"the stream of {options.table} has no column {name}; it has {', '.join(known)}",
            )
        if kind != known[name]:
            raise TidelogSparkError(
                OPTION,
                f"column {name} has the type {schemas.ddl_of(known[name])}, but the schema says {kind}",
            )
    return StreamReader(options, tuple(known if columns is None else columns))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the log of a store."""

    def __init__(self, options: StreamOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns
        # Spark asks twice for the first offset. With `latest`, the second answer could skip records, so keep the first.
        self._initial: dict[str, Any] | None = None
        self._begun = False  # whether latestOffset was asked from there
        self._held = ExitStack()  # the lease of the snapshot that the query begins with
        self._target: Position | None = None  # of Trigger.AvailableNow
        self._walks: dict[tuple[object, ...], list[Position]] = {}
        self._idle: tuple[Offset, Tail] | None = None  # where nothing was new at the last look

    def __getstate__(self) -> dict[str, Any]:
        # A task does not plan. The lease stays with the process that does.
        return self.__dict__ | {"_held": ExitStack(), "_walks": {}, "_idle": None}

    def _log(self) -> Log:
        return Log(Path(self._options.path).absolute())

    # --- planning

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            with _telling(self._options.path):
                first = self._first()
                # Spark also asks when it runs a first batch again: that one may need the log behind an older position.
                self._mark(first, again=False)
                self._initial = first.told()
        return self._initial

    def _first(self) -> Offset:
        log, starting = self._log(), self._options.starting
        if starting == SNAPSHOT:
            path = self._hold_newest()
            with telling(path):
                place = place_of(path)
                try:
                    return Offset(log.uuid, read_manifest(place).position, path)
                finally:
                    place.close()
        if starting == EARLIEST:
            position = log.earliest()
        elif starting == LATEST:
            position = self._promised(log, log.latest())
        elif isinstance(starting, tuple):
            position = self._at_time(log, starting[1])
        else:
            position = self._at_lsn(log, int(starting))
        return Offset(log.uuid, log.lasting(position))

    def _hold_newest(self) -> str:
        """Hold the newest snapshot. Returns its path."""
        for _ in range(_ATTEMPTS):
            (path,) = resolve((self._options.path,), "latest")
            try:
                self._hold(path)
                break
            except SnapshotGone as gone:  # a newer one has replaced it
                error = gone
        else:
            with telling(path):
                raise error
        return path

    def _hold(self, path: str) -> None:
        """Keep a snapshot, and with it the log behind it, until the query has committed the snapshot's entries."""
        held = ExitStack()
        held.enter_context(place_of(path).hold())
        self._held.close()
        self._held = held

    def _at_lsn(self, log: Log, lsn: int) -> Position:
        first, last = log.earliest(), log.latest()
        if lsn > last.lsn + 1:
            raise TidelogSparkError(
                OPTION,
                f"option startingOffsets: {self._options.path} ends with LSN {last.lsn}, before LSN {lsn}",
            )
        if first.lsn and lsn <= first.lsn:
            return self._at_beginning(first, f": LSN {lsn} to {first.lsn} were released")
        return log.behind(max(lsn - 1, 0))

    def _at_time(self, log: Log, ms: int) -> Position:
        found = log.segments()
        if found and found[0].header.before.lsn and ms <= found[0].header.time:
            told = [f"{np.datetime64(each, 'ms')}Z" for each in (found[0].header.time, ms)]
            text = f", written since {told[0]}: older records were released, also those since {told[1]}"
            return self._at_beginning(log.earliest(), text)
        return log.since(ms)

    def _at_beginning(self, first: Position, text: str) -> Position:
        """The log's beginning, for a query that wanted an earlier one. Raises TidelogSparkError if it is strict."""
        message = f"{self._options.path} begins with LSN {first.lsn + 1}{text}"
        if self._options.fail:
            raise TidelogSparkError(
                _CODES[RELEASED],
                f"{message}. Use startingOffsets=earliest or failOnDataLoss=false",
            )
        _logger.warning("%s; the query starts with LSN %d", message, first.lsn + 1)
        return first

    def _promised(self, log: Log, position: Position) -> Position:
        """The position, or with level=fsynced the last one before it that survives a power cut."""
        if not self._options.fsynced:
            return position
        synced = self._synced(log)
        return position if position.lsn <= synced else log.behind(synced)

    @staticmethod
    def _synced(log: Log) -> int:
        """The last LSN that is known to be on the disk."""
        promises = durable.read(log.disk, log.directory, log.uuid)
        found = log.segments()
        # The writer fsyncs a segment before it gives the next one its name.
        return max([found[-1].header.before.lsn if found else 0, *(each.lsn for each in promises)])

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.rows_max is not None:
            return ReadMaxRows(options.rows_max)
        return ReadAllAvailable() if options.bytes_max is None else ReadMaxBytes(options.bytes_max)

    def prepareForTriggerAvailableNow(self) -> None:
        with _telling(self._options.path):
            log = self._log()
            self._target = self._promised(log, log.latest())

    def reportLatestOffset(self) -> dict[str, Any] | None:
        # Finding the latest offset means to read the log, which the next batch does anyway.
        return None

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        offset = offset_of(start)
        begun = offset if start == self._initial else None
        with _telling(self._options.path):
            if begun is not None and not self._begun:
                self._mark(offset)
                self._begun = True
            if offset.snapshot:
                return offset._replace(snapshot="", begun=begun).told()
            log = self._log()
            if not self._is_idle(log, offset):
                end = self._next(log, offset, limit)
                if end is not None:
                    return end._replace(begun=begun).told()
            if self._target is None and self._grows(log):
                end = self._next(log, offset, limit)
                if end is not None:
                    return end._replace(begun=begun).told()
            return start

    def _next(self, log: Log, offset: Offset, limit: ReadLimit) -> Offset | None:
        """The end of the next batch; None if nothing is new. Raises TidelogSparkError."""
        attempts, before = 0, None
        while True:
            begin, within, loss = self._begin(log, offset)
            if loss is not None:
                self._mark(Offset(log.uuid, begin))
            try:
                end, rest = self._walk(log, begin, within, limit)
                break
            except Vanished:
                # The records were released or taken back during the walk. The next `_begin` finds out which. A query
                # that goes on behind them tries as often as the log begins at another place.
                attempts = attempts + 1 if begin == before else 1
                before = begin
                if attempts == _ATTEMPTS:
                    raise
        if loss is None and (end, rest) == (begin, within):
            self._idle = offset, log.tail(begin)
            return None
        return Offset(log.uuid, log.lasting(end) if end == begin else end, within=rest)

    def _is_idle(self, log: Log, offset: Offset) -> bool:
        """Whether there is still nothing behind an offset where the last look found nothing."""
        if self._idle is None or self._idle[0] != offset or log.uuid != offset.uuid:
            return False
        try:
            if self._idle[1].look(1) is None:
                return True
        except Vanished:
            pass  # `find` knows why
        self._idle = None
        return False

    def _grows(self, log: Log) -> bool:
        """Wait until there is a record to read behind the place of the last look, but no longer than _WAIT_S.

        Without this, Spark would ask every 10 ms while nothing is written, and each question costs about 3 ms of
        processor time. A new segment or a loss is found when Spark asks again.
        """
        assert self._idle is not None
        offset, tail = self._idle
        until = monotonic() + _WAIT_S
        with tail.watching() as may_grow:
            while monotonic() < until:
                sleep(_LOOK_EVERY_S)
                if may_grow() and self._has_grown(log, offset, tail):
                    self._idle = None
                    return True
        return False

    def _has_grown(self, log: Log, offset: Offset, tail: Tail) -> bool:
        """Whether there is a record to read behind the place of the last look."""
        if self._options.fsynced:
            return self._synced(log) > offset.position.lsn
        try:
            return tail.look(1) is not None
        except Vanished:  # the next `_begin` finds out why
            return True

    def _begin(self, log: Log, offset: Offset) -> tuple[Position, Within | None, Loss | None]:
        """Where to read on, where in the frame there, and what is lost before. Raises TidelogSparkError if that must
        not be."""
        found = log.find(offset)
        if isinstance(found, Position):
            return found, offset.within, None
        if self._options.fail:
            raise _lost(found)
        _logger.warning("%s; the query goes on with LSN %d", found.text, found.resume.lsn + 1)
        return found.resume, None, found

    def _walk(
        self, log: Log, begin: Position, within: Within | None, limit: ReadLimit
    ) -> tuple[Position, Within | None]:
        """The end of a batch that begins there. Remembers where its partitions end."""
        rows_max, bytes_max = self._limits(limit)
        if self._options.fsynced:
            lsn_max = self._synced(log)
        else:
            lsn_max = _ANY
        if self._target is not None:
            lsn_max = min(lsn_max, self._target.lsn)
        limits = _Limits(lsn_max, rows_max, bytes_max)
        cuts, end, rest = _walk(log, begin, within, limits, self._options)
        while len(self._walks) >= _WALKS:
            del self._walks[next(iter(self._walks))]
        self._walks[begin, end, rest] = cuts
        return end, rest

    def _limits(self, limit: ReadLimit) -> tuple[int, int]:
        """(rows, bytes) of a batch at most."""
        if isinstance(limit, ReadAllAvailable):
            return _ANY, _ANY
        rows_max, bytes_max = self._options.rows_max or _ANY, self._options.bytes_max or _ANY
        if isinstance(limit, ReadMaxRows):
            rows_max = min(rows_max, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            bytes_max = min(bytes_max, limit.max_bytes)
        return rows_max, bytes_max

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, last = offset_of(start), offset_of(end)
        if first == last:
            return []
        if last.begun is not None:
            first = last.begun  # what `startingOffsets` means may have changed since
        with _telling(self._options.path):
            if first.snapshot:
                with telling(first.snapshot):
                    self._hold(first.snapshot)
                return [InputPartition(part) for part in self._snapshot(first.snapshot).parts()]
            for _ in range(_ATTEMPTS - 1):
                try:
                    return self._log_parts(self._log(), first, last)
                except Vanished:
                    pass  # as in `_next`
            return self._log_parts(self._log(), first, last)

    def _log_parts(self, log: Log, first: Offset, last: Offset) -> list[InputPartition]:
        """The partitions of a batch between two offsets."""
        found: list[GapPart | LogPart] = []
        begin, within, loss = self._begin(log, first)
        if loss is not None:
            found += self._gap_parts(loss, last.position.lsn)
        order = Offset(log.uuid, begin, within=within).order
        if order >= last.order or last.uuid != log.uuid:
            return [InputPartition(part) for part in found]
        # Spark may plan a batch again, and the batch's last records may have been taken back meanwhile.
        ending, rest, _ = self._begin(log, last)
        cuts = self._walks.get((begin, last.position, rest))
        if cuts is None:
            lsn_max = min(ending.lsn, last.position.lsn) if rest is None else rest.behind.lsn
            cuts, _, _ = _walk(log, begin, None, _Limits(lsn_max), self._options)
        parts = [LogPart(log.uuid, *pair) for pair in zip([begin, *cuts], cuts)]
        if parts:
            parts[0] = parts[0]._replace(first=within)
            parts[-1] = parts[-1]._replace(last=rest)
        return [InputPartition(part) for part in (*found, *parts)]

    def _gap_parts(self, loss: Loss, end: int) -> list[GapPart]:
        """The events of a loss, in a batch that ends with LSN `end`."""
        if self._options.table != "events":
            return []
        return [GapPart(_now_ms(), gap) for gap in loss.gaps(end)]

    def _snapshot(self, path: str) -> Read:
        options = batch_options.Options((path,), target_bytes=self._options.target_bytes)
        return read(options, (path,), columns_of(options))

    def commit(self, end: dict[str, Any]) -> None:
        with _telling(self._options.path):
            self._mark(offset_of(end))
        self._held.close()

    def stop(self) -> None:
        self._held.close()

    def _mark(self, offset: Offset, *, again: bool = True) -> None:
        """Set the query's bookmark: it needs the log behind this offset. again: also if there is one."""
        name = self._options.bookmark
        if not name:
            return
        log = self._log()
        store = log.disk, log.root, log.uuid
        if offset.uuid != log.uuid:
            return  # it says nothing about this store
        if again or name not in {mark.name for mark in bookmarks.bookmarks(*store)[0]}:
            bookmarks.put(*store, Bookmark(name, offset.position.lsn))

    # --- reading, in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: Any = partition.value
        if part is None:  # if a batch has no partitions, Spark passes one with None
            return
        for batch in self._batches(part):
            yield batch.select(list(self._columns)) if self._narrow else batch

    @property
    def _narrow(self) -> bool:
        return self._columns != tuple(records.COLUMNS[self._options.table])

    def _batches(self, part: LogPart | GapPart | Part | KeysPart) -> Iterator[pa.RecordBatch]:
        if isinstance(part, GapPart):
            yield records.gap(part.ms, part.gap)
        elif isinstance(part, LogPart):
            with _telling(self._options.path):
                yield from self._log_batches(part)
        else:
            yield from self._snapshot(part.path).batches(part)

    def _log_batches(self, part: LogPart) -> Iterator[pa.RecordBatch]:
        log, table = self._log(), self._options.table
        rest = part
        while True:
            frames = _Frames(log, rest)
            yield from frames.batches(table)
            loss = frames.loss
            if loss is None:
                return
            if self._options.fail or loss.kind != RELEASED:
                # Records that were taken back: only a batch that is planned again ends where the histories part.
                raise _lost(loss)
            _logger.warning("%s; the query goes on with LSN %d", loss.text, loss.resume.lsn + 1)
            for each in self._gap_parts(loss, part.end.lsn):
                yield records.gap(each.ms, each.gap)
            if loss.resume.lsn >= part.end.lsn:
                return
            rest = part._replace(start=loss.resume, first=None)


class _Limits(NamedTuple):
    """Of a batch: the last LSN, the number of rows, and of bytes of the log."""

    lsn: int
    rows: int = _ANY
    nbytes: int = _ANY


def _walk(
    log: Log, begin: Position, within: Within | None, limits: _Limits, options: StreamOptions
) -> tuple[list[Position], Position, Within | None]:
    """(ends of the partitions, end, where in the frame there) of a batch.

    It has whole frames, at least one, if its rows are not limited.
    """
    cuts: list[Position] = []
    end = begin
    tail = log.tail(begin)
    nbytes = part = 0
    left, counted = limits.rows, limits.rows != _ANY

    def fits(behind: Position, size: int) -> bool:
        """Whether the frames up to `behind`, of `size` bytes, are within all limits of the batch."""
        return not counted and behind.lsn <= limits.lsn and nbytes + size <= limits.nbytes

    while True:
        # If much lies ahead, the tasks verify it, and the walk only looks where frames end.
        while nbytes >= _LOOK_BYTES and not counted:
            skimmed = tail.skim(min(_SKIM_BYTES, options.target_bytes - part))
            if skimmed is None or not fits(*skimmed):
                break
            behind, size = skimmed
            nbytes, part = nbytes + size, part + size
            tail.position = end = behind
            if part >= options.target_bytes:
                cuts.append(end)
                part = 0
        stretch = tail.look(_LOOK_BYTES)
        if stretch is None:
            break
        # A stretch that reaches no limit is taken without a look at its frames.
        size = stretch.end.offset - stretch.frames[0][0]
        if fits(stretch.end, size) and part + size < options.target_bytes:
            nbytes, part = nbytes + size, part + size
            tail.position = end = stretch.end
            continue
        for fields in stretch.frames:
            size = HEADER_BYTES + len(fields[6])
            nbytes += size
            behind = stretch.behind(fields)
            stop = (0, 0) if behind.lsn > limits.lsn else None
            if nbytes > limits.nbytes and end != begin:
                stop = (0, 0)
            if stop is None and counted:
                counts = records.count(options.table, stretch.path, fields)
                start = within if end == begin else None
                stop = counts.stop(start, left, limits.rows)
                left -= sum(counts.rows) - counts.before(start)
            if stop == (0, 0):
                break
            part += size
            if part >= options.target_bytes:
                cuts.append(behind)
                part = 0
            if stop is not None:
                return ([*cuts, behind] if part else cuts), end, Within(behind, *stop)
            tail.position = end = behind
        else:
            continue
        break
    return ([*cuts, end] if part else cuts), end, within if end == begin else None


class _Frames:
    """The frames of a partition, in stretches. `loss` is set if they are not what was planned."""

    def __init__(self, log: Log, part: LogPart) -> None:
        self.loss: Loss | None = None
        self._log = log
        self._part = part

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of a table."""
        first, last = self._part.first, self._part.last
        if first is None and last is None:
            yield from records.batches(table, self)
            return
        for path, frames in self:
            whole: list[FrameTuple] = []
            for fields in frames:
                end_lsn = fields[1] + fields[2] - 1
                start = first if first is not None and end_lsn == first.behind.lsn else None
                end = last if last is not None and end_lsn == last.behind.lsn else None
                if start is end is None:
                    whole.append(fields)
                    continue
                yield from records.batches(table, [(path, whole)])
                whole = []
                yield from records.part(table, path, fields, start, end)
            yield from records.batches(table, [(path, whole)])

    def __iter__(self) -> Iterator[tuple[Path, list[FrameTuple]]]:
        at, end = self._part.start, self._part.end
        tail = self._log.tail(at)
        try:
            while at.lsn < end.lsn and (stretch := tail.look(_LOOK_BYTES)) is not None:
                frames = [fields for fields in stretch.frames if fields[1] <= end.lsn]
                at = stretch.behind(frames[-1])
                yield stretch.path, frames
                tail.position = at
        except Vanished:
            pass
        if (at.lsn, at.crc) != (end.lsn, end.crc):
            self.loss = self._why(at)

    def _why(self, at: Position) -> Loss:
        """Why the partition does not go on behind `at`."""
        for position in (at, self._part.end):
            found = self._log.find(Offset(self._part.uuid, position))
            if isinstance(found, Loss):
                return found
        raise TidelogSparkError(
            _CODES[REWOUND],
            f"{self._log.root}: LSN {at.lsn + 1} to {self._part.end.lsn} are not those that were there when the batch "
            "was planned. Start the query again",
        )


def _lost(loss: Loss) -> TidelogSparkError:
    return TidelogSparkError(
        _CODES.get(loss.kind, _OTHER_STORE),
        f"{loss.text}. With failOnDataLoss=false the query goes on with LSN {loss.resume.lsn + 1}",
    )


@contextmanager
def _telling(path: str) -> Iterator[None]:
    """Raise the errors of reading a log as TidelogSparkError, whose text survives the way through Spark."""
    try:
        yield
    except Vanished as error:
        raise TidelogSparkError(_CODES[RELEASED], f"{path}: {error}") from error
    except (Damage, CorruptBlock, CheckpointError) as error:
        raise TidelogSparkError(DAMAGED, f"{path}: {error}") from error
    except AofError as error:
        raise TidelogSparkError("TIDELOG_STORE", str(error)) from error
    except OSError as error:
        raise TidelogSparkError(IO, f"{path}: {error.strerror or error}") from error


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)
