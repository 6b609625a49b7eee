"""A backlog far larger than memory_budget: the memory of the process, and the loss of throughput."""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Bound, Figure
from tidelog.tools.bench.messages import BATCH
from tidelog.tools.bench.processes.fresh import Fresh
from tidelog.tools.bench.processes.opened import Opened

MIB = 1 << 20
BUDGET = 64 * MIB
OVER_BUDGET_MIB = 150
BACKLOG = 50_000_000  # entries of 100 bytes: 5 GB
# The two stores take turns in this many parts, so that busy moments of the machine affect both.
PARTS = 20
LESS = 10  # the store without a budget gets this many times fewer entries

# The phases of the backlog: name, divisor of the number of entries, method to call.
PHASES = (
    ("adding", 1, "add"),
    ("consuming and acknowledging", 5, "take"),
    ("consuming", 10, "deliver"),
    ("acknowledging", 10, "acknowledge"),
)
AT_ONCE = 100


def rows(bench: Bench) -> Iterator[Figure]:
    backlog = bench.scaled(BACKLOG)
    with (
        Fresh(Opened, bench.fresh("budget") / "store", "random", memory_budget=BUDGET) as budgeted,
        Fresh(Opened, bench.fresh("all") / "store", "random", memory_budget=None) as free,
    ):
        for phase, share, method in PHASES:
            budgeted.peak(), free.peak()
            yield from _phase(budgeted, free, phase, backlog, backlog // share, method)


def _phase(
    budgeted: Fresh, free: Fresh, phase: str, backlog: int, count: int, method: str
) -> Iterator[Figure]:
    part = max(BATCH, count // PARTS // BATCH * BATCH)
    less = max(BATCH, part // LESS // BATCH * BATCH)
    spent = {"budgeted": 0.0, "free": 0.0}
    for _ in range(max(1, count // part)):
        for name, fresh, some in (("budgeted", budgeted, part), ("free", free, less)):
            arguments = (some, AT_ONCE) if method == "take" else (some,)
            spent[name] += fresh.call("timed", method, *arguments)
    parts = max(1, count // part)
    yield Figure(
        f"{phase}, memory_budget=64 MiB",
        "/s",
        parts * part / spent["budgeted"],
        {"no budget": parts * less / spent["free"]},
        (Bound(0.5, "no budget"),),
        f"{backlog:,} entries of 100 bytes; without a budget {backlog // LESS:,}",
    )
    yield Figure(
        f"anonymous memory while {phase}, memory_budget=64 MiB",
        "MiB",
        budgeted.peak() / MIB,
        {"no budget": free.peak() / MIB},
        (Bound(BUDGET / MIB + OVER_BUDGET_MIB, most=True),),
        f"the most of RssAnon; {parts * part:,} entries",
    )
