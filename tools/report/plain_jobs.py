"""The jobs of a queue by state, in plain Python: `queue.jobs` of spark/jobs, counted."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.engine import ids
from tidelog.engine.api import DbKey
from tidelog.engine.streams.stream import Stream
from tidelog.figures.names import DUE, HOLDS, QueueStreams, due_ms
from tidelog.figures.queues import resting
from tidelog.jobs.options import make_options
from tidelog.jobs.rows import fields_of
from tidelog.spark.jobs.terms import MS_MAX
from tidelog.tools.report.plain_log import Delivery
from tidelog.tools.report.rows import Queue, Row, Rows, between, quantiles
from tidelog.tools.state import entries

Streams = Mapping[DbKey, Stream]
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")


class Pending(NamedTuple):
    """A pending entry. `consumer`, `time`: of its delivery; None if it was given back. `exists`: its entry does."""

    db: int
    stream: bytes
    group: bytes
    id: int
    consumer: bytes | None
    time: int | None
    delivery_count: int
    exists: bool

    @property
    def delivered_at(self) -> int | None:
        return self.time if self.time is not None and 0 <= self.time <= MS_MAX else None

    @property
    def added_at(self) -> int | None:
        return added_at(self.id)

    @property
    def waited(self) -> int | None:
        return between(self.added_at, self.delivered_at)


class _Told:
    """One job, or one dead job, as the streams tell of it.

    row      of its entry; None if only notes, or its delivery, are left
    stream   its key, of the entry or else of the delivery
    failure  (ID, whether it has an error) of the latest failure
    """

    def __init__(self) -> None:
        self.row: Sequence[bytes] | None = None
        self.stream = b""
        self.held: Pending | None = None
        self.failure: tuple[int, bool] = -1, False


class _Job(NamedTuple):
    """A job as the report counts it; times and lengths are as in `queue.jobs`."""

    state: str
    deliveries: int | None
    failed: bool
    put_at: int | None
    waited: int | None
    worked: int | None


class _Times:
    """The times that the log has of one job."""

    def __init__(self, first: Delivery) -> None:
        self.first_waited = first.waited
        self.last: int | None = None
        self.ended: int | None = None


def added_at(entry_id: int) -> int | None:
    """The time in an ID."""
    ms = entry_id >> 64
    return ms if ms <= MS_MAX else None


def by_state(
    asked: Queue,
    streams: Streams,
    pending: Sequence[Pending],
    now: int,
    deliveries: Sequence[Delivery] | None,
) -> Rows:
    """A row for each state that jobs are in: state, jobs, deliveries, errors, oldest, waited_ms_*, worked_ms_*."""
    by: dict[str, list[_Job]] = defaultdict(list)
    for job in _jobs(asked, streams, pending, now, deliveries or ()):
        by[job.state].append(job)
    return [_counted(state, jobs) for state, jobs in by.items()]


def _counted(state: str, jobs: Sequence[_Job]) -> Row:
    return {
        "state": state,
        "jobs": len(jobs),
        "deliveries": max(
            (job.deliveries for job in jobs if job.deliveries is not None), default=None
        ),
        "errors": sum(job.failed for job in jobs),
        "oldest": min((job.put_at for job in jobs if job.put_at is not None), default=None),
        **quantiles("waited_ms", [job.waited for job in jobs]),
        **quantiles("worked_ms", [job.worked for job in jobs]),
    }


def _jobs(
    asked: Queue,
    streams: Streams,
    pending: Sequence[Pending],
    now: int,
    deliveries: Sequence[Delivery],
) -> list[_Job]:
    options = make_options(asked.name, asked.group)
    keys, group = QueueStreams(options.key), options.group_key
    timed = _times(deliveries, asked.db, keys)
    paused = _paused(asked.db, streams, keys, group, now)
    jobs: list[_Job] = []
    for (is_dead, entry_id), known in _known(asked.db, streams, pending, keys, group).items():
        row, held = known.row, known.held
        if held is None and (row is None or known.stream == keys.later):
            continue  # only notes are left, or another client deleted a delayed job in part
        put: int | None = entry_id
        owner = group
        if is_dead:
            put, owner = ids.parse_or_none(_first(row, b"id") or b""), _first(row, b"group") or b""
        stream = streams.get((asked.db, known.stream))
        reader = (
            None if stream is None or known.stream not in keys.jobs else stream.groups.get(group)
        )
        unread = reader is None or entry_id > reader.last_id
        state, due = _state(is_dead, known, unread, entry_id in paused, keys, now)
        if is_dead:
            count, failed = _number(_first(row, b"deliveries")), _first(row, b"reason") is not None
        else:
            count = 0 if unread else None
            if held is not None:
                count = held.delivery_count if due is None else 0
            failed = known.failure[1]
        put_at = None if put is None else added_at(put)
        at = None if put is None else timed.get((owner, put))
        waited = None if at is None else at.first_waited
        if waited is None and state == "waiting" and count == 0:
            waited = between(put_at if due is None else due, now)
        ended = now if state == "in_flight" else None if at is None else at.ended
        worked = None if at is None else between(at.last, ended)
        jobs.append(_Job(state, count, failed, put_at, waited, worked))
    return jobs


def _state(
    is_dead: bool, known: _Told, unread: bool, paused: bool, keys: QueueStreams, now: int
) -> tuple[str, int | None]:
    """The state of a job, and the time at which a delayed one is due."""
    held = known.held
    if is_dead:
        return "dead", None
    if held is not None and held.stream == keys.later and held.delivered_at is not None:
        due = due_ms(held.delivered_at)
        return "scheduled" if due > now else "waiting", due
    if held is not None and held.consumer is not None:
        return "in_flight", None
    if paused:
        return "paused", None
    return "waiting" if held is not None or unread else "kept", None


def _paused(db: int, streams: Streams, keys: QueueStreams, group: bytes, now: int) -> set[int]:
    """The jobs of all lanes whose pause is not over."""
    found: set[int] = set()
    for key in keys.jobs:
        stream = streams.get((db, key))
        reader = None if stream is None else stream.groups.get(group)
        if reader is not None:
            found |= resting(streams.get((db, key + HOLDS)), reader, now)
    return found


def _known(
    db: int, streams: Streams, pending: Sequence[Pending], keys: QueueStreams, group: bytes
) -> dict[tuple[bool, int], _Told]:
    """Each job and each dead job, by whether it is dead and its ID."""
    found: dict[tuple[bool, int], _Told] = defaultdict(_Told)
    for key in sorted(keys.jobs | {keys.later, keys.failures, keys.dead}):
        stream = streams.get((db, key))
        for entry_id, row in () if stream is None else entries(stream):
            if key != keys.failures:
                known = found[key == keys.dead, entry_id]
                # Of a live job only the presence of its row counts, so do not keep that in memory.
                known.row, known.stream = row if key == keys.dead else (), key
            elif _first(row, b"group") == group:
                job = ids.parse_or_none(_first(row, b"job") or b"")
                if job is not None:
                    known = found[False, job]
                    known.failure = max(
                        known.failure, (entry_id, _first(row, b"error") is not None)
                    )
    for each in pending:
        delayed = each.stream == keys.later and each.group == DUE
        if each.db == db and (delayed or each.stream in keys.jobs and each.group == group):
            known = found[False, each.id]
            known.held, known.stream = each, known.stream or each.stream
    return found


def _times(
    deliveries: Sequence[Delivery], db: int, keys: QueueStreams
) -> dict[tuple[bytes, int], _Times]:
    """The times of the jobs, by group and ID. The renewal of a lease is no delivery: it raises no count."""
    found: dict[tuple[bytes, int], _Times] = {}
    for each in deliveries:
        if each.db == db and each.stream in keys.jobs:
            times = found.setdefault((each.group, each.id), _Times(each))
            if each.redelivered or each.is_new:
                times.last = each.delivered_at
            if each.ended_at is not None:
                times.ended = max(times.ended or 0, each.ended_at)
    return found


def _first(row: Sequence[bytes] | None, name: bytes) -> bytes | None:
    return None if row is None else fields_of(row).get(name)


def _number(raw: bytes | None) -> int | None:
    text = "" if raw is None else raw.decode(errors="replace").strip()
    return int(text) if _NUMBER.fullmatch(text) else None
