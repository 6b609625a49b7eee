"""Notes: the lines below the table of a run."""

from __future__ import annotations

from tidelog.crash import small
from tidelog.crash.explore import Report


def notes(report: Report) -> list[str]:
    """Which small workloads were tried, and of how many images more than the contents."""
    again = [
        f"{layer}: of {counts.again:,} of the {counts.distinct:,} images more was tried: quarantine, a second "
        "recovery, a read-only open, what the close leaves, a write and a kill"
        for layer, counts in report.counts.items()
        if counts.again
    ]
    return [*small.told(report), *again]
