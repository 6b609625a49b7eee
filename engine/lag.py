"""entries-read and lag of a group: how much of a stream it has read, counted or reckoned (spec 9).

Counting is exact as long as nothing is deleted in between. A position can be reckoned without counting only at
the ends of the stream, or where no tombstone can lie before it; elsewhere the answer is UNKNOWN.
"""

from __future__ import annotations

from tidelog.engine.entries import Entries
from tidelog.engine.group import UNKNOWN, Group
from tidelog.engine.stream import Stream


def estimate(stream: Stream, entry_id: int) -> int:
    """How many entries were ever added up to and including this ID, or UNKNOWN."""
    added = stream.entries_added
    if not added:
        return 0
    if not stream.length and entry_id <= stream.last_id:
        return added
    if entry_id and entry_id < stream.max_deleted_id:
        return UNKNOWN
    if entry_id == stream.last_id:
        return added
    if entry_id > stream.last_id:
        return UNKNOWN
    first = stream.first_id()
    if not stream.max_deleted_id or stream.max_deleted_id < first:
        if entry_id < first:
            return added - stream.length
        if entry_id == first:
            return added - stream.length + 1
    return UNKNOWN


def read_on(stream: Stream, last_id: int, entries_read: int, delivered: Entries) -> int:
    """entries-read after a group at this position was delivered entries, which come after `last_id`."""
    first = stream.first_id()
    tombstone = stream.max_deleted_id if stream.length else 0
    if entries_read != UNKNOWN and last_id >= first and (not tombstone or last_id > tombstone):
        return entries_read + len(delivered)
    ids = delivered.ids()
    for at, entry_id in enumerate(ids):
        counts = last_id >= first and (not tombstone or last_id > tombstone)
        if counts and entries_read != UNKNOWN:
            return entries_read + len(ids) - at  # from here on every step counts one: IDs only grow
        if stream.entries_added:
            entries_read = estimate(stream, entry_id)
        last_id = entry_id
    return entries_read


def lag(stream: Stream, group: Group) -> int | None:
    """How many entries the group has still to read, or None if that cannot be told."""
    added = stream.entries_added
    if not added or not stream.length:
        return 0
    if group.last_id < stream.first_id() and stream.max_deleted_id < stream.first_id():
        return stream.length
    if group.entries_read != UNKNOWN and not _tombstone_after(stream, group.last_id):
        return added - group.entries_read
    read = estimate(stream, group.last_id)
    return None if read == UNKNOWN else added - read


def _tombstone_after(stream: Stream, entry_id: int) -> bool:
    """Whether a deleted entry could lie at or after this ID."""
    return stream.length > 0 and 0 < stream.max_deleted_id and entry_id <= stream.max_deleted_id
