"""Changes: the streams and keys that the next checkpoint has to write, recorded while effects are applied.

A *generation* is the time between two freezes. A stream that changed in the current one has a `mark` equal to
`generation` and is in `streams`; a key that changed is in its `Table`. A freeze takes these sets and begins the next
generation. While the checkpoint writes the frozen sets, a member that is not copied yet is copied before it changes.

None of this is state: no effect depends on it, and it may differ between equal states.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tidelog.engine.cold import ColdStore
from tidelog.engine.streams.stream import Stream


class FrozenStreams(Protocol):
    """The streams of a checkpoint in flight (engine.keys.freeze), as this module sees them.

    generation  the generation whose changes the checkpoint writes
    """

    generation: int

    def take(self, stream: Stream) -> None:
        """Copy a stream that is about to change, unless it is copied already."""


class FrozenNames(Protocol):
    """The keys of one table in a checkpoint in flight (engine.keys.frozen_keys), as this module sees them."""

    def keep(self, key: bytes) -> None:
        """Copy a key that is about to change, unless it is copied already."""


class Changes:
    """The changes since the last freeze. One per state.

    cold            the checkpoint from which rows are read that are not in memory, or None
    generation      the current generation; the first is 1
    committed       the newest generation that a checkpoint holds
    streams         streams that changed, by number
    ended           numbers of deleted streams whose rows a checkpoint may hold
    tables_ended    flushed tables: (number, the keys whose KEY rows were stale)
    frozen          the checkpoint in flight, or None
    flushed         keys that flushes took out of memory, since the store has given memory back to the system
    """

    __slots__ = (
        "cold",
        "generation",
        "committed",
        "streams",
        "ended",
        "tables_ended",
        "frozen",
        "flushed",
    )

    def __init__(self, cold: ColdStore | None = None) -> None:
        self.cold = cold
        self.generation = 1
        self.committed = 0
        self.streams: dict[int, Stream] = {}
        self.ended: list[int] = []
        self.tables_ended: list[tuple[int, Collection[bytes]]] = []
        self.frozen: FrozenStreams | None = None
        self.flushed = 0

    def touch(self, stream: Stream) -> None:
        """Record that a stream is about to change for the first time in this generation (its mark differs)."""
        frozen = self.frozen
        if frozen is not None and stream.mark == frozen.generation:
            frozen.take(stream)
        self.streams[stream.number] = stream
        stream.mark = self.generation

    def end(self, stream: Stream) -> None:
        """Record that a stream is deleted. It never changes again, so a checkpoint in flight may still copy it."""
        self.streams.pop(stream.number, None)
        frozen = self.frozen
        if stream.handed_gen > 0 or (frozen is not None and stream.mark == frozen.generation):
            self.ended.append(stream.number)

    def end_stored(self, number: int) -> None:
        """Record that a stream is deleted that exists only in a checkpoint, since it cannot be read."""
        self.ended.append(number)

    def changed(self, stream: Stream) -> bool:
        """Whether a stream may differ from the committed checkpoint."""
        frozen = self.frozen
        return stream.mark == self.generation or (
            frozen is not None and stream.mark == frozen.generation
        )


class Table:
    """The changed keys of one table. A *table* is the keys of a database under a number that is never reused.

    number      SWAPDB keeps it with the keys; FLUSHDB starts a table with a new one
    changed     keys that changed since the last freeze
    frozen      keys that changed before it, which the checkpoint in flight is about to write; else empty
    keeper      that checkpoint's copies of them, or None

    The KEY row of a key in neither set is valid.
    """

    __slots__ = ("number", "changes", "changed", "frozen", "keeper")

    def __init__(self, number: int = 0, changes: Changes | None = None) -> None:
        self.number = number
        self.changes = Changes() if changes is None else changes
        self.changed: dict[bytes, None] = {}
        self.frozen: dict[bytes, None] = {}
        self.keeper: FrozenNames | None = None

    def stored(self, key: bytes) -> bool:
        """Whether the checkpoint is valid for a key: its KEY row, or the absence of one, is the current state."""
        return key not in self.changed and key not in self.frozen

    def change(self, key: bytes) -> None:
        """Record that a key is about to change: its value, its expiry, or its existence."""
        if self.keeper is not None and key not in self.changed:
            self.keeper.keep(key)
        self.changed[key] = None
