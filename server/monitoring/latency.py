"""Latency events: commands that took `latency-monitor-threshold` or longer (LATENCY HISTORY, LATEST).

There are two events: `command`, and `fast-command` for commands that should never be slow. The latest 160 samples of
each are kept, at most one per second, as in Redis 7.0 (latency.c).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from tidelog.engine.api import Command

SAMPLES_MAX: Final = 160


class Event:
    """Samples of one event: (unix seconds, milliseconds), oldest first. `max_ms`: the all-time maximum."""

    __slots__ = ("samples", "max_ms")

    def __init__(self) -> None:
        self.samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES_MAX)
        self.max_ms = 0

    def add(self, at: int, ms: int) -> None:
        """Add a sample. Only the longest of each second is kept."""
        self.max_ms = max(self.max_ms, ms)
        if self.samples and self.samples[-1][0] == at:
            ms = max(ms, self.samples.pop()[1])
        self.samples.append((at, ms))


class Latency:
    """All events. A command that takes `threshold_ms` or longer is an event; 0 = off."""

    __slots__ = ("threshold_ms", "events")

    def __init__(self) -> None:
        self.threshold_ms = 0
        self.events: dict[bytes, Event] = {}

    def command(self, command: Command, ns: int) -> None:
        """Record a command that took `ns` nanoseconds, if it reaches the threshold."""
        ms = ns // 1_000_000
        if not 0 < self.threshold_ms <= ms:
            return
        name = b"fast-command" if "fast" in command.flags else b"command"
        event = self.events.setdefault(name, Event())
        event.add(int(time.time()), ms)

    def reset(self, names: list[bytes]) -> int:
        """Remove the named events, or all if none is named. Return how many existed."""
        found = [name for name in names or list(self.events) if name in self.events]
        return sum(self.events.pop(name, None) is not None for name in found)
