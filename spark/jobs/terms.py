"""Terms: what the analyses in Spark and the plain ones of `tidelog report` share. Loads no pyspark."""

from __future__ import annotations

from typing import Final

# of the jobs of a queue, in the order in which they are shown
STATES: Final = ("waiting", "in_flight", "paused", "kept", "dead", "scheduled")
MS_MAX: Final = (1 << 63) // 1000 - 1  # the greatest unix ms that a timestamp of Spark holds
