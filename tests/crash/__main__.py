"""The command line of the fixed runs of the crash bench: `make crash`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Final

from tests.crash import evidence, exemptions
from tests.crash.counts import (
    ALL,
    CUTS,
    FILE,
    SEED,
    counts_of,
    drops,
    load,
    plan,
    save,
)
from tests.turns import SHARES, share_of, this_commit

from tidelog.crash.explore import Report
from tidelog.crash.run import run
from tidelog.crash.served import be_quiet
from tidelog.crash.workloads import POLICIES
from tidelog.testing.scratch import scratch
from tidelog.tools import exits
from tidelog.tools.crash.blocks import BLOCKS, cut_blocks
from tidelog.tools.crash.cutting import REAL, Timed
from tidelog.tools.crash.session import keep_finding, show
from tidelog.tools.crash.shutdowns import cut_power, file_system

DESCRIPTION: Final = "Run a share of the crash bench with fixed seeds. Fail if it finds anything or tries too little."
FINDINGS: Final = Path("crash-findings")
LIMIT_S: Final = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=DESCRIPTION)
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default 2)")
    parser.add_argument(
        "--share",
        choices=[*map(str, range(1, SHARES + 1)), "all"],
        help="the share to try (default: the commit decides)",
    )
    parser.add_argument(
        "--accept", action="store_true", help=f"write the counts of this run into {FILE.name}"
    )
    args = parser.parse_args()
    be_quiet()
    if args.share == "all":
        shares = [*range(1, SHARES + 1)]
    else:
        shares = [int(args.share or share_of(this_commit()))]
    try:
        return max(_try(share, args.jobs, args.accept) for share in shares)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return exits.INTERRUPTED


def _cut(share: int, reports: dict[str, Report], place: Path, total: Report) -> None:
    """Cut the power of real file systems and of a recorded disk. Notes in `total` why a layer could not run."""
    for layer in REAL:
        room = place / layer
        room.mkdir()
        with Timed(total, layer):
            if layer == BLOCKS:
                _cut_blocks(share, reports, room)
            else:
                _shut_down(share, reports, room, layer)


def _shut_down(share: int, reports: dict[str, Report], place: Path, layer: str) -> None:
    with file_system(place, layer) as made:
        for policy in POLICIES:
            reports[policy].add(cut_power(made, policy, f"{SEED}/{share}", CUTS))


def _cut_blocks(share: int, reports: dict[str, Report], place: Path) -> None:
    for policy in POLICIES:
        reports[policy].add(cut_blocks(policy, f"{SEED}/{share}", place, CUTS))


def _try(share: int, jobs: int, accept: bool) -> int:
    """Run one share. Returns the exit code."""
    print(f"share {share} of {SHARES}, {jobs} processes", flush=True)
    started = time.monotonic()
    reports: dict[str, Report] = {}
    total = Report()
    with scratch(print) as place:
        for policy in POLICIES:
            reports[policy] = run(plan(share, policy), place, jobs, LIMIT_S)
        _cut(share, reports, place, total)
        not_run = total.not_run
        for policy in POLICIES:
            total.add(reports[policy])
        kept = [keep_finding(each, FINDINGS, place) for each in total.findings]
    show(total, ALL, f"{SEED}/{share}", time.monotonic() - started, kept, as_json=False)
    if total.findings:
        return 1
    counts = counts_of(reports)
    lines, wrong = exemptions.verdict(not_run)
    for line in lines:
        print(line, file=sys.stderr)
    if wrong or not_run and accept:
        return 1
    if accept:
        save(share, counts)
        evidence.write(load())
        return 0
    dropped = drops(counts, load()[share], tuple(not_run))
    for line in dropped:
        print(line, file=sys.stderr)
    if dropped:
        print(
            f"The bench tries less than before. If that is meant, run: make crash CRASH='--share {share} --accept', "
            f"which writes {FILE.name}",
            file=sys.stderr,
        )
    return 1 if dropped else 0


if __name__ == "__main__":
    sys.exit(main())
