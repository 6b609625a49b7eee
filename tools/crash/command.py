"""`tidelog crash`: crash stores at every operation, and see whether they keep their promises."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from tidelog.crash.explore import Report
from tidelog.crash.run import FILES, LAYERS, POWER, run, tasks
from tidelog.crash.subjects.bench import Task
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.testing.scratch import scratch
from tidelog.tools import exits
from tidelog.tools.crash import others
from tidelog.tools.crash.bite import bite
from tidelog.tools.crash.others import GIVEN, tasks_of
from tidelog.tools.crash.place import words_of
from tidelog.tools.crash.session import (
    CannotRun,
    Session,
    json_option,
    keep_option,
    minutes_option,
    seed_option,
)
from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples

ROOM_BYTES: Final = 32 << 20  # that the stores of one process may need in the directory of the user
SETS: Final = {"L0": POWER, "all": LAYERS}

# fmt: off
CRASH = {
    "machine": ("tidelog.tools.crash.machine", "Cut the power of a file system of this machine, again and again."),
    "plug": ("tidelog.tools.crash.plug",
             "Write to a store until somebody pulls the plug; with --after, say what is missing."),
    "replay": ("tidelog.tools.crash.replay", "Show a finding of the crash bench, and try it again."),
    "witness": ("tidelog.tools.crash.witness", "Note, on another machine, what `tidelog crash plug` acknowledges."),
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
        "tidelog crash --mutants",
        "tidelog crash --subject sqlite3 --subject lmdb",
        "tidelog crash replay crash-findings/lost-1",
        codes=(exits.OK, exits.FAILED, exits.USAGE, exits.SYSTEM),
    ),
)
@click.option(
    "--layers",
    default="all",
    show_default=True,
    callback=layers_of,
    help=f"Layers to try, separated by commas: {', '.join(LAYERS)}; L0 is the first seven, all is all of them.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    help="The fsync policy of the stores; repeat the option for several. Without it, all three.",
)
@minutes_option(1.0)
@seed_option
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    help="Number of processes. Without it, one for each processor.",
)
@keep_option
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Run rot, errors, kill and servers in this directory, on the disk to be tried. Nothing is left in it.",
)
@click.option(
    "--mutants",
    is_flag=True,
    help="Plant faults into the engine one by one, in processes of their own, and see the bench find each of them.",
)
@click.option(
    "--subject",
    "subjects",
    multiple=True,
    callback=tasks_of,
    help=f"Crash another store and not tidelog: {', '.join(GIVEN)}; repeat the option for several. Needs a C compiler.",
)
@click.option(
    "--check",
    default="",
    help="With a command as --subject: a command that fails if {dir} lacks anything of the lines in the file {told}.",
)
@json_option
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
    mutants: bool,
    subjects: tuple[Task, ...],
    check: str,
    as_json: bool,
) -> int:
    """Crash stores at every operation, and see whether they keep their promises."""
    if ctx.invoked_subcommand is not None:
        return exits.OK
    if mutants:
        return bite(as_json)
    if directory is not None and not layers & set(FILES):
        raise click.UsageError(f"--dir is for the layers {', '.join(FILES)}")
    if subjects:
        return others.run(subjects, check, minutes, seed, keep, as_json)
    if check:
        raise click.UsageError("--check is for --subject")
    session = Session(seed, keep, as_json)
    jobs = jobs or len(os.sched_getaffinity(0))
    if directory is not None:
        _check_room(directory, jobs)
    order = tuple(layer for layer in LAYERS if layer in layers)
    session.say(
        f"layers {', '.join(order)}, fsync {', '.join(policies or POLICIES)}, {jobs} processes, seed {session.seed}"
    )

    def tell(so_far: Report) -> None:
        session.report = so_far
        if sys.stderr.isatty():
            distinct = sum(counts.distinct for counts in so_far.counts.values())
            click.echo(f"\r{distinct:,} images, {session.seconds:.0f} s ", err=True, nl=False)

    with session.running(order) as place, ExitStack() as held:
        files = place
        if directory is not None:
            files = held.enter_context(scratch(session.say, directory))
            session.say(f"directory {directory}: {words_of(files)}")
        work = tasks(layers, list(policies or POLICIES), session.seed)
        try:
            run(work, place, jobs, minutes * 60, tell, files)
        finally:
            if sys.stderr.isatty():
                click.echo(err=True)
    return session.code


def _check_room(directory: Path, jobs: int) -> None:
    """Raises ClickException if a directory has no room for the stores of so many processes."""
    free = RealDisk().free(directory)
    needed = jobs * ROOM_BYTES
    if free < needed:
        raise CannotRun(
            f"{directory} has {free:,} bytes free, and {jobs} processes need {needed:,}: name another directory, or "
            "fewer --jobs"
        )
