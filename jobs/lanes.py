"""Lanes: a queue has one stream for each priority that was used. Reads of them, and how jobs get into them.

The lane of priority 0 is the stream of the queue's name; that of priority 3 is `NAME:priority:3`. Each has groups of
its own, with the same names, and a stream `:holds` of its own. They share the queue's other streams.

An ID names a job of one lane: in lane p the sequence numbers begin at p << SEQ_BITS. So a call that is given an ID
knows the lane, and the records of failures, dead jobs and results need no priority. IDs below 2**22 pack well.

                   0        1 << 17           9 << 17           10 << 17     1 << 21
    sequence    |  lane 0  |  lane 1  | ...  |  lane 9  |                   | delayed jobs |

Each group of lane 0 exists in all lanes, so that no job is deleted before all groups have finished it. The call that
creates a lane or a group creates the missing ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from tidelog.engine.api import (
    Alike,
    Context,
    EntryRow,
    Group,
    State,
    Stream,
    decide_xadd_at,
    decide_xadd_many,
)
from tidelog.engine.ids import SEQ_MAX
from tidelog.jobs.options import LANES, PRIORITY_MAX, Options
from tidelog.jobs.streams import depth, find, stream_at
from tidelog.store.commit.batch import land_commands
from tidelog.store.commit.core import Core

SEQ_BITS: Final = 17
HIGHEST_FIRST: Final = tuple(range(PRIORITY_MAX, 0, -1))


class Lane(NamedTuple):
    """A lane that exists. `group` is None if the group is missing there."""

    options: Options
    stream: Stream
    group: Group | None


def lane_key(key: bytes, priority: int) -> bytes:
    """The key of a lane of a queue."""
    return key + LANES[priority - 1].encode() if priority else key


def lane_of(job: int) -> int:
    """The priority of a job, by its ID. 0 for a delayed job, whose lane is not known by its ID."""
    priority = (job & SEQ_MAX) >> SEQ_BITS
    return priority if priority <= PRIORITY_MAX else 0


def next_in_lane(last_id: int, now: int, priority: int, count: int = 1) -> int:
    """The ID of the next entry of a lane with `priority` above 0; that of the first of `count` entries."""
    first = priority << SEQ_BITS
    ms = last_id >> 64
    if now > ms:
        return now << 64 | first
    following = max((last_id & SEQ_MAX) + 1, first)
    if following + count > first + (1 << SEQ_BITS):
        return ms + 1 << 64 | first
    return ms << 64 | following


def lanes_in(state: State, db: int, options: Options) -> list[Lane]:
    """The lanes of a queue that exist, in the order of delivery. Keys of another type count as missing."""
    keys = state.databases[db].keys
    found = []
    for priority in (*HIGHEST_FIRST, 0):
        lane = options.lane(priority)
        stream = keys.get(lane.key)
        if isinstance(stream, Stream):
            found.append(Lane(lane, stream, stream.groups.get(lane.group_key)))
    return found


def depth_of(state: State, db: int, options: Options, priorities: Iterable[int]) -> int:
    """How many jobs of lane 0 and of these lanes are not done."""
    found = depth(*find(state, db, options))
    for priority in priorities:
        found += depth(*find(state, db, options.lane(priority)))
    return found


def totals(state: State, db: int, options: Options) -> tuple[int, int]:
    """(jobs ever put, jobs that are not done) of all lanes."""
    lanes = lanes_in(state, db, options)
    added = sum(lane.stream.entries_added for lane in lanes)
    return added, sum(depth(lane.stream, lane.group) for lane in lanes)


def lane_with(state: State, db: int, options: Options, job: int) -> Options:
    """The lane in whose group a job is pending; the one that its ID names if there is none.

    Another client may have added an entry to a lane with any ID, so all lanes are looked at if the first is not right.
    """
    named = options.lane(lane_of(job))
    lanes = lanes_in(state, db, options)
    for lane in sorted(lanes, key=lambda lane: lane.options.key != named.key):
        if lane.group is not None and lane.group.pending.contains(job):
            return lane.options
    return named


def missing_groups(ctx: Context, key: bytes, lane_key: bytes) -> list[list[bytes]]:
    """The commands that create those groups of a queue that a lane has not got. Raises ResponseError for keys of
    another type.
    """
    queue, stream = stream_at(ctx, key), stream_at(ctx, lane_key)
    if queue is None:
        return []
    known: Collection[bytes] = () if stream is None else stream.groups
    if len(known) >= len(queue.groups) and all(map(known.__contains__, queue.groups)):
        return []  # nearly always
    return [create_group(lane_key, name) for name in queue.groups if name not in known]


def create_group(key: bytes, group: bytes) -> list[bytes]:
    """The command that creates a group, and its stream if that is missing."""
    return [b"XGROUP", b"CREATE", key, group, b"0", b"MKSTREAM"]


def open_lane(core: Core, ctx: Context, options: Options, priority: int) -> None:
    """[lock] Create the groups that a lane has not got, as a unit of its own. `ctx` must have no effects yet."""
    words = missing_groups(ctx, options.key, options.lane(priority).key)
    if words:
        land_commands(core, ctx, words)


def log_into_lane(
    ctx: Context, options: Options, priority: int, some: Sequence[EntryRow] | Alike
) -> int:
    """[lock] Log that jobs are put into the lane of a priority above 0, which was opened. Returns the first ID."""
    lane = options.lane(priority)
    stream = stream_at(ctx, lane.key)
    first = next_in_lane(0 if stream is None else stream.last_id, ctx.now, priority, len(some))
    if len(some) == 1 and not isinstance(some, Alike):
        decide_xadd_at(ctx, lane.key, first, some[0])
    else:
        decide_xadd_many(ctx, lane.key, some, first)
    return first
