"""Which queues a store holds, and which streams belong to them by their names.

Streams are not marked as queues. A stream counts as one if its first entry has the form of a job, if it is empty and
has a group, or if a helper stream or a lane of a queue stands beside it. A queue that was only put to, for later or
with a priority, has no stream of its own yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from tidelog.engine.api import Keyspace, State, Stream, reading, resident
from tidelog.engine.ids import MAX
from tidelog.jobs.options import LANES as LANE_NAMES
from tidelog.jobs.options import SCHEDULES, SUFFIXES
from tidelog.jobs.rows import VALUE, shown
from tidelog.store.commit.core import Answer, Core

HOLDS, FAILURES, DEAD, LATER, CANCELS = NOTES = tuple(suffix.encode() for suffix in SUFFIXES)
LANES: Final = tuple(lane.encode() for lane in LANE_NAMES)
HELPERS: Final = (*NOTES, *LANES)
USUAL: Final = "workers"  # the group of a queue that no worker has opened yet
_LANE: Final = re.compile(rb":priority:[1-9]\Z")
_RANKS: Final = tuple(enumerate(LANES, 1))[::-1]  # in the order of delivery
# the priority of a stream that holds jobs which are due, its key, and the stream
Jobs = tuple[int, bytes, Stream]


def is_lane(key: bytes) -> bool:
    """Whether a key is that of the jobs of one priority."""
    return _LANE.search(key) is not None


def queue_of(key: bytes) -> bytes:
    """The key of the queue to which a lane belongs; any other key as it is."""
    return _LANE.sub(b"", key)


def owner_of(key: bytes) -> bytes | None:
    """The key of the queue that a helper stream would belong to, by its name; None for a name of no helper."""
    if not key.endswith(HELPERS):
        return None
    for suffix in NOTES:
        if key.endswith(suffix):
            return queue_of(key.removesuffix(suffix))
    return queue_of(key)


def is_job(row: Sequence[bytes]) -> bool:
    """Whether a row is that of a job."""
    return bool(row) and row[0] == VALUE


def has_jobs(stream: Stream) -> bool:
    """Whether the first entry has the form of a job."""
    first = next(iter(reading.between(stream, 0, MAX, 1)), None)
    return first is not None and first[1] is not None and is_job(first[1])


def stream_in(keys: Keyspace, key: bytes) -> Stream | None:
    """The stream at a key; None if nothing or a string is there. A cold one stays cold."""
    value = resident(keys, key)
    if value is None and key in keys and not keys.is_string(key):
        value, _ = keys.look(key)
    return value if isinstance(value, Stream) else None


def job_streams(
    keys: Keyspace,
    key: bytes,
    beside: Collection[bytes] | None = None,
    *,
    drained: bool = True,
) -> list[Jobs] | None:
    """The streams with the due jobs of the queue at a key, those of the highest priority first; None if it is no queue.

    beside     the streams with names of its helpers, if the caller knows them
    drained    whether an empty stream with a group is a queue: all of its jobs may be done
    """
    if beside is None:
        beside = [each for each in (key + suffix for suffix in HELPERS) if stream_in(keys, each)]
    found: list[Jobs] = []
    for rank, suffix in _RANKS if beside else ():
        lane = stream_in(keys, key + suffix) if key + suffix in beside else None
        # A lane counts if it has jobs or nothing.
        if lane is not None and (has_jobs(lane) or not lane.length):
            found.append((rank, key + suffix, lane))
    stream = stream_in(keys, key)
    if stream is not None:
        noted = any(key + suffix in beside for suffix in NOTES)
        empty = drained and not stream.length and stream.groups
        if found or noted or empty or has_jobs(stream):
            return [*found, (0, key, stream)]
        return None
    later = stream_in(keys, key + LATER) if key + LATER in beside else None
    return found if found or later is not None and has_jobs(later) else None


def queues(
    keys: Keyspace, sees: Callable[[bytes], bool] = bool
) -> Iterator[tuple[bytes, list[Jobs]]]:
    """Each queue of a database with the streams of its due jobs, in no order. `sees`: the names to look at.

    Walks all keys, and then looks at each stream that may be a queue once. Cold ones stay cold.
    """
    beside: dict[bytes, list[bytes]] = {}
    for key in keys:
        if key != SCHEDULES and not keys.is_string(key):
            owner = owner_of(key)
            if owner is None:
                beside.setdefault(key, [])
            else:
                beside.setdefault(owner, []).append(key)
    for name, helpers in beside.items():
        if sees(name) and not name.endswith(HELPERS):
            found = job_streams(keys, name, helpers)
            if found is not None:
                yield name, found


def groups_of(streams: Sequence[Jobs]) -> list[bytes]:
    """The groups of the workers of a queue, by name."""
    return sorted({name for _, _, stream in streams for name in stream.groups})


def queue_names(core: Core, db: int) -> Answer:
    """(name, group) of every queue, by name, with the promise for the reply. Leaves out names that are not UTF-8."""
    return core.look(lambda state: _names(state, db))


def _names(state: State, db: int) -> list[tuple[str, str]]:
    return sorted(
        (shown(key), shown(group))
        for key, streams in queues(state.databases[db].keys)
        if shown(key).encode() == key
        for group in groups_of(streams) or [USUAL.encode()]
    )
