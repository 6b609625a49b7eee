"""A look: what a store or a server holds at one moment, and the sources that give looks.

None is a figure that the source does not know: a directory knows nothing of the writer's memory, and a Redis before 7.0
counts no added entries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

Place = tuple[int, bytes]  # database, key

# the columns by which streams are sorted
SORTS: Final = ("lag", "pending", "added_per_s", "length", "oldest", "key")


class StreamRow(NamedTuple):
    """A stream. `lag` and `pending` are sums over its groups.

    oldest_ms   the time of the oldest delivery that is pending
    due_ms      when the first delayed job, or the next tick of a schedule, is due
    """

    db: int
    key: bytes
    length: int
    added: int | None
    added_per_s: float | None
    groups: int
    lag: int | None
    pending: int
    oldest_ms: int | None
    due_ms: int | None = None

    @property
    def place(self) -> Place:
        return self.db, self.key


class ConsumerRow(NamedTuple):
    """A consumer of a group."""

    name: bytes
    pending: int
    idle_ms: int | None


class GroupRow(NamedTuple):
    """A group of a stream; `oldest_ms` and `due_ms` as of a StreamRow."""

    name: bytes
    last_id: str
    read: int | None
    read_per_s: float | None
    lag: int | None
    pending: int
    oldest_ms: int | None
    consumers: list[ConsumerRow]
    due_ms: int | None = None


class QueueRow(NamedTuple):
    """A queue, for one of its groups."""

    db: int
    key: bytes
    group: bytes
    depth: int
    waiting: int
    in_flight: int
    paused: int
    dead: int
    oldest_ms: int | None


class EntryRow(NamedTuple):
    """An entry of a stream."""

    entry_id: str
    fields: Sequence[bytes]


class Look(NamedTuple):
    """One moment.

    at_ms    unix ms
    facts    about log, checkpoint and process, by name
    streams  every stream, in no order
    """

    at_ms: int
    facts: dict[str, Any]
    streams: list[StreamRow]


class Source(Protocol):
    """Gives looks. Only one thread calls it at a time."""

    @property
    def title(self) -> str:
        """The name of the place, for people."""

    def look(self, shown: Sequence[Place]) -> Look:
        """The present state; shown streams come first if not all can be asked. Raises the source's errors."""

    def groups(self, place: Place) -> list[GroupRow]:
        """The groups of a stream; none if it is gone."""

    def queues(self) -> list[QueueRow]:
        """Every queue."""

    def entries(self, place: Place, count: int) -> list[EntryRow]:
        """The newest entries of a stream, the newest first."""

    def why(self, place: Place, entry_id: str) -> str:
        """The life of an entry, or why it cannot be told."""

    def close(self) -> None:
        """Give back files and connections."""


def ranked(streams: list[StreamRow], sort: str, *, reverse: bool, wanted: str) -> list[StreamRow]:
    """The streams whose key contains `wanted`, in the order of a column: the most urgent first, keys from A to Z."""
    part = wanted.encode("utf-8", "surrogateescape")
    found = [row for row in streams if part in row.key] if part else list(streams)
    if sort == "key":
        return sorted(found, key=lambda row: row[:2], reverse=reverse)
    found.sort(key=lambda row: row[:2])  # equal figures stay in the order of the keys
    if sort == "oldest":
        found.sort(key=lambda row: _NEVER if row.oldest_ms is None else row.oldest_ms)
    else:
        figures: dict[str, Callable[[StreamRow], float | None]] = {
            "lag": lambda row: row.lag,
            "pending": lambda row: row.pending,
            "added_per_s": lambda row: row.added_per_s,
            "length": lambda row: row.length,
        }
        of = figures[sort]
        found.sort(key=lambda row: -1 if (figure := of(row)) is None else figure, reverse=True)
    return found[::-1] if reverse else found


_NEVER: Final = 1 << 64


class Rates:
    """Differences of counters between looks, each second."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[int, int]] = {}  # name -> (count, unix ms)

    def of(self, name: Any, count: int | None, at_ms: int) -> float | None:
        """The rate since the previous look; None at the first, or if the counter fell."""
        if count is None:
            return None
        before = self._known.get(name)
        self._known[name] = count, at_ms
        if before is None or at_ms <= before[1] or count < before[0]:
            return None
        return (count - before[0]) * 1000 / (at_ms - before[1])

    def keep(self, names: set[Any]) -> None:
        """Forget all other names."""
        if len(self._known) > 2 * len(names) + 100:
            self._known = {name: self._known[name] for name in names if name in self._known}
