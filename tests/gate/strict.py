"""Strict tests: those that may not give a wrong value even once. `strict.txt` has the patterns of their files."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path


@cache
def patterns() -> tuple[str, ...]:
    lines = Path(__file__).with_name("strict.txt").read_text().splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_strict(file: str) -> bool:
    """Of a path from the root of the project on."""
    return any(fnmatchcase(file, pattern) for pattern in patterns())
