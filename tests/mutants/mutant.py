"""A mutant: a small change of the source that breaks one promise, and the checks that must notice."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One planted fault.

    name         folder/what-is-wrong; unique in the list
    file         from the root of the repository
    anchor       source text that stands in the file exactly once
    replacement  what stands there instead
    checks       the tests that must catch it, the cheapest first
    promise      what does not hold any more, in one sentence
    """

    name: str
    file: str
    anchor: str
    replacement: str
    checks: tuple[str, ...]
    promise: str
