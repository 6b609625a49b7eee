"""Latency events: commands that took `latency-monitor-threshold` or longer (LATENCY HISTORY, LATEST, DOCTOR).

There are two events: `command`, and `fast-command` for commands that should never be slow. The latest 160 samples of
each are kept, at most one per second, as in Redis 7.0 (latency.c).
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from tidelog.engine.commands.table import Command

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

    def report(self, slower_than_us: int) -> str:
        """The reply of LATENCY DOCTOR; `slower_than_us`: the threshold of the slow log."""
        if not self.threshold_ms:
            return _DISABLED
        if not self.events:
            return _NOTHING
        lines = [_SEEN]
        for number, (name, event) in enumerate(self.events.items(), 1):
            lines.append(f"{number}. {name.decode()}: {_summary(event)}")
        lines += ["", _ADVICE, ""]
        if slower_than_us < 0:
            lines.append(_NO_SLOW_LOG % (self.threshold_ms * 1000))
        elif slower_than_us > self.threshold_ms * 1000:
            lines.append(_HIGH_SLOW_LOG % (self.threshold_ms * 1000))
        lines += [_SEE_SLOW_LOG, _LARGE]
        return "\n".join(lines) + "\n"


def _summary(event: Event) -> str:
    times, spikes = zip(*event.samples, strict=True)
    count = len(spikes)
    average = sum(spikes) / count
    deviation = sum(abs(ms - average) for ms in spikes) / count
    period = (int(time.time()) - times[0]) / count
    return (
        f"{count} latency spikes (average {average:.0f}ms, mean deviation {deviation:.0f}ms, "
        f"period {period:.2f} sec). Worst all time event {event.max_ms}ms."
    )


_DISABLED = (
    "I'm sorry, Dave, I can't do that. Latency monitoring is disabled in this Redis instance. You may use "
    '"CONFIG SET latency-monitor-threshold <milliseconds>." in order to enable it. If we weren\'t in a deep space '
    "mission I'd suggest to take a look at https://redis.io/topics/latency-monitor.\n"
)
_NOTHING = (
    "Dave, no latency spike was observed during the lifetime of this Redis instance, not in the slightest bit. "
    "I honestly think you ought to sit down calmly, take a stress pill, and think things over.\n"
)
_SEEN = "Dave, I have observed latency spikes in this Redis instance. You don't mind talking about it, do you Dave?\n"
_ADVICE = "I have a few advices for you:"
_NO_SLOW_LOG = (
    "- There are latency issues with potentially slow commands you are using. Try to enable the Slow Log Redis "
    "feature using the command 'CONFIG SET slowlog-log-slower-than %d'. If the Slow log is disabled Redis is not "
    "able to log slow commands execution for you."
)
_HIGH_SLOW_LOG = (
    "- Your current Slow Log configuration only logs events that are slower than your configured latency monitor "
    "threshold. Please use 'CONFIG SET slowlog-log-slower-than %d'."
)
_SEE_SLOW_LOG = (
    "- Check your Slow Log to understand what are the commands you are running which are too slow to execute. "
    "Please check https://redis.io/commands/slowlog for more information."
)
_LARGE = (
    "- Deleting, expiring or evicting (because of maxmemory policy) large objects is a blocking operation. If you "
    "have very large objects that are often deleted, expired, or evicted, try to fragment those objects into "
    "multiple smaller objects."
)
