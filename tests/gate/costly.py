"""Costly tests: `make test` leaves them out, and they have their turns with the slow ones.

Few tests take most of the time. costly.txt has the names of these. `make costly` runs the others, and adds those that
have become costly to the list, and their seconds to the table of durations. So a new test runs with each change at
first, and has turns later. A line that is deleted by hand puts a test back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from tests.gate import slow
from tests.gate.durations import seconds_of

LIST: Final = Path(__file__).with_suffix(".txt")
COSTLY_S: Final = 1.0  # of all cases of a function together, in one process of an idle machine
# Tests that stay: what they say of a change must be known at once.
KEPT: Final = ("tests/gate/", "tests/guard/")


@cache
def names() -> frozenset[str]:
    """The costly functions, as `file::function`."""
    return frozenset(LIST.read_text().split())


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of costly tests as slow."""
    for item in items:
        if item.nodeid.partition("[")[0] in names() and not item.get_closest_marker("soak"):
            item.add_marker(pytest.mark.slow)


def found_in(seconds: Mapping[str, float]) -> dict[str, float]:
    """Of functions and the seconds of their cases together, those that are costly."""
    return {
        name: took
        for name, took in seconds.items()
        if took >= COSTLY_S and not name.startswith(KEPT)
    }


def add(report: Path) -> list[str]:
    """Add the costly functions of a report to the list and to the table. Returns their names."""
    found = found_in(seconds_of(report))
    LIST.write_text("".join(f"{name}\n" for name in sorted({*names(), *found})))
    table = slow.load()
    for name, took in found.items():
        table[name] = round(table.get(name, 0.0) + took, 1)
    slow.TABLE.write_text(json.dumps(dict(sorted(table.items())), indent=0) + "\n")
    return sorted(found)


if __name__ == "__main__":
    for line in add(Path(sys.argv[1])):
        print(line)
