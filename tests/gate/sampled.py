"""The cases of a test with several parameters: `make test` tries as many as it takes for each value of each to occur.

All combinations are too many to try at each change. Those that are left out are slow: they have their turn.

    policy x face        make test                    slow
    always, everysec     always-threads               always-asyncio
    threads, asyncio     everysec-asyncio             everysec-threads

Tests of the files in strict.txt keep all combinations: there a pair of values may be the fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import pytest
from tests.gate.strict import is_strict

Value = tuple[int, str]  # the number of a parameter, and one of its values


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark the cases that `make test` leaves out as slow."""
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        marked = any(item.get_closest_marker(name) for name in ("slow", "soak"))
        if (
            hasattr(item, "callspec")
            and not marked
            and not is_strict(item.nodeid.partition("::")[0])
        ):
            cases[item.nodeid.partition("[")[0]].append(item)
    for of_test in cases.values():
        kept = chosen([values_of(item) for item in of_test])
        for number, item in enumerate(of_test):
            if number not in kept:
                item.add_marker(pytest.mark.slow)


def values_of(item: pytest.Item) -> frozenset[Value]:
    """The parts of the name of a case: one for each `parametrize` and each fixture with parameters."""
    parts: Sequence[str] = item.callspec._idlist  # type: ignore[attr-defined]
    return frozenset(enumerate(parts))


def chosen(cases: list[frozenset[Value]]) -> set[int]:
    """The numbers of cases that have each value between them: always the one with most that no other has yet."""
    missing = frozenset[Value]().union(*cases)
    kept = set[int]()
    while missing:
        best = max(range(len(cases)), key=lambda number: (len(cases[number] & missing), -number))
        kept.add(best)
        missing -= cases[best]
    return kept
