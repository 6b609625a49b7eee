"""entries-read and lag of a group: how much of a stream it has read, counted or estimated (spec 9).

Counting is exact as long as no entry in between is deleted. Without counting, a position can be computed only at the
ends of the stream, or where no deleted entry can precede it. Otherwise the result is UNKNOWN.
"""

from __future__ import annotations

from tidelog.engine.groups.group import UNKNOWN, Group
from tidelog.engine.streams.entries import Entries
from tidelog.engine.streams.stream import Stream


def estimate(stream: Stream, entry_id: int) -> int:
    """The number of entries ever added up to and including this ID, or UNKNOWN."""
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
    """entries-read after a group at (last_id, entries_read) gets these entries, the next ones after `last_id`."""
    first, count = delivered.first_id(), len(delivered)
    entries_read = read_one(stream, last_id, entries_read, first)
    if entries_read != UNKNOWN:
        # No entry after `first` was deleted, so each of the other delivered entries adds one to `entries_read`.
        return entries_read + count - 1
    last_id = first
    for at, entry_id in enumerate(delivered.ids()[1:], 2):
        entries_read = read_one(stream, last_id, UNKNOWN, entry_id)
        if entries_read != UNKNOWN:
            return entries_read + count - at
        last_id = entry_id
    return UNKNOWN


def read_one(stream: Stream, last_id: int, entries_read: int, entry_id: int) -> int:
    """entries-read after a group at (last_id, entries_read) gets the first live entry after `last_id`."""
    if entry_id == stream.first_id():
        if entry_id > stream.max_deleted_id:
            return stream.entries_added - stream.length + 1  # as `estimate`
    elif entries_read != UNKNOWN and last_id > stream.max_deleted_id:
        return entries_read + 1
    return estimate(stream, entry_id)


def read_one_before_7_4(stream: Stream, entries_read: int, entry_id: int) -> int:
    """entries-read as a Redis before 7.4 counts it when it delivers a live entry.

    It asks whether a deleted entry may lie behind the delivered one, not behind the position before, so an entry that
    was deleted in between is not counted. And while the first entry lies behind all deleted ones, it counts on.
    """
    added, first = stream.entries_added, stream.first_id()
    none_deleted = not stream.max_deleted_id or stream.max_deleted_id < first
    if entries_read != UNKNOWN and (none_deleted or entry_id > stream.max_deleted_id):
        return entries_read + 1
    if entry_id == stream.last_id:
        return added
    if none_deleted and entry_id == first:
        return added - stream.length + 1
    return UNKNOWN


def lag(stream: Stream, group: Group) -> int | None:
    """The number of entries that the group has not read yet, or None if it is unknown."""
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
    """Whether a deleted entry may lie at or after this ID."""
    return stream.length > 0 and 0 < stream.max_deleted_id and entry_id <= stream.max_deleted_id
