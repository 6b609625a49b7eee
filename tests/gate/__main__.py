"""All that has to hold, part by part, each beside the seconds that it may take: what `.ci/run` runs.

    python -m tests.gate [PART...]    names of parts, from tests/gate/budget.toml; default: all

A part that fails does not keep the others from running: one run tells all that is wrong. Tests that failed are tried
once more, alone (tests/gate/again.py). A part that takes longer than its budget is marked and fails nothing, since how
long it takes depends on the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Final, NamedTuple

from tests.gate import unsteady

ROOT: Final = Path(__file__).parents[2]
BUDGET: Final = Path(__file__).with_name("budget.toml")
REPORTS: Final = ROOT / ".gate"  # of pytest, one a part; ignored by git


class Part(NamedTuple):
    """A part of the gate.

    seconds        that it may take on two idle cores
    make           the words of each call of make, in their order
    tries_again    whether what fails is tried once more; the one target then runs pytest
    """

    name: str
    seconds: int
    make: list[str]
    tries_again: bool = False


class Ran(NamedTuple):
    """One part that ran. `failed` has the calls of make that failed."""

    part: Part
    seconds: float
    failed: list[str]


def budget() -> tuple[list[Part], int]:
    """The parts, and the seconds in reserve."""
    read = tomllib.loads(BUDGET.read_text())
    return [Part(**part) for part in read["part"]], read["reserve"]


def run(part: Part) -> Ran:
    print(f"\n--- {part.name}: {part.seconds} s", flush=True)
    begun = time.monotonic()
    failed = [target for target in part.make if not _made(target, part.tries_again)]
    return Ran(part, time.monotonic() - begun, failed)


def _made(target: str, tries_again: bool) -> bool:
    if not tries_again:
        return _ran("make", *target.split())
    report = REPORTS / f"{target}.json"
    report.unlink(missing_ok=True)
    _ran("make", target, f"PYTEST=--gate-report {report.relative_to(ROOT)}")
    return _ran(sys.executable, "-m", "tests.gate.again", str(report))


def _ran(*words: str) -> bool:
    return subprocess.run(words, cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0


def table(ran: list[Ran], reserve: int) -> list[str]:
    """The seconds of each part beside its budget, and what failed."""
    lines = [f"{'part':24}{'budget':>8}{'took':>8}"]
    for part, seconds, failed in ran:
        line = f"{part.name:24}{part.seconds:>6} s{seconds:>6.0f} s"
        if seconds > part.seconds:
            line += f"  {seconds - part.seconds:.0f} s over"
        if failed:
            line += f"  failed: {', '.join(f'make {words}' for words in failed)}"
        lines.append(line)
    all_ = sum(part.seconds for part, _, _ in ran) + reserve
    lines.append(f"{'together':24}{all_:>6} s{sum(each.seconds for each in ran):>6.0f} s")
    return lines


def main(names: list[str]) -> int:
    parts, reserve = budget()
    if strange := set(names) - {part.name for part in parts}:
        known = ", ".join(part.name for part in parts)
        print(f"{min(strange)!r} is not a part of the gate: {known}", file=sys.stderr)
        return 2
    this = os.environ[unsteady.RUN] = unsteady.this_run()
    ran = [run(part) for part in parts if not names or part.name in names]
    found = [f"unsteady: {each}" for each in unsteady.seen() if each.run == this]
    print("", *table(ran, reserve), *found, sep="\n", flush=True)
    return 1 if any(each.failed for each in ran) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
