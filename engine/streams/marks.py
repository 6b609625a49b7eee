"""Marks: deleted slots of stored nodes that the PAGE rows do not have yet."""

from __future__ import annotations

Mark = tuple[int, int]  # ID of the node's first slot, deleted slots


class Marks:
    """Deleted slots of nodes that were handed to a checkpoint: ordinal -> mark. Newer than the PAGE rows.

    now      marks since the last freeze
    handed   marks that the last freeze handed to its checkpoint; the dict is never changed in place
    """

    __slots__ = ("now", "handed")

    def __init__(self) -> None:
        self.now: dict[int, Mark] = {}
        self.handed: dict[int, Mark] = {}

    def mask(self, ordinal: int, stored: int) -> int:
        """The deleted slots of a node whose PAGE row says `stored`."""
        mark = self.now.get(ordinal) or self.handed.get(ordinal)
        return mark[1] if mark is not None else stored

    def hand(self) -> dict[int, Mark]:
        """Freeze: return the marks that the checkpoint has to write."""
        self.handed = self.now
        self.now = {}
        return self.handed

    def take_back(self) -> None:
        """Undo `hand` after its checkpoint failed: the next one writes these marks."""
        self.now = {**self.handed, **self.now}
        self.handed = {}

    def cut(self, stop: int) -> None:
        """Drop the marks of the nodes from `stop` on, since their ordinals will be used again."""
        self.now = {ordinal: mark for ordinal, mark in self.now.items() if ordinal < stop}
        self.handed = {ordinal: mark for ordinal, mark in self.handed.items() if ordinal < stop}
