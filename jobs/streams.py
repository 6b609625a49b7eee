"""Reads of a queue's streams: which jobs there are, and which worker holds which. Under the store's lock."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.engine.api import Context, Group, State, Stream, lag, reading
from tidelog.engine.errors import CorruptBlock
from tidelog.engine.ids import MAX, SEQ_MAX
from tidelog.jobs.options import PRIORITY_MAX, Options
from tidelog.jobs.rows import shown
from tidelog.store.errors import ResponseError


def stream_at(ctx: Context, key: bytes) -> Stream | None:
    """The stream at a key, None if missing. Raises ResponseError, which names the key, for another type."""
    value = ctx.lookup(key)
    if value is None or isinstance(value, Stream):
        return value
    raise wrong_type(key)


def lost_of(ctx: Context, options: Options) -> list[bytes]:
    """Which of the streams that a purge changes cannot be read because the checkpoint is damaged."""
    keys = ctx.database.keys
    lost = []
    lanes = [options.lane(priority) for priority in range(PRIORITY_MAX + 1)]
    streams = [key for lane in lanes for key in (lane.key, lane.holds_key)]
    for key in (*streams, options.later_key):
        try:
            keys.get(key)
        except CorruptBlock:
            if not keys.lose(key):
                raise
            lost.append(key)
    return lost


def wrong_type(key: bytes, wanted: str = "stream") -> ResponseError:
    """The error for a key that should hold one of a queue's streams, or strings, but holds another type."""
    return ResponseError(
        f"WRONGTYPE the queue needs a {wanted} at key {shown(key)!r}, but another type is there; "
        "rename or delete that key",
        "WRONGTYPE",
    )


def find(state: State, db: int, options: Options) -> tuple[Stream | None, Group | None]:
    """The stream and group of a queue, None where missing. A key of another type counts as missing."""
    value = state.databases[db].keys.get(options.key)
    stream = value if isinstance(value, Stream) else None
    return stream, None if stream is None else stream.groups.get(options.group_key)


def waiting(stream: Stream | None, group: Group | None) -> int:
    """How many jobs were never delivered."""
    if stream is None:
        return 0
    if group is None:
        return stream.length
    if not stream.length or stream.last_live_id() <= group.last_id:
        return 0
    counted = lag(stream, group)
    if counted is None:  # an undelivered entry was deleted, so the lag is unknown
        return len(reading.between(stream, group.last_id + 1, MAX))
    return counted


def depth(stream: Stream | None, group: Group | None) -> int:
    """How many jobs are not done: waiting, in flight or paused."""
    return waiting(stream, group) + (0 if group is None else len(group.pending))


def counted(stream: Stream, group: Group | None) -> tuple[int, int, int, int]:
    """The jobs of a lane, for one group. `group` is None if it is missing there.

    How many were never delivered; how many are pending; how many of these nobody holds, since they are paused or their
    pause is over; and the ID of the oldest that is not done, MAX if all are.
    """
    new, pending = waiting(stream, group), None if group is None else group.pending
    oldest = [MAX]
    if new:
        behind = 0 if group is None else group.last_id + 1
        oldest += reading.between(stream, behind, MAX, 1).ids()
    if not pending:
        return new, 0, 0, min(oldest)
    return new, len(pending), pending.nacked(), min(*oldest, pending.first())


def needed_from(stream: Stream) -> int:
    """The smallest ID that some group still needs. All smaller ones are acknowledged in every group."""
    return min(
        (
            min(group.pending.first(), group.last_id + 1)
            if len(group.pending)
            else group.last_id + 1
            for group in stream.groups.values()
        ),
        default=0,
    )


def is_needed(stream: Stream, job: int) -> bool:
    """Whether some group, or one to come, has not finished a job of the stream."""
    groups = stream.groups.values()
    return not groups or any(job > group.last_id or group.pending.contains(job) for group in groups)


def holds(group: Group, worker: bytes, job: int, count: int) -> bool:
    """Whether a job is pending for a worker with that number of deliveries."""
    row = group.pending.get(job)
    if row is None or row[2] != count:
        return False
    consumer = group.consumers.get(worker)
    return consumer is not None and consumer.index == row[1]


def among_held(group: Group, worker: bytes, jobs: Iterable[tuple[int, int]]) -> list[int]:
    """Those of the (job, deliveries) pairs that this worker still holds."""
    return [job for job, count in jobs if holds(group, worker, job, count)]


def many(first: tuple[int, int, int]) -> range:
    """The IDs of rows that were added together."""
    ms, seq, count = first
    assert seq + count - 1 <= SEQ_MAX
    return range(ms << 64 | seq, (ms << 64 | seq) + count)
