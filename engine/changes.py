"""Changes: what a checkpoint has to write, noted down while effects are applied.

A *generation* is the time between two freezes. A stream that changed in the present one has its `mark` equal to
`generation` and stands in `streams`; a key that changed stands in its `Table`. A freeze takes these sets away and
begins the next generation; while the frozen sets are being written, whatever they have not copied yet is copied before
it changes again.

None of this is state: no effect depends on it, and two equal states may have noted different things.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.engine.cold import ColdStore
    from tidelog.engine.freeze import Frozen
    from tidelog.engine.frozen_keys import FrozenTable
    from tidelog.engine.stream import Stream


class Changes:
    """What changed since the last freeze. One per state.

    cold            the checkpoint that rows not in memory are read from; None: there is none
    generation      of now; the first is 1
    committed       the newest generation that a checkpoint holds
    streams         streams that changed, by number
    ended           numbers of streams that went and whose rows a checkpoint may hold
    tables_ended    tables that were flushed, each with the keys whose KEY row no longer spoke for them
    frozen          the checkpoint in flight
    """

    __slots__ = ("cold", "generation", "committed", "streams", "ended", "tables_ended", "frozen")

    def __init__(self, cold: ColdStore | None = None) -> None:
        self.cold = cold
        self.generation = 1
        self.committed = 0
        self.streams: dict[int, Stream] = {}
        self.ended: list[int] = []
        self.tables_ended: list[tuple[int, Collection[bytes]]] = []
        self.frozen: Frozen | None = None

    def touch(self, stream: Stream) -> None:
        """A stream is about to change, the first time in this generation (its mark is another)."""
        frozen = self.frozen
        if frozen is not None and stream.mark == frozen.generation:
            frozen.take(stream)
        self.streams[stream.number] = stream
        stream.mark = self.generation

    def end(self, stream: Stream) -> None:
        """A stream goes. It never changes again, so a checkpoint in flight may still copy it."""
        self.streams.pop(stream.number, None)
        frozen = self.frozen
        if stream.handed_gen > 0 or (frozen is not None and stream.mark == frozen.generation):
            self.ended.append(stream.number)

    def end_stored(self, number: int) -> None:
        """A stream goes that is in a checkpoint only: it cannot be read."""
        self.ended.append(number)

    def changed(self, stream: Stream) -> bool:
        """Whether a stream is other than the checkpoint has it."""
        frozen = self.frozen
        return stream.mark == self.generation or (
            frozen is not None and stream.mark == frozen.generation
        )


class Table:
    """Which keys of one table changed. A *table* is a database's keys under a number that is never used again.

    number      what SWAPDB leaves as it is, and FLUSHDB replaces
    changed     keys that changed since the last freeze. The KEY row of any other key is the truth about it
    frozen      keys that changed before, and that the checkpoint in flight is about to write; empty without one
    keeper      that checkpoint's copy of them
    """

    __slots__ = ("number", "changes", "changed", "frozen", "keeper")

    def __init__(self, number: int = 0, changes: Changes | None = None) -> None:
        self.number = number
        self.changes = Changes() if changes is None else changes
        self.changed: dict[bytes, None] = {}
        self.frozen: dict[bytes, None] = {}
        self.keeper: FrozenTable | None = None

    def stored(self, key: bytes) -> bool:
        """Whether what the checkpoint has of a key, be it nothing, is the truth about it."""
        return key not in self.changed and key not in self.frozen

    def change(self, key: bytes) -> None:
        """A key is about to change: what it holds, when it expires, or whether it is there."""
        if self.keeper is not None and key not in self.changed:
            self.keeper.keep(key)
        self.changed[key] = None
