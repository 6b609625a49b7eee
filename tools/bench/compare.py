"""`python -m tidelog.tools.bench.compare A B`: two checkouts by turns in one run, by processor time.

This is a tool for the developers of tidelog. Each side is a process of its own (see `side`) with the `src` of its
checkout. Both do the same slices and swap their order after each, so a busy moment of the machine affects both. A
ratio is the speed of B divided by the speed of A: 1.05 means that B is 5% faster. On a noisy machine, `--instructions`
counts the instructions that the interpreter runs. That count hardly differs between two runs, but does not include the
work of C code.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import click

SLICES: Final = 9
SLICE_S: Final = 0.25  # of processor time
COUNTS: Final = 3  # slices whose instructions are counted
LEAST, MEAN_LEAST = 0.95, 0.98


@dataclass(frozen=True)
class Workload:
    """The measured rows.

    name      method of `side.Side`
    quantum   operations come in multiples of this        most      no slice has more
    counted   operations whose instructions are counted, 0 = they are not: another process does the work
    """

    name: str
    about: str
    quantum: int
    most: int
    counted: int


# fmt: off
ROWS: Final = (
    Workload("xadd", "XADD one", 100, 200_000, 2_000),
    Workload("pipeline", "pipeline, transaction=False", 1_000, 500_000, 2_000),
    Workload("transaction", "pipeline, transaction=True", 1_000, 500_000, 2_000),
    Workload("xadd_many", "xadd_many", 1_000, 2_000_000, 2_000),
    Workload("read_1", "XREADGROUP + XACK by 1", 100, 100_000, 1_000),
    Workload("read_100", "XREADGROUP + XACK by 100", 100, 500_000, 5_000),
    Workload("put_1", "queue put by 1", 100, 200_000, 2_000),
    Workload("put_100", "queue put by 100", 100, 500_000, 5_000),
    Workload("consume_1", "queue consume by 1", 100, 100_000, 1_000),
    Workload("consume_100", "queue consume by 100", 100, 200_000, 5_000),
    Workload("served_1", "redis-benchmark -P 1", 5_000, 100_000, 0),
    Workload("served_16", "redis-benchmark -P 16", 8_000, 300_000, 0),
    Workload("served_100", "redis-benchmark -P 100", 10_000, 500_000, 0),
    Workload("replay", "replay of 20,000 records", 1, 50, 1),
    Workload("open", "open over 200,000 entries", 1, 200, 1),
    Workload("imported", "import tidelog", 1, 5, 0),
)
# fmt: on


class Process:
    """A running side. `checkout`: the root of a working copy."""

    def __init__(self, checkout: Path, place: Path) -> None:
        source = (checkout / "src").resolve()
        if not (source / "tidelog").is_dir():
            raise click.UsageError(
                f"{checkout} is not a checkout of tidelog: src/tidelog is missing"
            )
        place.mkdir()
        self.name = str(checkout)
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).with_name("side.py")), str(place)],
            env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        loaded = Path(self._answer())
        if source not in loaded.parents:
            raise click.UsageError(
                f"{checkout}: a process started there imported {loaded}, which is not part of the checkout"
            )

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"{self.name}: the process ended; see its error above")
        return str(json.loads(line))

    def slice(self, row: Workload, count: int, counting: bool = False) -> float:
        """Seconds of processor time, or instructions, of so many operations."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([row.name, count, counting]) + "\n")
        self._process.stdin.flush()
        return float(self._answer())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate()


@dataclass(frozen=True)
class Result:
    """Of one row: seconds or instructions of each slice of both sides, pair by pair, for `count` operations."""

    row: Workload
    count: int
    before: Sequence[float]
    after: Sequence[float]
    instructions: tuple[float, float] | None

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in zip(self.before, self.after, strict=True)]

    @property
    def ratio(self) -> float:
        """The speed of B divided by the speed of A, from the medians."""
        return statistics.median(self.before) / statistics.median(self.after)

    @property
    def instruction_ratio(self) -> float | None:
        return None if self.instructions is None else self.instructions[0] / self.instructions[1]


