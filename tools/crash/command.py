"""`tidelog crash`: crash stores at every operation, and see whether they keep their promises."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from tidelog.crash import report as reports
from tidelog.crash.errors import CrashError
from tidelog.crash.explore import Finding, Report
from tidelog.crash.run import FILES, LAYERS, POWER, run, tasks
from tidelog.crash.served import be_quiet
from tidelog.crash.shrink import shrink
from tidelog.crash.trace import versions
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.tools import console, exits
from tidelog.tools.crash.place import words_of
from tidelog.tools.crash.scratch import scratch
from tidelog.tools.lazy import LazyGroup
from tidelog.tools.queue.stats import a_number
from tidelog.tools.text import examples

SETS: Final = {"L0": POWER, "all": LAYERS}
SHRINK_SECONDS = 30.0

# fmt: off
CRASH = {
    "machine": ("tidelog.tools.crash.machine", "Cut the power of a file system of this machine, again and again."),
    "replay": ("tidelog.tools.crash.replay", "Show a finding of the crash bench, and try it again."),
}
# fmt: on


def layers_of(ctx: click.Context, param: click.Parameter, value: str) -> set[str]:
    """The layers in a list with commas."""
    found: set[str] = set()
    for name in value.split(","):
        if name in SETS:
            found.update(SETS[name])
        elif name in LAYERS:
            found.add(name)
        else:
            raise click.BadParameter(f"{name!r} is not one of {', '.join((*SETS, *LAYERS))}")
    return found


@click.group(
    cls=LazyGroup,
    table=CRASH,
    invoke_without_command=True,
    epilog=examples(
        "tidelog crash",
        "tidelog crash --minutes 10 --policy no --seed 7",
        "tidelog crash --layers kill --dir .",
        "tidelog crash replay crash-findings/lost-1",
    ),
)
@click.option(
    "--layers",
    default="all",
    show_default=True,
    callback=layers_of,
    help=f"Layers to try, separated by commas: {', '.join(LAYERS)}; L0 is the first three, all is all of them.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    help="The fsync policy of the stores; repeat the option for several. Without it, all three.",
)
@click.option(
    "--minutes",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, 10_000),
    callback=a_number,
    help="Begin no further workload after this time.",
)
@click.option(
    "--seed", help="Seed of the workloads and states. It is printed, so that you can repeat a run."
)
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    help="Number of processes. Without it, one for each processor.",
)
@click.option(
    "--keep",
    default="crash-findings",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Write findings into this directory. It is created with the first one.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Run rot, errors and kill in this directory, on the disk that you want to try. Nothing is left in it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def command(
    ctx: click.Context,
    layers: set[str],
    policies: tuple[str, ...],
    minutes: float,
    seed: str | None,
    jobs: int | None,
    keep: Path,
    directory: Path | None,
    as_json: bool,
) -> int:
    """Crash stores at every operation, and see whether they keep their promises."""
    if ctx.invoked_subcommand is not None:
        return exits.OK
    be_quiet()
    seed = secrets.token_hex(4) if seed is None else seed
    jobs = jobs or len(os.sched_getaffinity(0))
    order = tuple(layer for layer in LAYERS if layer in layers)

    def say(text: str) -> None:
        click.echo(text, err=as_json)

    say(
        f"layers {', '.join(order)}, fsync {', '.join(policies or POLICIES)}, {jobs} processes, seed {seed}"
    )
    report, interrupted, started = Report(), False, time.monotonic()

    def tell(so_far: Report) -> None:
        nonlocal report
        report = so_far
        if sys.stderr.isatty():
            distinct = sum(counts.distinct for counts in so_far.counts.values())
            click.echo(
                f"\r{distinct:,} images, {time.monotonic() - started:.0f} s ", err=True, nl=False
            )

    kept: list[Path] = []
    with ExitStack() as held:
        place = held.enter_context(scratch(say))
        files = place
        if directory is not None:
            if not layers & set(FILES):
                raise click.UsageError(f"--dir is for the layers {', '.join(FILES)}")
            files = held.enter_context(scratch(say, directory))
            say(f"directory {directory}: {words_of(files)}")
        try:
            work = tasks(layers, list(policies or POLICIES), seed)
            run(work, place, jobs, minutes * 60, tell, files)
            kept = [keep_finding(each, keep, place) for each in report.findings]
        except KeyboardInterrupt:
            interrupted = True
        except CrashError as error:
            raise click.ClickException(f"{error} (seed {seed})") from error
        except OSError as error:
            raise click.ClickException(f"the bench itself failed: {error}") from error
    if sys.stderr.isatty():
        click.echo(err=True)
    show(report, order, seed, time.monotonic() - started, kept, as_json)
    if interrupted:
        click.echo("interrupted", err=True)
        return exits.INTERRUPTED
    return exits.FAILED if report.findings else exits.OK


def keep_finding(finding: Finding, keep: Path, place: Path) -> Path:
    """Make a finding smaller, and write it into a new directory."""
    disk = RealDisk()
    room = place / "shrink"
    disk.mkdir(room)
    try:
        finding = shrink(finding, room, SHRINK_SECONDS)
    finally:
        disk.rmdir(room)
    if not disk.exists(keep):
        disk.mkdir(keep)
    number = 1
    while disk.exists(keep / f"{finding.kind}-{number}"):
        number += 1
    directory = keep / f"{finding.kind}-{number}"
    reports.save(disk, directory, finding)
    return directory


def show(
    report: Report,
    layers: tuple[str, ...],
    seed: str,
    seconds: float,
    kept: list[Path],
    as_json: bool,
) -> None:
    """Print the table, and the findings in words."""
    if as_json:
        found: dict[str, Any] = {
            "seed": seed,
            "seconds": round(seconds, 1),
            "versions": versions(),
            "layers": {layer: vars(report.of(layer)) for layer in layers},
            "findings": [str(path) for path in kept],
        }
        click.echo(json.dumps(found))
        return
    console.table(reports.HEAD, reports.rows(report, layers), right=" ".join(reports.HEAD[1:]))
    click.echo(f"{seconds:.0f} s, seed {seed}")
    for path in kept:
        for line in reports.describe(reports.load(RealDisk(), path)):
            click.echo(line)
        click.echo(f"try it again: tidelog crash replay {path}")
