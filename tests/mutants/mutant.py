"""A mutant: a small change of the source that breaks one promise, and the checks that must notice."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.crash.mutants import BY_NAME


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


def planted(name: str, *checks: str) -> Mutant:
    """A fault that the crash bench has too (crash/mutants.py), with its checks."""
    fault = BY_NAME[name]
    return Mutant(name, fault.file, fault.anchor, fault.replacement, checks, fault.promise)