def fit(side: Process, row: Workload, slice_s: float) -> int:
    """The number of operations of a slice. Also warms the side up."""
    count = row.quantum
    while True:
        spent = side.slice(row, count)
        if spent >= slice_s / 3 or count >= row.most:
            break
        count = min(count * 4, row.most)
    wanted = min(int(count * slice_s / max(spent, 1e-9)), row.most)
    return max(1, wanted // row.quantum) * row.quantum


def compare(
    row: Workload, a: Process, b: Process, *, slices: int, slice_s: float, instructions: bool
) -> Result:
    """Both sides by turns: A B, B A, A B, ..."""
    count = fit(a, row, slice_s)
    b.slice(row, count)
    before: list[float] = []
    after: list[float] = []
    for number in range(slices):
        pair = ((a, before), (b, after))
        for side, spent in pair if number % 2 == 0 else pair[::-1]:
            spent.append(side.slice(row, count))
    counted = None
    if instructions and row.counted:
        counted = fewest(a, row), fewest(b, row)
    return Result(row, count, before, after, counted)


def fewest(side: Process, row: Workload) -> float:
    """Instructions of a slice: the smallest count, which has no rare events such as the extension of a segment."""
    return min(side.slice(row, row.counted, True) for _ in range(COUNTS))


def table(results: Sequence[Result]) -> list[str]:
    """The lines of the report: the figures of each row, then the geometric means."""
    head = f"{'':28} {'A, us':>12} {'B, us':>12} {'B / A':>7} {'slices':>15} {'instructions':>13}"
    lines = [head]
    for each in results:
        a, b = (statistics.median(of) / each.count * 1e6 for of in (each.before, each.after))
        spread = f"{min(each.ratios):.3f} - {max(each.ratios):.3f}"
        counted = each.instruction_ratio
        shown = "" if counted is None else f"{counted:.4f}"
        lines.append(
            f"{each.row.about:28} {a:12.3f} {b:12.3f} {each.ratio:7.3f} {spread:>15} {shown:>13}"
        )
    lines.append(f"{'geometric mean':28} {'':12} {'':12} {mean([r.ratio for r in results]):7.3f}")
    counts = [r.instruction_ratio for r in results if r.instruction_ratio is not None]
    if counts:
        lines[-1] += f" {'':15} {mean(counts):13.4f}"
    return lines


def mean(ratios: Sequence[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, ratios)))


def slower(results: Sequence[Result]) -> list[str]:
    """The rows that miss their bound; by instructions if these were counted, because they are not noisy."""
    names = []
    for each in results:
        decisive = (
            each.ratio
            if each.instruction_ratio is None
            else max(each.ratio, each.instruction_ratio)
        )
        if decisive < LEAST:
            names.append(each.row.about)
    if mean([each.ratio for each in results]) < MEAN_LEAST:
        names.append("geometric mean")
    return names


@click.command(help="Compare the speed of two checkouts of tidelog, by turns in one run.")
@click.argument("a", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("b", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([row.name for row in ROWS]),
    help="Measure only this row; may be repeated.",
)
@click.option(
    "--slices",
    default=SLICES,
    show_default=True,
    type=click.IntRange(1),
    help="Number of slices per side.",
)
@click.option(
    "--slice-s",
    default=SLICE_S,
    show_default=True,
    help="Approximate processor time of a slice, in seconds.",
)
@click.option("--instructions", is_flag=True, help="Also count the interpreter's instructions.")
@click.option(
    "--check",
    is_flag=True,
    help=f"Exit with 1 if a row is below {LEAST}, or the mean below {MEAN_LEAST}.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory to measure in.",
)
def command(
    a: Path,
    b: Path,
    only: tuple[str, ...],
    slices: int,
    slice_s: float,
    instructions: bool,
    check: bool,
    directory: Path | None,
) -> None:
    results = []
    with ExitStack() as stack:
        own = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="compare-", dir=directory))
        )
        sides = [
            stack.enter_context(Process(each, own / name)) for name, each in (("a", a), ("b", b))
        ]
        for row in ROWS:
            if not only or row.name in only:
                click.echo(row.about, err=True)
                results.append(
                    compare(row, *sides, slices=slices, slice_s=slice_s, instructions=instructions)
                )
    click.echo("\n".join([f"A = {a}", f"B = {b}", *table(results)]))
    missed = slower(results)
    if check and missed:
        click.echo(f"slower: {', '.join(missed)}")
        raise SystemExit(1)


if __name__ == "__main__":
    command(prog_name="python -m tidelog.tools.bench.compare")
