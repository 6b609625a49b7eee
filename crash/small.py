"""Small: every sequence of one to three of the twelve operations around a sync, by number, and some of four.

A sequence is called by its number, from 1 on: first those of one operation, then of two, and so on; for each, the sync
comes after the first operation, the second, and so on. Nothing stands before the sync of a workload that begins with
one, so no sequence does. A task tries CHUNK of them, and the report says which numbers were tried under each policy.

All workloads begin with the same steps, so only what comes behind these is explored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

from tidelog.crash.explore import Effort, Explorer, Report
from tidelog.crash.lives import Step
from tidelog.crash.served import Memory
from tidelog.crash.trace import Promised, Trace
from tidelog.crash.workloads import OPERATIONS, PREPARED, PREPARED_UNITS, record

SMALL: Final = "small"
WHOLE: Final = 3  # sequences of up to this length are tried in every order
DRAWN: Final = 4  # operations: of workloads this long, only some are tried
CHUNK: Final = 65
EFFORT: Final = Effort(drawn=2, exhaustive=4, double=0, killed=0)


def many(length: int) -> int:
    """Number of the workloads of `length` operations."""
    return int(len(OPERATIONS) ** length) * length


ALL: Final = sum(many(length) for length in range(1, WHOLE + 1))
CHUNKS: Final = -(-ALL // CHUNK)


def workload(number: int) -> list[Step]:
    """The steps of the workload of this number, from 1 on."""
    rest, length = number - 1, 1
    while rest >= many(length):
        rest -= many(length)
        length += 1
    rest, at = divmod(rest, length)
    operations: list[Step] = []
    for _ in range(length):
        rest, which = divmod(rest, len(OPERATIONS))
        operations.insert(0, OPERATIONS[which])
    return [*PREPARED, *operations[: at + 1], ["sync"], *operations[at + 1 :]]


def numbers(chunk: int, rng: random.Random) -> Iterator[int]:
    """The numbers of the workloads of a task: the chunks of all come first, and others are drawn from longer ones."""
    if chunk < CHUNKS:
        yield from range(chunk * CHUNK + 1, min(ALL, (chunk + 1) * CHUNK) + 1)
    else:
        yield from rng.sample(range(ALL + 1, ALL + many(DRAWN) + 1), CHUNK)


def explore_small(
    chunk: int, policy: str, seed: str, rng: random.Random, stopping: Callable[[], bool]
) -> Report:
    """Explore the workloads of a task. Raises BenchError."""
    stage = Memory()
    explorer = Explorer(stage, rng, EFFORT, SMALL, stopping)
    tried = explorer.report.small.setdefault(policy, set())
    for number in numbers(chunk, rng):
        trace = record(stage, policy, workload(number), {"seed": seed, "number": number})
        explorer.explore(trace, _prepared(trace))
        if explorer.report.findings or stopping():
            break
        tried.add(number)
    return explorer.report


def _prepared(trace: Trace) -> int:
    """How many operations the steps have with which all workloads begin."""
    return next(
        index
        for index, each in enumerate(trace.operations, 1)
        if isinstance(each, Promised) and each.fsynced >= PREPARED_UNITS
    )


def told(report: Report) -> list[str]:
    """One line for each policy: which sequences were tried, and out of how many."""
    return [
        f"{SMALL}, fsync {policy}: {_ranges([n for n in tried if n <= ALL])} of {ALL:,} workloads of 1 to {WHOLE} "
        f"operations around a sync; {_share(sum(n > ALL for n in tried))} of {DRAWN}"
        for policy, tried in report.small.items()
    ]


def _share(drawn: int) -> str:
    return f"{drawn:,} of {many(DRAWN):,} ({100 * drawn / many(DRAWN):.1f} %)"


def _ranges(tried: list[int]) -> str:
    """Numbers as ranges; `none` for none."""
    if not tried:
        return "none"
    ordered = sorted(tried)
    breaks = [(a, b) for a, b in pairwise(ordered) if b != a + 1]
    firsts = [ordered[0], *(b for _, b in breaks)]
    lasts = [*(a for a, _ in breaks), ordered[-1]]
    return ", ".join(
        f"{first:,}..{last:,}" if first < last else f"{first:,}"
        for first, last in zip(firsts, lasts, strict=True)
    )
