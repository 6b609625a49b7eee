"""One figure of the bench: the measurement, its baselines and its target, or the same of another version."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from bench.race import Value

OURS: Final = "tidelog"
MORE: Final = ("/s", "MB/s")  # the units of which more is better


@dataclass(frozen=True)
class Bound:
    """At least (or at most) `value`: of the row's own unit, or times the baseline called `of`, or `over` it."""

    value: float
    of: str | None = None
    most: bool = False
    over: bool = False

    def holds(self, row: Figure) -> bool:
        """Whether the row meets the bound. False if the baseline could not run."""
        limit = self.value
        if self.of is not None:
            if self.of not in row.baselines:
                return False
            base = row.baselines[self.of]
            limit = base + limit if self.over else base * limit
        return row.measured <= limit if self.most else row.measured >= limit

    def text(self, unit: str) -> str:
        sign = "<=" if self.most else ">="
        if self.of is None:
            return f"{sign} {show(self.value, unit)}"
        if self.over:
            return f"{sign} {self.of} + {show(self.value, unit)}"
        return f"{sign} {self.value:g} x {self.of}"


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    unit        one of MORE, or "us", "ms", "s", "B", "MB", "MiB", "ms/s" of processor time (less is better)
    baselines   name -> figure in the same unit, the one the ratio is against first
    target      it is met if any of these holds; empty = the figure is for information
    note        what a reader must know to repeat it
    other       the figure of the version that this one is compared with
    """

    name: str
    unit: str
    measured: float
    baselines: dict[str, float] = field(default_factory=dict)
    target: tuple[Bound, ...] = ()
    note: str = ""
    other: float | None = None

    @classmethod
    def of(
        cls,
        name: str,
        unit: str,
        found: Mapping[str, Value],
        *target: Bound,
        note: str = "",
        measured: str = OURS,
    ) -> Self:
        """The row of one contender, with the others as its baselines."""
        ours = found[measured]
        beside = {side: value.this for side, value in found.items() if side != measured}
        return cls(name, unit, ours.this, beside, target, note, ours.other)

    @property
    def against(self) -> str | None:
        """The baseline of the ratio: the target's, or the first."""
        for bound in self.target:
            if bound.of is not None:
                return bound.of
        return next(iter(self.baselines), None)

    @property
    def ratio(self) -> float | None:
        against = self.against
        base = self.baselines.get(against) if against is not None else None
        return self.measured / base if base else None

    @property
    def gain(self) -> float | None:
        """The speed of this version divided by that of the other: above 1, this one is better."""
        if self.other is None or min(self.other, self.measured) <= 0:
            return None
        ratio = self.measured / self.other
        return ratio if self.unit in MORE else 1 / ratio

    @property
    def met(self) -> bool | None:
        """None where there is no target."""
        if not self.target:
            return None
        return any(bound.holds(self) for bound in self.target)

    @property
    def target_text(self) -> str:
        return " or ".join(bound.text(self.unit) for bound in self.target)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "measured": self.measured,
            "baselines": self.baselines,
            "ratio": self.ratio,
            "ratio_to": self.against,
            "target": self.target_text or None,
            "met": self.met,
            "other": self.other,
            "gain": self.gain,
            "note": self.note,
        }


def mean(rows: Sequence[Figure]) -> float | None:
    """The geometric mean of the gains; None if no row has one."""
    gains = [math.log(row.gain) for row in rows if row.gain]
    return math.exp(statistics.fmean(gains)) if gains else None


def show(value: float, unit: str) -> str:
    """A figure as people read it: 203,000/s, 3.4 us, 14.1 B."""
    if unit == "/s":
        digits = max(0, len(str(int(value))) - 3)
        return f"{round(value, -digits):,.0f}/s"
    return f"{value:.3g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"
