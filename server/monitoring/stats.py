"""Stats: the server's counters: calls and their times by command, errors by code, totals, and rates.

`call` runs for every command, so it only records the time. `_count` adds up the recorded times in bulk, at the speed of
C, at each `sample` and when a client asks. Only the event loop's thread uses all this, except for the rows, which a
scrape of the metrics reads as of the last `_count`, at most about a tenth of a second old.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from itertools import repeat
from operator import rshift
from typing import Any, Final, NamedTuple, Protocol

from tidelog.engine.api import Command
from tidelog.server.monitoring.calls import (
    FAILED,
    NS,
    REJECTED,
    STEP_BITS,
    Calls,
    Histogram,
    new_histogram,
    place,
)
from tidelog.server.monitoring.latency import Latency
from tidelog.server.monitoring.process import measure
from tidelog.server.monitoring.slowlog import SlowLog

ERRORS_MAX: Final = 128  # as Redis: invented codes must not fill memory
ERRORS_DISABLED: Final = b"ERRORSTATS_DISABLED"
# As in Redis, rates are computed over the last 16 samples, taken a tenth of a second apart.
SAMPLES: Final = 16
SAMPLE_GAP_S: Final = 1.0  # after a longer gap between two samples, the older ones are dropped
NEVER_NS: Final = 1 << 62


class Options(Protocol):
    """The configuration, as far as `Stats.configure` reads it."""

    def __getitem__(self, name: str, /) -> Any: ...


class Sample(NamedTuple):
    """Totals at a time `now` of the monotonic clock, in seconds."""

    now: float
    commands: int
    net_input_bytes: int
    net_output_bytes: int


class Rates(NamedTuple):
    """Rates per second over the samples."""

    commands: float = 0.0
    net_input_bytes: float = 0.0
    net_output_bytes: float = 0.0


class Stats:
    """Counters of one server since it was started, or since CONFIG RESETSTAT.

    spent                 by command, nanoseconds of calls that `_count` has not added up yet
    by_error              code ("NOGROUP") -> number of error replies
    slowlog, latency      slow commands and events; see there
    slow_ns               pass a command that took this long to `slow`; NEVER_NS: none
    net_input_bytes       received from clients
    net_output_bytes      sent to clients
    connections_received  all connections
    rejected_connections  refused connections: `maxclients`, protected mode
    error_replies         all error replies
    delayed_fsyncs        how often the everysec fsync was late, as observed by `sample`
    startup_bytes         memory that the process had allocated when the server started
    """

    def __init__(self, config: Options) -> None:
        self._config = config
        self.slowlog = SlowLog()
        self.latency = Latency()
        self.slow_ns = NEVER_NS
        self.startup_bytes = measure().used
        self._late = False
        self.configure()
        self.reset()

    def reset(self) -> None:
        """CONFIG RESETSTAT. The slow log and the latency events stay."""
        self._rows: dict[bytes, Histogram] = {}
        self._ran = 0  # calls counted in the rows
        self.spent: defaultdict[bytes, list[int]] = defaultdict(list)  # not counted in the rows yet
        self.by_error: dict[bytes, int] = {}
        self.errors_told_apart = True
        self.error_replies = 0
        self.delayed_fsyncs = 0
        self.connections_received = self.rejected_connections = 0
        self.net_input_bytes = self.net_output_bytes = 0
        self._samples: deque[Sample] = deque(maxlen=SAMPLES + 1)

    # --- for each command

    def call(self, name: bytes, ns: int, failed: bool) -> None:
        """Record a call of a command that took `ns` nanoseconds."""
        self.spent[name].append(ns)
        if failed:
            self._row(name)[FAILED] += 1

    def _count(self) -> None:
        """Add the recorded times to the rows."""
        for name, spent in self.spent.items():
            if spent:
                row = self._row(name)
                row[NS] += sum(spent)
                self._ran += len(spent)
                # `place` treats times that differ only in their last STEP_BITS bits alike. So count such times together
                # first.
                for step, count in Counter(map(rshift, spent, repeat(STEP_BITS))).items():
                    row[place(step << STEP_BITS)] += count
                spent.clear()

    def _row(self, name: bytes) -> Histogram:
        row = self._rows.get(name)
        if row is None:
            row = self._rows[name] = new_histogram()
        return row

    def calls(self, name: bytes, count: int, ns: int, failed: int) -> None:
        """Record `count` calls of a command that took `ns` nanoseconds in total; `failed` of them returned an error."""
        if count:
            row = self._row(name)
            row[NS] += ns
            row[FAILED] += failed
            row[place(ns // count)] += count
            self._ran += count

    def rejected(self, name: bytes) -> None:
        """Record a command that was refused before it ran; b"" if the command is unknown."""
        if name:
            self._row(name)[REJECTED] += 1

    def error(self, line: bytes) -> None:
        """Record an error reply; `line` begins with its code."""
        self.error_replies += 1
        if not self.errors_told_apart:
            return
        code = line.partition(b" ")[0]
        count = self.by_error.get(code)
        if count is None and len(self.by_error) >= ERRORS_MAX:
            self.errors_told_apart = False
            self.by_error = {ERRORS_DISABLED: 1}
        else:
            self.by_error[code] = 1 if count is None else count + 1

    def slow(self, command: Command, args: list[bytes], ns: int, addr: str, name: bytes) -> None:
        """Record a command that took `slow_ns` or longer in the slow log, the latency events, or both.

        addr, name    the client's address and name
        """
        self.latency.command(command, ns)
        if "skip_slowlog" not in command.flags:
            self.slowlog.add(args, ns, addr, name)

    # --- totals and rates

    @property
    def commands(self) -> int:
        """Total number of commands that ran."""
        return self._ran + sum(map(len, self.spent.values()))

    def by_command(self) -> dict[bytes, Calls]:
        """The counters of every command that was called or refused."""
        self._count()
        return {name: Calls(row) for name, row in self._rows.items()}

    def sample(self, now: float, late: bool = False) -> None:
        """Sample the totals at `now` (monotonic seconds). Called about ten times a second.

        late    replies wait for an overdue fsync (`Log.parked`)
        """
        if late and not self._late:
            self.delayed_fsyncs += 1
        self._late = late
        self._count()
        samples = self._samples
        if samples and now - samples[-1].now > SAMPLE_GAP_S:
            samples.clear()
        samples.append(Sample(now, self.commands, self.net_input_bytes, self.net_output_bytes))

    def rates(self) -> Rates:
        """The rates over the current samples."""
        if len(self._samples) < 2:
            return Rates()
        first, last = self._samples[0], self._samples[-1]
        seconds = last.now - first.now
        if seconds <= 0:
            return Rates()
        return Rates(*((b - a) / seconds for a, b in zip(first[1:], last[1:], strict=True)))

    # --- options

    def configure(self) -> None:
        """Read the thresholds from the configuration. Called at the start and when one of them changes."""
        config = self._config
        slow_us: int = config["slowlog-log-slower-than"]
        event_ms: int = config["latency-monitor-threshold"]
        self.slowlog.slower_than_us = slow_us
        self.slowlog.set_max(config["slowlog-max-len"])
        self.latency.threshold_ms = event_ms
        self.slow_ns = min(
            slow_us * 1000 if slow_us >= 0 else NEVER_NS,
            event_ms * 1_000_000 if event_ms else NEVER_NS,
        )
