"""The facts of a stream in an RDB image, in the order in which they come."""

from __future__ import annotations

from array import array
from typing import NamedTuple

from tidelog.engine.groups.chunk_rows import Column
from tidelog.engine.rdb.listpack import Node as Node

NEVER = -1
NO_OWNER = 0


class Counters(NamedTuple):
    """The counters of a stream; None where the type does not have them."""

    length: int
    last_id: int
    first_id: int | None
    max_deleted_id: int | None
    entries_added: int | None


class ConsumerFact(NamedTuple):
    """A consumer; times in unix ms. The active time is None where the type does not have it, NEVER if it never was."""

    name: bytes
    seen_time: int
    active_time: int | None


class GroupFact(NamedTuple):
    """A consumer group with its pending entries as columns of equal length, ascending by ID.

    entries_read   None where the type does not have it, -1 if unknown
    wide           the IDs are IDs; otherwise keys of engine.idlist
    owners         1 + place in `consumers`; NO_OWNER for an entry that XNACK released
    nacked         the entries without owner in the order of their release, as in `ids`
    """

    name: bytes
    last_id: int
    entries_read: int | None
    wide: bool
    ids: Column
    times: array[int]
    counts: array[int]
    owners: array[int]
    consumers: list[ConsumerFact]
    nacked: list[int]


class DedupFact(NamedTuple):
    """The dedup tables (spec 5.1.1): producers with their iids, oldest first."""

    duration: int
    maxsize: int
    producers: list[tuple[bytes, list[tuple[bytes, int]]]]
    added: int
    duplicates: int


Fact = Node | Counters | GroupFact | DedupFact
