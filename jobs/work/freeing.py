"""Freeing: which job has a dedup ID, and which IDs are freed since their jobs never run. Under the store's lock."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tidelog.engine import ids
from tidelog.engine.api import NOBODY, Context, Effect, EntryRow, Group, Stream
from tidelog.jobs import rows
from tidelog.jobs.dedup import PRODUCER, TAKER, freed, needed_elsewhere, table_at
from tidelog.jobs.lanes import lane_key, lane_of
from tidelog.jobs.options import PRIORITY_MAX, Options
from tidelog.jobs.streams import stream_at
from tidelog.jobs.work.later import find_later, is_delayed
from tidelog.jobs.work.results import first_id, first_id_of_dead

_LANES: Final = range(PRIORITY_MAX + 1)


class Namesake(NamedTuple):
    """A job that has a dedup ID.

    key      of the stream with the table that says so        pid     of the producer in it
    entry    where the job is, or was put                     first   the ID that `put` returned
    """

    key: bytes
    pid: bytes
    entry: int
    first: int


def key_of(options: Options, job: int) -> bytes:
    """The key of the stream that a job with this ID was put into."""
    return options.later_key if is_delayed(job) else lane_key(options.root, lane_of(job))


# --- looking


def find_taken(ctx: Context, options: Options, dedup_id: bytes) -> Namesake | None:
    """The job that took an ID; None if no job does, or if another client has ended the one that did."""
    table = table_at(ctx, options.root, TAKER)
    entry = None if table is None else table.lookup(TAKER, dedup_id, ctx.now)
    if entry is None:
        return None
    stream = stream_at(ctx, key_of(options, entry))
    row = None if stream is None else stream.get(entry)
    if stream is None or row is None:
        return None
    groups = stream.groups.values()
    if groups and not any(
        _waits(group, entry) or group.pending.contains(entry) for group in groups
    ):
        return None
    first = ids.parse_or_none(first_id(entry, row))
    return Namesake(options.root, TAKER, entry, entry if first is None else first)


def find_in_window(ctx: Context, options: Options, dedup_id: bytes, key: bytes) -> Namesake | None:
    """The job whose ID the stream at a key remembers."""
    stream = stream_at(ctx, key)
    if stream is None or stream.idmp is None:
        return None
    entry = stream.idmp.lookup(PRODUCER, dedup_id, ctx.now)
    return None if entry is None else Namesake(key, PRODUCER, entry, entry)


def has_begun(ctx: Context, options: Options, job: int) -> bool:
    """Whether a job is neither delayed nor waiting: a worker has, or had it, or it has ended."""
    if is_delayed(job):
        found = find_later(ctx, options)
        return found is None or not (found[1].pending.contains(job) and found[0].contains(job))
    stream = stream_at(ctx, key_of(options, job))
    if stream is None or not stream.contains(job):
        return True
    return not all(_waits(group, job) or _unseen(group, job) for group in stream.groups.values())


def _waits(group: Group, job: int) -> bool:
    """Whether a group has not delivered a job."""
    return group.last_id < job


def _unseen(group: Group, job: int) -> bool:
    """Whether a job was given back as if it had not been delivered."""
    row = group.pending.get(job)
    return row is not None and row[1] == NOBODY and not row[2]


# --- freeing


def free_window(ctx: Context, options: Options, firsts: Iterable[int]) -> list[Effect]:
    """The effects that free the remembered IDs of jobs that will never run, by the IDs that `put` returned."""
    effects: list[Effect] = []
    for first in firsts:
        key = key_of(options, first)
        table = table_at(ctx, key, PRODUCER)
        iid = None if table is None else table.owned(PRODUCER, first)
        if iid is not None:
            effects.append(freed(ctx.db, key, PRODUCER, iid, first))
    return effects


def free_unseen(
    ctx: Context, options: Options, stream: Stream, dead: Iterable[EntryRow]
) -> list[Effect]:
    """`free_window` for those of the new dead jobs that expired before a worker saw them."""
    firsts: list[int] = []
    for row in dead:
        fields = rows.fields_of(row)
        if fields.get(b"deliveries") != b"0":
            continue
        job = ids.parse_or_none(fields.get(b"id", b""))
        if job is not None and not needed_elsewhere(stream, options.group_key, job):
            firsts += first_of_dead(row)
    return free_window(ctx, options, firsts)


def first_of_dead(row: EntryRow) -> list[int]:
    """The ID that `put` returned for a dead job; none if another client wrote the entry without it."""
    first = ids.parse_or_none(first_id_of_dead(row))
    return [] if first is None else [first]


def forget(ctx: Context, options: Options, dedup_id: bytes) -> list[Effect]:
    """The effects that free an ID, whatever its job does."""
    places = [(options.root, TAKER), (options.later_key, PRODUCER)]
    places += [(lane_key(options.root, priority), PRODUCER) for priority in _LANES]
    effects: list[Effect] = []
    for key, pid in places:
        table = table_at(ctx, key, pid)
        entry = None if table is None else table.lookup(pid, dedup_id, ctx.now)
        if entry is not None:
            effects.append(freed(ctx.db, key, pid, dedup_id, entry))
    return effects
