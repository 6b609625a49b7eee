"""The oracle: judges what a store serves after a crash, by a model of what it was asked to do (crash/model.py)."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from tidelog.crash.model import Contents, contents_after
from tidelog.crash.trace import Promised, Unit


class Kind(Enum):
    """The ways in which a store can be wrong after a crash."""

    REFUSED = "refused"  # it does not open, or a read fails, although nothing but power was lost
    LOST = "lost"  # something is missing that was acknowledged
    WRONG = "wrong"  # its contents are not those after some whole number of units
    DIED = "died"  # the process died or hung, or an error was raised that is not tidelog's


class Fault(NamedTuple):
    kind: Kind
    words: str


class Served(NamedTuple):
    """The contents that a store showed after an open. `refused` says why it showed nothing."""

    contents: Contents | None
    refused: str = ""


class Oracle:
    """Judges what a store serves after a crash, by the units of its trace."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        self._after = contents_after(units)

    def units_in(self, contents: Contents, most: int) -> int | None:
        """After how many units, at most `most`, the contents are these; None if after none. The largest such number."""
        for count in range(min(most, len(self.units)), -1, -1):
            if self._after[count] == contents:
                return count
        return None

    def first_with(self, contents: Contents, least: int) -> int | None:
        """After how many units, at least `least`, the contents are these first; None if after none."""
        for count in range(least, len(self.units) + 1):
            if self._after[count] == contents:
                return count
        return None

    def after(self, count: int) -> Contents:
        """The contents after `count` units."""
        return self._after[count]

    def judge(self, served: Served, promised: Promised, *, power: bool) -> Fault | None:
        """The fault of a store that served this; None if it kept every promise.

        power   the power was cut. If not, only the process ended, and everything written must be there
        """
        if served.contents is None:
            return Fault(Kind.REFUSED, served.refused)
        least = promised.fsynced if power else promised.written
        most = min(promised.issued, len(self.units))  # the last call may have done nothing
        found = self.units_in(served.contents, most)
        if found is None:
            if self.units_in(served.contents, len(self.units)) is not None:
                return Fault(Kind.WRONG, "the store has units that it was not given yet")
            return Fault(
                Kind.WRONG,
                "the contents are not those after any whole number of units; beside those after "
                f"{most} units: {difference(served.contents, self._after[most])}",
            )
        if found < least:
            level = "fsynced" if power else "written"
            return Fault(
                Kind.LOST,
                f"{least} units were acknowledged as {level}, and the store has {found}. "
                f"The first that is missing: {unit_text(self.units[found])}",
            )
        return None


def difference(found: Contents, expected: Contents) -> str:
    """The first key in which two contents differ."""
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            return (
                f"{key.decode(errors='replace')} is {_short(found.get(key))} and not "
                f"{_short(expected.get(key))}"
            )
    return "they are equal"


def unit_text(unit: Unit) -> str:
    """A unit for people."""
    return "; ".join(f"{name} " + " ".join(map(_short, rest)) for name, *rest in unit)


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        return text if len(text) <= 40 else f"{text[:30]}... ({len(value)} bytes)"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:190]}..."
