"""Times: histograms of durations, as Prometheus counts them. Only one thread at a time calls `observe`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

SYNC_BUCKETS_S: Final = (
    *(0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
JOB_BUCKETS_S: Final = (
    *(0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)


class Times:
    """How many durations fell into each bucket, those above all bounds last, and their sum in seconds."""

    __slots__ = ("bounds", "counts", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The bound of each bucket, and how many durations are not above it."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*self.bounds, "+Inf"), list(self.counts), strict=True):
            total += count
            found.append((str(bound), total))
        return found
