"""Calls of one command: a latency histogram in a list of integers, which is cheap to update on every call.

Times below 1.05 ms have a resolution of 1,024 ns, longer ones of a sixteenth. Every power of two is a bucket bound, so
LATENCY HISTOGRAM is exact.
"""

from __future__ import annotations

from typing import Final

# Layout of a row: nanoseconds, failed calls, rejected calls, and then one counter of calls for each range of times.
NS: Final = 0
FAILED: Final = 1
REJECTED: Final = 2
TIMES: Final = 3

STEP_BITS: Final = 10
EVEN_BITS: Final = 20
EVEN_NS: Final = 1 << EVEN_BITS  # below it, buckets are of equal width
_BEYOND: Final = TIMES + (EVEN_NS >> STEP_BITS)
_LENGTH: Final = _BEYOND + (64 - EVEN_BITS) * 16

Histogram = list[int]


def new_histogram() -> Histogram:
    """Return the row of a command without calls."""
    return [0] * _LENGTH


def place(ns: int) -> int:
    """Return the index in a row that counts calls of `ns` nanoseconds."""
    if ns < EVEN_NS:
        return TIMES + (ns >> STEP_BITS)
    bits = ns.bit_length()
    return _BEYOND + (bits - 1 - EVEN_BITS) * 16 + (ns >> bits - 5 & 15)


def _longest(index: int) -> int:
    """Return the longest time, in nanoseconds, that is counted at this index."""
    if index < _BEYOND:
        return (index - TIMES + 1 << STEP_BITS) - 1
    doublings, fine = divmod(index - _BEYOND, 16)
    return (17 + fine << EVEN_BITS + doublings - 4) - 1


class Calls:
    """The values of a row at the time it is read.

    rejected   refused before they ran: no password, no permission, wrong arity, or not allowed in this context
    failed     ran, and returned an error
    """

    __slots__ = ("calls", "ns", "rejected", "failed", "_times")

    def __init__(self, row: Histogram) -> None:
        self.ns, self.failed, self.rejected = row[:TIMES]
        self._times = [
            (index, count) for index, count in enumerate(row) if count and index >= TIMES
        ]
        self.calls = sum(count for _, count in self._times)

    @property
    def us(self) -> int:
        """Total microseconds of all calls."""
        return self.ns // 1000

    def percentile(self, percent: float) -> float:
        """The percentile in microseconds: `percent` of the calls took at most this long. 0.0 without calls."""
        wanted = percent * self.calls / 100 - 1e-9  # 99.9 % of 5,000 are 4,995
        seen = 0
        for index, count in self._times:
            seen += count
            if seen >= wanted:
                return _longest(index) / 1000
        return 0.0

    def histogram(self) -> list[int]:
        """Flat pairs: bound in microseconds, cumulative number of calls; only bounds where the number changes."""
        counts: dict[int, int] = {}
        for index, count in self._times:
            power = _longest(index).bit_length()
            counts[power] = counts.get(power, 0) + count
        found: list[int] = []
        seen = 0
        for power, count in counts.items():
            seen += count
            # Redis's bounds lie 1/128 above a power of two nanoseconds, so it shows 33 and 66 us where a power of two
            # would give 32 and 65.
            found += ((1 << power) + (1 << power - 7) - 1) // 1000, seen
        return found
