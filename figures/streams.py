"""Streams: figures of a stream and its groups, from a state: under the store's lock, or of a state that rests."""

from __future__ import annotations

from tidelog.engine.api import UNKNOWN, DbKey, Group, State, Stream, lag, reading
from tidelog.engine.ids import MAX
from tidelog.engine.ids import text as id_text
from tidelog.figures.model import ConsumerFigures, GroupFigures, StreamFigures
from tidelog.figures.model import stream_figures as made
from tidelog.figures.names import HELPERS, SCHEDULES, due_ms, has_due_times, is_helper, owner_of
from tidelog.jobs.names import stream_in


def stream_at(state: State, place: DbKey) -> Stream | None:
    """The stream at a key; None if nothing or a string is there. A cold one stays cold."""
    db, key = place
    return stream_in(state.databases[db].keys, key)


def of_stream(place: DbKey, stream: Stream) -> StreamFigures:
    """The figures of a stream."""
    groups = (of_group(place[1], stream, group) for group in stream.groups.values())
    return made(*place, stream.length, stream.entries_added, tuple(groups))


def of_group(
    key: bytes, stream: Stream, group: Group, at_ms: int | None = None, *, resident: bool = False
) -> GroupFigures:
    """The figures of a group.

    at_ms       the present; with it, the figures have the consumers
    resident    read nothing of the checkpoint, and leave out what needs that
    """
    oldest = due = None
    if len(group.pending):
        if not has_due_times(key, group.name):
            oldest = group.pending.oldest()
        elif not resident:
            # Not `oldest`: of a chunk that is cold it tells the last time.
            first = next(group.pending.by_age(0), None)
            due = None if first is None else due_ms(first[0])
    # The lag needs the first entry. If that is unknown, finding it may read a page of the checkpoint.
    cheap = stream.cold is None or stream.first_known is not None or not stream.length
    members = (
        ConsumerFigures(one.name, group.pending.held_by(one.index), max(0, at_ms - one.seen_time))
        for one in (() if at_ms is None else group.listed())
        if at_ms is not None
    )
    return GroupFigures(
        group.name,
        id_text(group.last_id).decode(),
        None if group.entries_read == UNKNOWN else group.entries_read,
        lag(stream, group) if cheap or not resident else None,
        len(group.pending),
        oldest,
        len(group.consumers),
        due,
        tuple(members),
    )


def is_helper_in(state: State, place: DbKey, stream: Stream) -> bool:
    """Whether a stream of a state is one that queues keep for themselves."""
    db, key = place
    if key == SCHEDULES:
        return True
    if not key.endswith(HELPERS):
        return False
    first = next(iter(reading.between(stream, 0, MAX, 1)), None)
    owner = owner_of(key) or b""
    return is_helper(key, None if first is None else first[1], owner in state.databases[db].keys)
