"""`tidelog crash machine`: cut the power of a real file system under a store. Only root may mount one."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import click

from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.tools import exits
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
    epilog=examples("tidelog crash machine", "tidelog crash machine --minutes 10"),
)
@minutes_option(0.5)
@seed_option
@keep_option
@json_option
def command(minutes: float, seed: str | None, keep: Path, as_json: bool) -> int:
    session = Session(seed, keep, as_json)
    kernel = os.uname()
    session.say(f"layer {MACHINE}, ext4 of {kernel.sysname} {kernel.release}, seed {session.seed}")
    try:
        with session.running((MACHINE,)) as place:
            room = place / MACHINE
            RealDisk().mkdir(room)
            with file_system(room) as made:
                for number in count():
                    policy = POLICIES[number % len(POLICIES)]
                    session.report.add(cut_power(made, policy, f"{session.seed}/{number}", CUTS))
                    if session.seconds >= minutes * 60 or session.report.findings:
                        break
    except CannotMount as error:
        click.echo(f"{MACHINE}: not run: {error}", err=True)
        return exits.SYSTEM
    return session.code
