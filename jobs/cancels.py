"""Cancels: where the cancel of a running job is announced to those who run it.

Each process that hands out jobs has one: that of an open store (`Leases.cancels`), and the keeper of a shared one. A
delivery is named by a key: the queue and group, the job, and the number of its delivery.

    announced by    the cancel itself, in the process that has the store open
                    the keeper of a shared store, when a renewal or a settling shows that the job is gone
    listened to by  `Job.cancelled`; `Job.on_cancel`; the block of a job in a task, which the cancel ends

All methods may be called in any thread. A call is made once, in the thread that announces the cancel, so it is short.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Any, Final, Protocol

TOLD_MAX: Final = 10_000  # the newest cancelled deliveries that are remembered
Call = Callable[[], object]
# Ends the block of a job: the blocks by job, the job, and who is in its block
EndBlock = Callable[[dict[int, Any], int, Any], None]

log = logging.getLogger("tidelog.queue")


class LaneGroup(Protocol):
    """A lane and group of a queue of an open store. See `Known`."""

    place: tuple[int, bytes]
    group_key: bytes


def delivery_key(lane: LaneGroup, job: int, count: int) -> Hashable:
    """The name of a delivery of an open store."""
    return lane.place, lane.group_key, job, count


class Cancels:
    """The deliveries of a process that were cancelled, and the calls of those who listen.

    told    these deliveries, the oldest first
    """

    __slots__ = ("told", "_calls")

    def __init__(self) -> None:
        self.told: dict[Hashable, None] = {}
        self._calls: dict[tuple[Hashable, object], Call] = {}

    def announce(self, key: Hashable) -> None:
        """A delivery was cancelled: make the calls of those who listen. Twice does no harm."""
        self.told[key] = None
        if len(self.told) > TOLD_MAX:
            self.told.pop(next(iter(self.told), None), None)
        for place in [place for place in list(self._calls) if place[0] == key]:
            self._make(place)

    def listen(self, key: Hashable, who: object, call: Call) -> None:
        """Make a call when a delivery is cancelled, at once if it was. A listener has one call for a delivery."""
        place = key, who
        self._calls[place] = call
        if key in self.told:  # in this order: the cancel may come between
            self._make(place)

    def leave(self, key: Hashable, who: object) -> None:
        """A listener does not listen any more. A call may be under way."""
        self._calls.pop((key, who), None)

    def _make(self, place: tuple[Hashable, object]) -> None:
        call = self._calls.pop(place, None)
        if call is None:  # another thread makes it, or the listener has left
            return
        try:
            call()
        except Exception:
            log.exception("a call of on_cancel raised")
