"""`make test` tries each value of each parameter of a test, and all combinations are tried in turns."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from tests.gate import sampled
from tests.gate.sampled import Value, chosen


def cases(*counts: int) -> list[frozenset[Value]]:
    """All combinations of parameters, by the number of values of each."""
    return [frozenset(enumerate(map(str, values))) for values in product(*map(range, counts))]


@pytest.mark.parametrize(
    ("counts", "most"), [((7,), 7), ((2, 2), 2), ((3, 5), 5), ((4, 8, 2), 8), ((1, 1), 1)], ids=str
)
def test_each_value_occurs_in_as_few_cases_as_can_be(counts: tuple[int, ...], most: int) -> None:
    of_test = cases(*counts)
    kept = chosen(of_test)
    assert len(kept) == most and 0 in kept
    assert {value for number in kept for value in of_test[number]} == {*frozenset().union(*of_test)}


class Item:
    """A case of a test, as pytest collects it."""

    def __init__(self, name: str, parts: list[str], *marks: str) -> None:
        self.nodeid = f"{name}[{'-'.join(parts)}]"
        self.callspec = SimpleNamespace(_idlist=parts)
        self.marks = [*marks]

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.name)


def marked(file: str, *marks: str) -> list[list[str]]:
    """The marks of the four cases of a test with two parameters."""
    items: list[Any] = [Item(f"{file}::test_x", [a, b], *marks) for a in "ab" for b in "ab"]
    sampled.mark(items)
    return [item.marks for item in items]


def test_what_is_left_out_is_slow() -> None:
    assert marked("tests/jobs/test_queue.py") == [[], ["slow"], ["slow"], []]
    assert marked("tests/jobs/test_queue.py", "slow") == [["slow"]] * 4
    assert marked("tests/jobs/test_queue.py", "soak") == [["soak"]] * 4


def test_strict_tests_keep_all_combinations() -> None:
    assert marked("tests/aof/test_log.py") == [[]] * 4


def test_two_tests_are_chosen_from_apart() -> None:
    items: list[Any] = [Item(f"tests/jobs/test_queue.py::test_{n}", ["a"]) for n in (1, 2)]
    sampled.mark(items)
    assert [item.marks for item in items] == [[], []]


@pytest.mark.parametrize("second", ["c", "d"])
@pytest.mark.parametrize(("first", "beside"), [("a", 1), ("b", 2)])
def test_the_parts_of_a_name_are_those_of_pytest(
    first: str, beside: int, second: str, request: pytest.FixtureRequest
) -> None:
    assert sampled.values_of(request.node) == {(0, f"{first}-{beside}"), (1, second)}
