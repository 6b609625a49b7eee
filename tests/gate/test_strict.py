"""The list of strict tests: no test of a kill or a race is left out, and no pattern is left over."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.gate.strict import is_strict, patterns

ROOT = Path(__file__).parents[2]
FILES = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")]
WORDS = ("kill", "power", "race", "storm", "restart", "histor", "stateful")


@pytest.mark.parametrize("word", WORDS)
def test_a_file_with_such_a_name_is_strict(word: str) -> None:
    assert [file for file in FILES if word in Path(file).name and not is_strict(file)] == []
    assert is_strict(f"tests/tools/test_{word}.py")


def test_each_pattern_is_of_some_file() -> None:
    waiting = {f"*{word}*" for word in WORDS}  # for the next file of that name
    assert [
        pattern
        for pattern in patterns()
        if pattern not in waiting and not any(fnmatchcase(file, pattern) for file in FILES)
    ] == []


def test_most_other_tests_are_not_strict() -> None:
    assert not is_strict("tests/tools/test_help.py")
    assert sum(map(is_strict, FILES)) < 0.7 * len(FILES)
