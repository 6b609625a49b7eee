"""The packages that the reader of a page has: those of `pip install tidelog`, and what the page tells to install."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_COMMAND = re.compile(r"pip install ([^`#\n]*)")
_WORD = re.compile(r"'[^']*'|\S+")


def told(text: str) -> list[Requirement]:
    """The packages that the page tells to install, and tidelog itself. `.` is a clone of tidelog."""
    words = [
        word.strip("'\".,;:)")
        for command in _COMMAND.findall(text)
        for word in _WORD.findall(command)
        if not word.startswith("-")
    ]
    extras = re.findall(r"'\.(\[[a-z,]+\])'", text)
    named = [word for word in words if re.match(r"[a-z][a-z-]+", word)]
    return [Requirement(word) for word in ["tidelog", *named, *(f"tidelog{e}" for e in extras)]]


def lacking(text: str) -> list[str]:
    """The importable names of this environment that the reader of the page does not have."""
    there: set[str] = set()
    for requirement in told(text):
        there.update(_closure(requirement.name, frozenset(requirement.extras)))
    return sorted(
        name
        for name, distributions in _importable().items()
        if not there.intersection(map(canonicalize_name, distributions))
    )


@cache
def _importable() -> Mapping[str, list[str]]:
    return packages_distributions()


@cache
def _closure(name: str, extras: frozenset[str]) -> frozenset[str]:
    """The distributions that installing this one brings."""
    found: set[str] = {canonicalize_name(name)}
    for needed in _needs(name, extras):
        if canonicalize_name(needed.name) != canonicalize_name(name):
            found |= _closure(needed.name, frozenset(needed.extras))
        elif not extras.issuperset(needed.extras):  # tidelog[report] names tidelog[plot,spark]
            found |= _closure(name, frozenset(needed.extras))
    return frozenset(found)


def _needs(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    try:
        required = distribution(name).requires or ()
    except (
        PackageNotFoundError
    ):  # one that this platform does not need, or that the test does not run
        return
    for line in required:
        needed = Requirement(line)
        if any(
            needed.marker is None or needed.marker.evaluate({"extra": extra})
            for extra in ("", *extras)
        ):
            yield needed
