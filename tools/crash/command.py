"""`tidelog crash`: crash stores at every operation, and see whether they keep their promises."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from tidelog.crash.calls import CALLS
from tidelog.crash.errors import CrashError
from tidelog.crash.explore import Report
from tidelog.crash.full import FULL
from tidelog.crash.injected import ERRORS
from tidelog.crash.killed import KILL
from tidelog.crash.replies import REPLIES
from tidelog.crash.run import FILES, LAYERS, POWER, run, tasks
from tidelog.crash.servers import SERVERS
from tidelog.crash.subjects.bench import Task
from tidelog.crash.workloads import POLICIES
from tidelog.disk.real import RealDisk
from tidelog.store.errors import TidelogError
from tidelog.testing.scratch import scratch
from tidelog.tools import exits
from tidelog.tools.crash import others
from tidelog.tools.crash.bite import bite
from tidelog.tools.crash.cutting import REAL, cut_machine
from tidelog.tools.crash.medium import words_of
from tidelog.tools.crash.models import ORDERED, STRICT, model_option
from tidelog.tools.crash.others import GIVEN, tasks_of
from tidelog.tools.crash.session import (
    CannotRun,
    Session,
    keep_option,
    seed_option,
    time_option,
)
from tidelog.tools.heads import json_option
from tidelog.tools.lazy import LazyGroup
from tidelog.tools.text import examples

UNSEEN: Final = (
    "whether the drive obeys a flush, no program can see: pull its plug with tidelog crash plug"
)
ROOM_BYTES: Final = 32 << 20  # that the stores of one process may need in the directory of the user
EVERY: Final = (*LAYERS, *REAL)
# A name for several layers -> these.
SETS: Final = {
    "all": EVERY,
    "L0": POWER,
    "L1": (KILL,),
    "L2": (ERRORS, CALLS, FULL),
    "L2s": (SERVERS, REPLIES),
    "L3": REAL,
}
REAL_SHARE: Final = 0.2  # of the time, for the layers of L3

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
        elif name in EVERY:
            found.add(name)
        else:
            raise click.BadParameter(f"{name!r} is not one of {', '.join((*SETS, *EVERY))}")
    return found


@click.group(
    cls=LazyGroup,
    table=CRASH,
    invoke_without_command=True,
    epilog=examples(
        "tidelog crash",
        "tidelog crash --for 10m --policy no --seed 7",
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
    help=f"Layers to try, separated by commas: {', '.join(EVERY)}. Also sets of them: "
    + "; ".join(f"{name} is {' '.join(each)}" for name, each in SETS.items() if name != "all")
    + "; all is all of them.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(POLICIES),
    help="The fsync policy of the stores; repeat the option for several. Without it, all three.",
)
@time_option("Begin no further workload after this time.", 60.0)
@seed_option
@click.option(
    "--jobs",
    type=click.IntRange(1, 256),
    help="Number of processes. Without it, one for each processor.",
)
@keep_option
@model_option
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False, writable=True),
    help="Put the stores of rot, errors, calls, kill and servers into this directory, and remove them afterwards.",
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
    help="With a command as --subject: a command that fails if {dir} lacks anything that the file {told} promises.",
)
@json_option()
@click.pass_context
def command(
    ctx: click.Context,
    layers: set[str],
    policies: tuple[str, ...],
    seconds: float,
    seed: str | None,
    jobs: int | None,
    keep: Path,
    model: str | None,
    directory: Path | None,
    mutants: bool,
    subjects: tuple[Task, ...],
    check: str,
    as_json: bool,
) -> int:
    if ctx.invoked_subcommand is not None:
        return exits.OK
    if mutants:
        return bite(as_json)
    if directory is not None and not layers & set(FILES):
        raise click.UsageError(f"--dir is for the layers {', '.join(FILES)}")
    if subjects:
        return others.run(subjects, check, seconds, seed, keep, as_json, model or ORDERED)
    if check:
        raise click.UsageError("--check is for --subject")
    session = Session(seed, keep, as_json, model or STRICT)
    jobs = jobs or len(os.sched_getaffinity(0))
    if directory is not None:
        _check_room(directory, jobs)
    order = tuple(layer for layer in EVERY if layer in layers)
    session.say(
        f"layers {', '.join(order)}, fsync {', '.join(policies or POLICIES)}, {jobs} processes, seed {session.seed}"
    )

    before = Report()  # of file systems of this machine

    def tell(so_far: Report) -> None:
        session.report = Report()
        session.report.add(before)
        session.report.add(so_far)
        if sys.stderr.isatty():
            distinct = sum(counts.distinct for counts in so_far.counts.values())
            click.echo(f"\r{distinct:,} images, {session.seconds:.0f} s ", err=True, nl=False)

    with session.running(order) as place, ExitStack() as held:
        files = place
        if directory is not None:
            files = held.enter_context(scratch(session.say, directory))
            session.say(f"directory {directory}: {words_of(files)}")
            session.say(UNSEEN)
        real = [layer for layer in order if layer in REAL]
        here = [layer for layer in order if layer in LAYERS]
        end = seconds
        if real:
            share = REAL_SHARE * end if here else end
            enough = lambda: session.seconds >= share  # noqa: E731
            cut_machine(real, policies or POLICIES, session.seed, place, session.report, enough)
        if here and not session.report.findings:
            before.add(session.report)
            work = tasks(set(here), list(policies or POLICIES), session.seed)
            try:
                run(work, place, jobs, max(0.0, end - session.seconds), tell, files)
            except (CrashError, TidelogError, OSError) as error:
                _check_filled(directory, jobs, error)
                raise
            finally:
                if sys.stderr.isatty():
                    click.echo(err=True)
            if session.report.findings:
                _check_filled(directory, jobs)
    return session.code


class Filled(OSError):
    """The directory of the user has no room any more. The text says which."""


def _check_filled(directory: Path | None, jobs: int, error: Exception | None = None) -> None:
    """Raises Filled if others took the room of a directory: what was found there then means nothing.

    The stores are removed by now, so as much as at the beginning should be free.
    """
    if directory is not None and (free := RealDisk().free(directory)) < jobs * ROOM_BYTES:
        raise Filled(
            f"{directory} filled up while the bench worked in it, and has {free:,} bytes free now, so nothing is proved"
        ) from error


def _check_room(directory: Path, jobs: int) -> None:
    """Raises ClickException if a directory has no room for the stores of `jobs` processes."""
    free = RealDisk().free(directory)
    needed = jobs * ROOM_BYTES
    if free < needed:
        raise CannotRun(
            f"{directory} has {free:,} bytes free, and {jobs} processes need {needed:,}: name another directory, or "
            "fewer --jobs"
        )
