"""A look: what a store or a server holds at one moment, and the sources that give looks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from tidelog.engine.api import DbKey
from tidelog.figures.model import GroupFigures, QueueFigures, StreamFigures

# the columns by which streams are sorted
SORTS: Final = ("lag", "pending", "added_per_s", "length", "oldest", "key")


class EntryRow(NamedTuple):
    """An entry of a stream."""

    entry_id: str
    fields: Sequence[bytes]


class Look(NamedTuple):
    """One moment.

    at_ms    unix ms
    facts    about log, checkpoint and process, by name
    streams  every stream but the queues' helpers, unless these are asked for; in no order
    """

    at_ms: int
    facts: dict[str, Any]
    streams: list[StreamFigures]


class Source(Protocol):
    """Gives looks. Only one thread calls it at a time."""

    @property
    def title(self) -> str:
        """The name of the place, for people."""

    def look(self, shown: Sequence[DbKey]) -> Look:
        """The present state; shown streams come first if not all can be asked. Raises the source's errors."""

    def groups(self, place: DbKey) -> list[GroupFigures]:
        """The groups of a stream; none if it is gone."""

    def queues(self) -> list[QueueFigures]:
        """Every queue."""

    def entries(self, place: DbKey, count: int) -> list[EntryRow]:
        """The newest entries of a stream, the newest first."""

    def why(self, place: DbKey, entry_id: str) -> str:
        """The life of an entry, or why it cannot be told."""

    def close(self) -> None:
        """Give back files and connections."""


def ranked(
    streams: list[StreamFigures], sort: str, *, reverse: bool, wanted: str
) -> list[StreamFigures]:
    """The streams whose key contains `wanted`, in the order of a column: the most urgent first, keys from A to Z."""
    part = wanted.encode("utf-8", "surrogateescape")
    found = [row for row in streams if part in row.key] if part else list(streams)
    if sort == "key":
        return sorted(found, key=_by_key, reverse=reverse)
    found.sort(key=_by_key)  # equal figures stay in the order of the keys
    if sort == "oldest":
        found.sort(key=lambda row: _NEVER if row.oldest_ms is None else row.oldest_ms)
    else:
        figures: dict[str, Callable[[StreamFigures], float | None]] = {
            "lag": lambda row: row.lag,
            "pending": lambda row: row.pending,
            "added_per_s": lambda row: row.added_per_s,
            "length": lambda row: row.length,
        }
        of = figures[sort]
        found.sort(key=lambda row: -1 if (figure := of(row)) is None else figure, reverse=True)
    return found[::-1] if reverse else found


_NEVER: Final = 1 << 64


def _by_key(row: StreamFigures) -> DbKey:
    return row.place


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
