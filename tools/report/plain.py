"""The analyses of spark/jobs in plain Python, for a store that is not worth the start of Spark.

They read what the engine reads: streams and groups of the snapshot, a node at a time. The rows are those of the
analyses' DataFrames; tests/spark/jobs/test_report.py compares the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from tidelog.engine.groups.group import UNKNOWN
from tidelog.engine.groups.pending import NOBODY
from tidelog.engine.ids import text
from tidelog.engine.streams.frozen_stream import load_stream
from tidelog.engine.streams.lag import lag
from tidelog.figures.names import has_due_times
from tidelog.snapshot.sealed import Sealed
from tidelog.spark.source.batch.catalog import keys
from tidelog.spark.source.batch.snapshots import opened, telling
from tidelog.tools.report.plain_jobs import Pending, Streams, by_state
from tidelog.tools.report.plain_log import Delivery
from tidelog.tools.report.rows import Queue, Row, Rows, quantiles
from tidelog.tools.state import entries


class _Group(NamedTuple):
    """A group of a stream. `lag` and `read` are None if unknown."""

    db: int
    stream: bytes
    group: bytes
    lag: int | None
    pending: int
    read: int | None
    last_id: int


class Plain:
    """Implements `content.Analyses`, in this process. Raises TidelogSparkError as reads through Spark do."""

    def __init__(
        self,
        snapshots: Sequence[tuple[str, int]],
        path: str,
        now_ms: int,
        sealed: Sealed,
        deliveries: Sequence[Delivery] | None,
    ) -> None:
        self.snapshots, self.path, self.now_ms = snapshots, path, now_ms
        self.has_events = deliveries is not None
        self._sealed = sealed
        self._deliveries = deliveries

    # --- what is read

    @cached_property
    def _streams(self) -> Streams:
        return _streams(self._sealed)

    @cached_property
    def _groups(self) -> list[_Group]:
        with telling(self.path):
            return list(_groups(self._streams))

    @cached_property
    def _pending(self) -> list[Pending]:
        with telling(self.path):
            return list(_pending(self._streams))

    # --- the analyses

    @cached_property
    def _hot(self) -> tuple[list[Row], list[Row]]:
        """The streams and the fields: one pass for both, since each entry is decoded."""
        streams: list[Row] = []
        fields: list[Row] = []
        with telling(self.path):
            for (db, key), stream in self._streams.items():
                named: dict[bytes, list[int]] = defaultdict(lambda: [0, 0, 0])
                count = 0
                for _, row in entries(stream):
                    count += 1
                    for name, value in zip(row[::2], row[1::2]):
                        sums, size = named[name], len(value)
                        sums[0] += 1
                        sums[1] += len(name) + size
                        sums[2] = max(sums[2], size)
                where = {"db": db, "stream": key}
                if count:
                    times, nbytes = (sum(each[at] for each in named.values()) for at in (0, 1))
                    streams.append({**where, "entries": count, "fields": times, "bytes": nbytes})
                for name, (times, nbytes, longest) in named.items():
                    sums_of = {"times": times, "bytes": nbytes, "longest": longest}
                    fields.append({**where, "name": name, **sums_of})
        return _shared(streams), _shared(fields)

    def hot_streams(self, top: int) -> Rows:
        return self._hot[0][:top]

    def hot_fields(self, top: int) -> Rows:
        return self._hot[1][:top]

    def latency(self, top: int) -> Rows:
        by: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
        each: Pending | Delivery
        for each in self._pending if self._deliveries is None else self._deliveries:
            if not has_due_times(each.stream, each.group):
                by[each.db, each.stream, each.group, each.consumer].append(each)
        first, measure = (
            ("pending", _waiting) if self._deliveries is None else ("deliveries", _done)
        )
        names = ("db", "stream", "group", "consumer")
        rows = [{**dict(zip(names, key)), **measure(found)} for key, found in by.items()]
        # A consumer of None, who is nobody, comes first.
        rows.sort(key=lambda row: (-row[first], *_place(row), row["consumer"] or b""))
        return rows[:top]

    def lag(self) -> Rows:
        rows: list[Row] = []
        before: dict[tuple[Any, ...], _Group] = {}
        for path, _ in self.snapshots:
            with opened(path, sparing=True) as sealed, telling(path):
                found = self._groups if path == self.path else _groups(_streams(sealed))
                lsn = sealed.manifest.lsn
                for each in found:
                    if has_due_times(each.stream, each.group):
                        continue
                    last = before.get(each[:3])
                    before[each[:3]] = each
                    change = None if last is None else _less(each.lag, last.lag)
                    read = None if last is None else _less(each.read, last.read)
                    added = None if read is None or change is None else read + change
                    row = {**each._asdict(), "snapshot": path, "snapshot_lsn": lsn}
                    rows.append({**row, "lag_change": change, "read": read, "added": added})
        return rows

    def _poison(self, least: int) -> list[Pending]:
        return [
            each
            for each in self._pending
            if each.delivery_count >= least and not has_due_times(each.stream, each.group)
        ]

    def poison_by_group(self, least: int) -> Rows:
        by: dict[tuple[Any, ...], list[Pending]] = defaultdict(list)
        for each in self._poison(least):
            by[each.db, each.stream, each.group].append(each)
        rows = [
            {
                **dict(zip(("db", "stream", "group"), key)),
                "messages": len(found),
                "deleted": sum(not each.exists for each in found),
            }
            for key, found in by.items()
        ]
        return sorted(rows, key=lambda row: (-row["messages"], *_place(row)))

    def poison(self, least: int, top: int) -> Rows:
        worst = sorted(
            self._poison(least),
            key=lambda each: (-each.delivery_count, each.id, each.db, each.stream, each.group),
        )
        return [
            {
                **{name: getattr(each, name) for name in ("db", "stream", "group", "consumer")},
                "id": text(each.id).decode(),
                "delivery_count": each.delivery_count,
                "added_at": each.added_at,
                "delivered_at": each.delivered_at,
                "exists": each.exists,
            }
            for each in worst[:top]
        ]

    def jobs(self, asked: Queue) -> Rows:
        with telling(self.path):
            return by_state(asked, self._streams, self._pending, self.now_ms, self._deliveries)


def _streams(sealed: Sealed) -> Streams:
    """The streams of a snapshot. Nodes and pending entries are not read yet."""
    return {
        (key.db, key.key): load_stream(sealed.rows, key.number)
        for key in keys(sealed.rows, sealed.meta, sealed.manifest.moment_ms)
        if key.number is not None
    }


def _groups(streams: Streams) -> Iterator[_Group]:
    for (db, key), stream in streams.items():
        for name in sorted(stream.groups):
            group = stream.groups[name]
            read = None if group.entries_read == UNKNOWN else group.entries_read
            behind = lag(stream, group)
            yield _Group(db, key, name, behind, len(group.pending), read, group.last_id)


def _pending(streams: Streams) -> Iterator[Pending]:
    for (db, key), stream in streams.items():
        for name in sorted(stream.groups):
            group = stream.groups[name]
            for entry_id, time, owner, count in group.pending.entries():
                held = owner != NOBODY
                yield Pending(
                    *(db, key, name, entry_id, group.owner_name(owner) if held else None),
                    *(time if held else None, count, stream.find(entry_id) is not None),
                )


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["db"], row["stream"], row["group"]


def _less(this: int | None, that: int | None) -> int | None:
    return None if this is None or that is None else this - that


def _shared(rows: list[Row]) -> list[Row]:
    """The rows with their shares of all bytes, most bytes first."""
    total = sum(row["bytes"] for row in rows)
    for row in rows:
        row["share"] = row["bytes"] / total if total else 0.0
    return sorted(
        rows, key=lambda row: (-row["bytes"], row["db"], row["stream"], row.get("name", b""))
    )


def _waiting(found: Sequence[Pending]) -> Row:
    """As `latency.pending_latency`."""
    return {
        "pending": len(found),
        "redelivered": sum(each.delivery_count > 1 for each in found),
        "deliveries_max": max(each.delivery_count for each in found),
        **quantiles("latency_ms", [each.waited for each in found if each.delivery_count == 1]),
    }


def _done(found: Sequence[Delivery]) -> Row:
    """As `latency.delivery_latency`."""
    first = [each.waited for each in found if each.is_new and each.delivery_count == 1]
    return {
        "deliveries": len(found),
        "redeliveries": sum(each.redelivered for each in found),
        "messages": len({each.id for each in found}),
        **quantiles("latency_ms", first),
        "acknowledged": sum(each.ended_at is not None for each in found),
        **quantiles("handled_ms", [each.handled for each in found]),
    }
