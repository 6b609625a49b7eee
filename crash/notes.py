"""Notes: the lines below the table of a run."""

from __future__ import annotations

from tidelog.crash import small
from tidelog.crash.explore import Report


def notes(report: Report) -> list[str]:
    """Which small workloads were tried, of how many images more than the contents, and what cannot be tried here."""
    again = [
        f"{layer}: {counts.again:,} of the {counts.distinct:,} images went through more: quarantine, a second "
        "recovery, a read-only open, what the close leaves, a write and a kill"
        for layer, counts in report.counts.items()
        if counts.again
    ]
    less = [f"{layer}: {reason}" for layer, reason in report.less.items()]
    return [*small.told(report), *again, *less]
