"""Exempted: the tests that may be left out on a machine that lacks what they need. Their reasons are printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

PREFIX: Final = "exempt: "  # of the reason of such a test (tests/crash/exemptions.py)


def lines(skipped: Iterable[Any]) -> list[str]:
    """A line for each reason, from the reports of skipped tests."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in skipped
        if isinstance(report.longrepr, tuple) and PREFIX in report.longrepr[2]
    )
    return [f"{reason} ({count} tests)" for reason, count in sorted(reasons.items())]
