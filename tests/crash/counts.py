"""Runs of the crash bench with fixed seeds, and the counts that they must not fall below.

All that is to be tried takes a quarter of an hour of processor time, so it is split into SHARES shares, and each run
does one. counts.json holds, for each share, policy and layer, how much the last accepted run tried. Two runs of a share
differ a little on real files: a store draws its uuid, and threads take turns. So a run may have LEAST of each number
(LEAST_OF, where chance has a larger part), and FEW less. Sixteen servers, say, are to be killed at an operation, and
some end before they come to it where the machine is slow. With less, the bench no longer sees a part of what it saw,
and the run fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.turns import SHARES

from tidelog.crash.calls import CALLS
from tidelog.crash.explore import Report
from tidelog.crash.followers import FOLLOWERS
from tidelog.crash.full import FULL
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.logs import LOG
from tidelog.crash.queues import QUEUES
from tidelog.crash.replies import REPLIES
from tidelog.crash.rot import ROT
from tidelog.crash.run import CHECKPOINTS, DOUBLE, LAYERS, STORE, Task
from tidelog.crash.servers import SERVERS
from tidelog.crash.small import CHUNKS, SMALL
from tidelog.crash.workloads import POLICIES
from tidelog.tools.crash.blocks import RECORDED
from tidelog.tools.crash.shutdowns import KINDS

FILE: Final = Path(__file__).with_name("counts.json")
SEED: Final = "make-crash"
LEAST: Final = 0.8
# The network decides how many frames a follower gets, and the turns of clients how many a server writes. The number of
# states depends on that. A life of `checkpoints` begins with a state that is drawn from those before, so a small
# difference between two runs becomes a large one: of the same share they differ by up to a fifth.
LEAST_OF: Final = {FOLLOWERS: 0.3, REPLIES: 0.5, CHECKPOINTS: 0.6, DOUBLE: 0.6}
FEW: Final = 4
ALL: Final = (*LAYERS, *KINDS, *RECORDED)
# The cuts of the power of a real file system, and of its recorded disk, for each share and policy.
CUTS: Final = 14
COUNTED: Final = ("tried", "distinct", "told", "rows")

# For each layer, how many workloads a share has under each policy, the long ones first.
# Those of DOUBLE come from STORE and CHECKPOINTS.
PLAN: Final = {
    CHECKPOINTS: 2,
    KILL: 2,
    ROT: 2,
    LOG: 2,
    SERVERS: 1,
    SMALL: CHUNKS // SHARES + 1,
    STORE: 8,
    REPLIES: 1,
    QUEUES: 2,
    FOLLOWERS: 2,
    ERRORS: 10,
    CALLS: 2,
    FULL: 2,
}
assert {*PLAN, DOUBLE} == set(LAYERS)
DOUBLED: Final = frozenset((STORE, CHECKPOINTS))  # the layers whose recoveries lose power too
# The layers that can be run by themselves.
ALONE: Final = tuple(layer for layer in ALL if layer != DOUBLE)
assert CHUNKS % SHARES == 0
# A run by turns has one half of the layers, which take about as long as the others, under one policy.
HALF: Final = (LOG, *sorted(DOUBLED))
HALVES: Final = (HALF, tuple(layer for layer in ALONE if layer not in HALF))
TURNS: Final = tuple((half, (policy,)) for policy in POLICIES for half in HALVES)

Counts = dict[str, dict[str, dict[str, int]]]  # of one share: policy -> layer -> name -> number


def plan(share: int, policy: str, seed: str = SEED) -> Iterator[Task]:
    """The tasks of a share under one policy. Shares are numbered from 1."""
    assert 1 <= share <= SHARES
    for layer, count in PLAN.items():
        double = layer in DOUBLED
        for number in range(count):
            chosen = chunk(share, number) if layer == SMALL else number
            yield Task(layer, policy, f"{seed}/{share}/{number}", chosen, double)


def chunk(share: int, number: int) -> int:
    """The chunk of small workloads of a task: the shares have all of them together. The last task draws longer ones."""
    each = CHUNKS // SHARES
    return (share - 1) * each + number if number < each else CHUNKS


def counted(layers: tuple[str, ...]) -> tuple[str, ...]:
    """The layers whose counts a run of these has. Those of DOUBLE are whole only with all that it comes from."""
    whole = {*layers} >= DOUBLED
    return tuple(layer for layer in ALL if layer in layers or layer == DOUBLE and whole)


def counts_of(reports: dict[str, Report], layers: tuple[str, ...] = ALL) -> Counts:
    """The counts of a run, from its report of each policy."""
    return {
        policy: {
            layer: {name: getattr(report.of(layer), name) for name in COUNTED} for layer in layers
        }
        for policy, report in reports.items()
    }


def of_layers(
    counts: Counts, layers: tuple[str, ...], policies: tuple[str, ...] = POLICIES
) -> Counts:
    """The counts of some layers under some policies."""
    return {
        policy: {layer: numbers for layer, numbers in of_policy.items() if layer in layers}
        for policy, of_policy in counts.items()
        if policy in policies
    }


def drops(counts: Counts, before: Counts, not_run: tuple[str, ...] = ()) -> list[str]:
    """One line for each number that is lower than it may be, except of the layers that could not run."""
    return [
        f"{layer}, fsync {policy}: {name} is {now:,}, and was {number:,}"
        for policy, layers in before.items()
        for layer, numbers in layers.items()
        if layer not in not_run
        for name, number in numbers.items()
        if (now := counts.get(policy, {}).get(layer, {}).get(name, 0))
        < LEAST_OF.get(layer, LEAST) * number - FEW
        or bool(number) > bool(now)
    ]


def load() -> dict[int, Counts]:
    """The counts of the last accepted run of each share."""
    return {int(share): counts for share, counts in json.loads(FILE.read_text()).items()}


def save(share: int, counts: Counts) -> None:
    """Accept the counts of a run. Those of layers and policies that it did not have stay."""
    all_ = load() if FILE.exists() else {}
    before = all_.get(share, {})
    found = {policy: {**before.get(policy, {}), **counts.get(policy, {})} for policy in POLICIES}
    all_[share] = {
        policy: {layer: layers[layer] for layer in ALL if layer in layers}
        for policy, layers in found.items()
    }
    FILE.write_text(json.dumps(dict(sorted(all_.items())), indent=1) + "\n")
