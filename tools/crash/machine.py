"""`tidelog crash machine`: cut the power of a real file system under a store. Only root may mount one."""

from __future__ import annotations

import os
import secrets
import time
from itertools import count
from pathlib import Path

import click

from tidelog.crash.errors import CrashError
from tidelog.crash.explore import Report
from tidelog.crash.served import be_quiet
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.tools import exits
from tidelog.tools.crash.command import keep_finding, show
from tidelog.tools.crash.scratch import scratch
from tidelog.tools.crash.shutdowns import MACHINE, CannotMount, cut_power, file_system
from tidelog.tools.queue.stats import a_number
from tidelog.tools.text import examples

CUTS = 10  # of a workload


@click.command(
    help="Cut the power of a file system of this machine, again and again.",
    epilog=examples("tidelog crash machine", "tidelog crash machine --minutes 10"),
)
@click.option(
    "--minutes",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 10_000),
    callback=a_number,
    help="Begin no further run after this time.",
)
@click.option(
    "--seed", help="Seed of the workloads and cuts. It is printed, so that you can repeat a run."
)
@click.option(
    "--keep",
    default="crash-findings",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Write findings into this directory. It is created with the first one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(minutes: float, seed: str | None, keep: Path, as_json: bool) -> int:
    be_quiet()
    seed = secrets.token_hex(4) if seed is None else seed

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    kernel = os.uname()
    say(f"layer {MACHINE}, ext4 of {kernel.sysname} {kernel.release}, seed {seed}")
    started = time.monotonic()
    end = started + minutes * 60
    report, interrupted, kept = Report(), False, list[Path]()
    with scratch(say) as place:
        room = place / MACHINE
        RealDisk().mkdir(room)
        try:
            with file_system(room) as made:
                for number in count():
                    policy = POLICIES[number % len(POLICIES)]
                    report.add(cut_power(made, policy, f"{seed}/{number}", CUTS))
                    if time.monotonic() >= end or report.findings:
                        break
            kept = [keep_finding(each, keep, place) for each in report.findings]
        except KeyboardInterrupt:
            interrupted = True
        except CannotMount as error:
            click.echo(f"{MACHINE}: not run: {error}", err=True)
            return exits.SYSTEM
        except CrashError as error:
            raise click.ClickException(f"{error} (seed {seed})") from error
    show(report, (MACHINE,), seed, time.monotonic() - started, kept, as_json)
    if interrupted:
        click.echo("interrupted", err=True)
        return exits.INTERRUPTED
    return exits.FAILED if report.findings else exits.OK
