"""GROUP rows: a consumer group without its pending entries, as a checkpoint holds it. A msgpack array:

[name, last ID, entries read, consumers, directory]
last ID    16 bytes, big-endian
consumers  [[name, owner number, seen time, active time], ...]
directory  of the pending entries (engine.groups.frozen_pending); their chunks are separate rows (chunk_rows.py)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgpack

from tidelog.engine.groups.frozen_pending import FrozenPending
from tidelog.engine.rowkeys import Operation, group_row

Facts = tuple[Any, ...]  # the fields of a group's row that do not come from its chunks


class GroupRow(NamedTuple):
    """The fields of a GROUP row. consumers: (name, owner number, seen time, active time) of each."""

    name: bytes
    last_id: int
    entries_read: int
    consumers: list[tuple[bytes, int, int, int]]
    directory: Any


def unpack_group(payload: bytes) -> GroupRow:
    """Decode a GROUP row. Raises ValueError, TypeError or an exception of msgpack if the bytes are damaged."""
    name, last_id, entries_read, consumers, directory = msgpack.unpackb(payload)
    return GroupRow(name, int.from_bytes(last_id, "big"), entries_read, consumers, directory)


class FrozenGroup:
    """A copy of a group at a freeze."""

    __slots__ = ("number", "name", "pending", "_facts", "_changed")

    def __init__(self, number: int, facts: Facts, pending: FrozenPending, changed: bool) -> None:
        self.number = number
        self.name: bytes = facts[0]
        self.pending = pending
        self._facts = facts
        # True if the group changed after the previous freeze, or if the checkpoint of that freeze failed.
        self._changed = changed

    def rows(self, stream: int) -> Iterator[Operation]:
        """The operations on the group's rows; none if it did not change. `stream` is the stream's number."""
        if not self._changed:
            return
        yield from self.pending.rows(stream, self.number)
        directory = yield from self.pending.directory()
        name, last_id, entries_read, consumers = self._facts[:4]
        row = (name, last_id.to_bytes(16, "big"), entries_read, consumers, directory)
        yield "put", group_row(stream, self.number), msgpack.packb(row)
