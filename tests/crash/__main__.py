"""The command line of the fixed runs of the crash bench: `make crash`."""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path
from typing import Final

from tests.crash import evidence, exemptions
from tests.crash.counts import (
    ALONE,
    CUTS,
    FILE,
    SEED,
    TURNS,
    counted,
    counts_of,
    drops,
    load,
    of_layers,
    plan,
    save,
)
from tests.turns import SHARES, share_of, this_turn

from tidelog.crash.explore import Report
from tidelog.crash.run import run
from tidelog.crash.served import be_quiet
from tidelog.crash.workloads import POLICIES
from tidelog.testing.scratch import scratch
from tidelog.tools import exits
from tidelog.tools.crash.blocks import RECORDED, cut_blocks
from tidelog.tools.crash.cutting import REAL, Timed
from tidelog.tools.crash.models import STRICT
from tidelog.tools.crash.session import Session, keep_finding
from tidelog.tools.crash.shutdowns import cut_power, file_system

DESCRIPTION: Final = (
    "Run half of the layers of a share of the crash bench under one policy, with fixed seeds: the number of commits "
    "decides which. Fail if it finds anything or tries too little. With --share, run all layers under all policies; "
    "with --long, run all shares with new seeds, and compare no counts."
)
FINDINGS: Final = Path("crash-findings")
LIMIT_S: Final = 3600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=DESCRIPTION)
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default 2)")
    parser.add_argument(
        "--share",
        choices=[*map(str, range(1, SHARES + 1)), "all"],
        help="the share to try (default: the number of commits decides)",
    )
    parser.add_argument(
        "--accept", action="store_true", help=f"write the counts of this run into {FILE.name}"
    )
    parser.add_argument(
        "--long", action="store_true", help="all shares, with seeds that are drawn and printed"
    )
    parser.add_argument("--seed", help="with --long: the seed that an earlier run printed")
    parser.add_argument(
        "--layers",
        type=lambda words: tuple(words.split(",")),
        help="only these, separated by commas; with --accept, the counts of the others stay",
    )
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        help="only this one; with --accept, the counts of the others stay",
    )
    args = parser.parse_args()
    if args.long and args.accept:
        parser.error("--accept is for the fixed seeds")
    if args.seed and not args.long:
        parser.error("--seed is for --long")
    turn = this_turn()
    layers: tuple[str, ...] = ALONE
    policies: tuple[str, ...] = POLICIES
    if not (args.share or args.long or args.layers or args.policy):
        layers, policies = TURNS[turn // SHARES % len(TURNS)]
    layers = args.layers or layers
    policies = (args.policy,) if args.policy else policies
    if strange := set(layers) - set(ALONE):
        parser.error(f"--layers: {min(strange)!r} is not one of {', '.join(ALONE)}")
    be_quiet()
    if args.share == "all" or args.long and not args.share:
        shares = [*range(1, SHARES + 1)]
    else:
        shares = [int(args.share or share_of(turn))]
    seed = (args.seed or secrets.token_hex(4)) if args.long else SEED
    if args.long:
        print(f"seed {seed}; again with: make crash CRASH='--long --seed {seed}'", flush=True)
    try:
        return max(_try(share, args.jobs, args.accept, seed, layers, policies) for share in shares)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return exits.INTERRUPTED


def _cut(
    seed: str, reports: dict[str, Report], place: Path, total: Report, layers: tuple[str, ...]
) -> None:
    """Cut the power of real file systems and of a recorded disk, under the policies that have a report.

    Notes in `total` why a layer could not run.
    """
    for layer in [each for each in REAL if each in layers]:
        room = place / layer
        room.mkdir()
        with Timed(total, layer):
            if layer in RECORDED:
                _cut_blocks(seed, reports, room, layer)
            else:
                _shut_down(seed, reports, room, layer)


def _shut_down(seed: str, reports: dict[str, Report], place: Path, layer: str) -> None:
    with file_system(place, layer) as made:
        for policy in reports:
            reports[policy].add(cut_power(made, policy, seed, CUTS))


def _cut_blocks(seed: str, reports: dict[str, Report], place: Path, layer: str) -> None:
    for policy in reports:
        reports[policy].add(cut_blocks(layer, policy, seed, place, CUTS))


def _try(
    share: int,
    jobs: int,
    accept: bool,
    seed: str,
    layers: tuple[str, ...],
    policies: tuple[str, ...],
) -> int:
    """Run these layers of one share under these policies. Returns the exit code."""
    these = "" if layers == ALONE else f" ({', '.join(layers)})"
    under = "" if policies == POLICIES else f", fsync {', '.join(policies)}"
    print(f"share {share} of {SHARES}{these}{under}, {jobs} processes", flush=True)
    session = Session(f"{seed}/{share}", FINDINGS, False, STRICT)
    reports: dict[str, Report] = {}
    total = Report()
    with scratch(print) as place:
        for policy in policies:
            work = (task for task in plan(share, policy, seed) if task.layer in layers)
            reports[policy] = run(work, place, jobs, LIMIT_S)
        _cut(f"{seed}/{share}", reports, place, total, layers)
        not_run = total.not_run
        for policy in policies:
            total.add(reports[policy])
        kept = [keep_finding(each, FINDINGS, place) for each in total.findings]
    tried = counted(layers)
    session.report = total
    session.show(tried, kept)
    if total.findings:
        return 1
    counts = counts_of(reports, tried)
    lines, wrong = exemptions.verdict(not_run | total.less)
    for line in lines:
        print(line, file=sys.stderr)
    if wrong or (not_run or total.less) and accept:
        return 1
    if accept:
        save(share, counts)
        evidence.write(load())
        return 0
    if seed != SEED:
        return 0  # other seeds have other counts
    dropped = drops(counts, of_layers(load()[share], tried, policies), (*not_run, *total.less))
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
