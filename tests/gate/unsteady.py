"""Unsteady tests: those that failed once and passed alone. Each of them is a bug, of the test or of the code.

    .unsteady           those that were seen here and are not listed yet; git ignores it
    tests/UNSTEADY.md   the list: a test that stands there and is unsteady again fails the gate

`make unsteady` moves the lines of the first into the second.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

SEEN: Final = Path(".unsteady")
LISTED: Final = Path("tests/UNSTEADY.md")
MOST: Final = 5  # that one run of the gate may show
RUN: Final = (
    "GATE_RUN"  # set by a gate of several parts, for all of them: they are counted together
)
LINE: Final = re.compile(r"^\* `(.+)`, \d{4}-", re.MULTILINE)


@dataclass(frozen=True)
class Unsteady:
    """A test that was unsteady, as its first failure was: the seed that it printed, and how long it took.

    run     the run of the gate in which that was
    date    of that day, as in 2026-11-25
    """

    test: str
    seed: int | None
    seconds: float
    run: str
    date: str

    def __str__(self) -> str:
        return f"{self.test}, {self._facts()}"

    def line(self) -> str:
        """Of the list."""
        return f"* `{self.test}`, {self.date}, {self._facts()}"

    def _facts(self) -> str:
        seed = "no seed" if self.seed is None else f"seed {self.seed}"
        return f"{seed}, {self.seconds:.1f} s"


def this_run() -> str:
    return os.environ.get(RUN) or f"{os.getpid()} {time.time_ns()}"


def keep(found: Iterable[Unsteady], place: Path = SEEN) -> None:
    with place.open("a") as file:
        file.writelines(json.dumps(asdict(each)) + "\n" for each in found)


def seen(place: Path = SEEN) -> list[Unsteady]:
    if not place.exists():
        return []
    return [Unsteady(**json.loads(line)) for line in place.read_text().splitlines()]


def listed(place: Path = LISTED) -> set[str]:
    """The names of the tests that stand in the list."""
    return set(LINE.findall(place.read_text())) if place.exists() else set()


def main() -> None:
    """Move what was seen into the list, each test once."""
    known = listed()
    new = {each.test: each for each in reversed(seen()) if each.test not in known}
    with LISTED.open("a") as file:
        file.writelines(each.line() + "\n" for each in reversed(new.values()))
    SEEN.unlink(missing_ok=True)
    print(f"{len(new)} tests added to {LISTED}")


if __name__ == "__main__":
    main()
