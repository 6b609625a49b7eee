"""The time of leases, moved by hand."""

from __future__ import annotations

from tidelog import testing

LEASE = 30.0


def pass_time(clock: testing.Clock, seconds: float) -> None:
    """As it passes in life: with a beat every second."""
    for _ in range(int(seconds)):
        clock.advance(1)
