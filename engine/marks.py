"""Marks: slots of stored nodes that were deleted since, as long as no PAGE row says so."""

from __future__ import annotations

Mark = tuple[int, int]  # ID of the node's first slot, deleted slots


class Marks:
    """Deleted slots of nodes that were handed to a checkpoint: ordinal -> mark. Newer than what the PAGE rows say.

    now      since the last freeze          handed   of the freeze before; never changed in place
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
        """A freeze: what is to be written."""
        self.handed = self.now
        self.now = {}
        return self.handed

    def take_back(self) -> None:
        """What was handed is not written."""
        self.now = {**self.handed, **self.now}
        self.handed = {}

    def cut(self, stop: int) -> None:
        """Forget the nodes from `stop` on: their ordinals will be those of others."""
        self.now = {ordinal: mark for ordinal, mark in self.now.items() if ordinal < stop}
        self.handed = {ordinal: mark for ordinal, mark in self.handed.items() if ordinal < stop}
