"""`tidelog crash machine`: cut the power of a real file system under a store. Only root may mount one."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import click

from tidelog.crash.explore import Report
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.tools import exits
from tidelog.tools.crash.blocks import BLOCKS, cut_blocks
from tidelog.tools.crash.session import (
    Session,
    json_option,
    keep_option,
    minutes_option,
    seed_option,
)
from tidelog.tools.crash.shutdowns import KINDS, CannotMount, cut_power, file_system
from tidelog.tools.text import examples

CUTS = 10  # of a workload

Cut = Callable[[str, str], Report]


@click.command(
    help="Cut the power of file systems of this machine, ext4 and xfs, again and again.",
    epilog=examples(
        "tidelog crash machine",
        "tidelog crash machine --minutes 10",
        codes=(exits.OK, exits.FAILED, exits.USAGE, exits.SYSTEM),
    ),
)
@minutes_option(0.5)
@seed_option
@keep_option
@json_option
def command(minutes: float, seed: str | None, keep: Path, as_json: bool) -> int:
    session = Session(seed, keep, as_json)
    kernel = os.uname()
    layers = (*KINDS, BLOCKS)
    session.say(
        f"layers {', '.join(layers)}, of {kernel.sysname} {kernel.release}, seed {session.seed}"
    )
    with session.running(layers) as place, ExitStack() as mounts:
        cuts: dict[str, Cut] = {}
        reasons: dict[str, str] = {}
        for layer in layers:
            room = place / layer
            RealDisk().mkdir(room)
            try:
                cuts[layer] = _cut(layer, room, mounts)
            except CannotMount as error:
                reasons[layer] = str(error)
        for number in count():
            policy, seed = POLICIES[number % len(POLICIES)], f"{session.seed}/{number}"
            for layer, cut in list(cuts.items()):
                try:
                    session.report.add(cut(policy, seed))
                except CannotMount as error:
                    del cuts[layer]
                    reasons[layer] = str(error)
            if not cuts or session.seconds >= minutes * 60 or session.report.findings:
                break
    for layer, reason in reasons.items():
        click.echo(f"{layer}: not run: {reason}", err=True)
    return session.code if cuts else exits.SYSTEM


def _cut(layer: str, room: Path, mounts: ExitStack) -> Cut:
    """How to cut the power of a layer: (policy, seed) -> report. Raises CannotMount."""
    if layer == BLOCKS:
        return lambda policy, seed: cut_blocks(policy, seed, room, CUTS)
    made = mounts.enter_context(file_system(room, layer))
    return lambda policy, seed: cut_power(made, policy, seed, CUTS)
