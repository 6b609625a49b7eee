"""`tidelog crash machine`: cut the power of a real file system under a store. Only root may mount one."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import click

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
from tidelog.tools.crash.shutdowns import MACHINE, CannotMount, cut_power, file_system
from tidelog.tools.text import examples

CUTS = 10  # of a workload


@click.command(
    help="Cut the power of a file system of this machine, again and again.",
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
    layers = (MACHINE, BLOCKS)
    session.say(
        f"layers {', '.join(layers)}, ext4 of {kernel.sysname} {kernel.release}, seed {session.seed}"
    )
    recorded = True
    try:
        with session.running(layers) as place:
            room, beside = place / MACHINE, place / BLOCKS
            for each in (room, beside):
                RealDisk().mkdir(each)
            with file_system(room) as made:
                for number in count():
                    policy, seed = POLICIES[number % len(POLICIES)], f"{session.seed}/{number}"
                    session.report.add(cut_power(made, policy, seed, CUTS))
                    if recorded:
                        try:
                            session.report.add(cut_blocks(policy, seed, beside, CUTS))
                        except CannotMount as error:
                            recorded = False
                            session.say(f"{BLOCKS}: not run: {error}")
                    if session.seconds >= minutes * 60 or session.report.findings:
                        break
    except CannotMount as error:
        click.echo(f"{MACHINE}: not run: {error}", err=True)
        return exits.SYSTEM
    return session.code
