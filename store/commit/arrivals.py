"""Arrivals: calls that wait until records are applied here, for example those of a leader (store/tokens.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_U64_MAX: Final = (1 << 64) - 1


class Arrival:
    """A call that waits for an LSN.

    told    called once, [lock], by any thread: look again. Must not fail
    """

    __slots__ = ("lsn", "told")

    def __init__(self, lsn: int, told: Callable[[], object]) -> None:
        self.lsn, self.told = lsn, told


class Arrivals:
    """Calls that wait until records are applied here. Any thread; no lock, as in store/acks.py."""

    def __init__(self) -> None:
        self._waiting: dict[Arrival, None] = {}

    def add(self, arrival: Arrival) -> None:
        """A call waits; it looks at the store after this."""
        self._waiting[arrival] = None

    def remove(self, arrival: Arrival) -> None:
        """The call no longer waits."""
        self._waiting.pop(arrival, None)

    def tell(self, last: int = _U64_MAX) -> None:
        """[lock] Records through LSN `last` are applied. Without it: the history has changed, so all calls look."""
        for arrival in list(self._waiting) if self._waiting else ():
            if arrival.lsn <= last and self._waiting.pop(arrival, arrival) is None:
                arrival.told()
