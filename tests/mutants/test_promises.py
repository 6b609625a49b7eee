"""The list of promises never shrinks: each one that was ever broken by a mutant still is."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from tests.mutants import promises
from tests.mutants.listed import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.promises import Promise

LEAST: Final = 429  # raise it with the list


def test_every_promise_has_a_mutant() -> None:
    assert promises.without_mutant(promises.load(), MUTANTS) == []


def test_every_mutant_is_in_the_list() -> None:
    assert promises.load() == sorted(promises.broken_by(MUTANTS)), (
        "python -m tests.mutants --promises"
    )


def test_the_list_does_not_shrink() -> None:
    assert len(promises.load()) >= LEAST


def mutant(name: str, promise: str) -> Mutant:
    return Mutant(name, "a.py", "a", "b", ("tests/a.py",), promise)


def test_a_promise_that_two_mutants_break_needs_two() -> None:
    twice = [Promise("It holds.", "a/one"), Promise("It holds.", "a/two")]
    both = [mutant("a/renamed", "It holds."), mutant("a/two", "It holds.")]
    assert promises.without_mutant(twice, both) == []
    assert promises.without_mutant(twice, both[:1]) == twice[1:]
    assert promises.without_mutant(twice, [mutant("a/one", "It is kept.")]) == twice


def test_a_promise_without_a_mutant_stays_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "DATA", tmp_path / "promises.txt")
    assert promises.add([mutant("a/one", "It holds."), mutant("a/two", "It is kept.")]) == 2
    assert promises.add([mutant("a/three", "It is kept."), mutant("a/four", "It ends.")]) == 3
    assert promises.load() == [
        Promise("It ends.", "a/four"), Promise("It holds.", "a/one"), Promise("It is kept.", "a/three")
    ]  # fmt: skip
