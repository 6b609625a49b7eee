"""`tidelog bench`: measure this store beside its baselines, on the reader's own machine and disk."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from tidelog.aof.errors import AofError
from tidelog.store.errors import TidelogError
from tidelog.tools import exits
from tidelog.tools.bench import machine, report, subjects
from tidelog.tools.bench.bench import Bench
from tidelog.tools.bench.figure import Figure
from tidelog.tools.text import examples

# fmt: off
ROUNDS, SLICE_S = 15, 0.1
QUICK_ROUNDS, QUICK_SLICE_S = 5, 0.05
# fmt: on
NAMES = "; ".join(f"{name}: {about}" for name, about in subjects.SUBJECTS.items())


@click.command(
    help="Measure tidelog beside other queues on this machine.",
    epilog=f"Subjects: {NAMES}.\n\n"
    + examples(
        "tidelog bench --quick",
        "tidelog bench --only xadd --only always",
        codes=(exits.OK, exits.FAILED, exits.USAGE, exits.SYSTEM),
    ),
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(subjects.SUBJECTS)),
    help="Measure only this subject; may be repeated.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Measure fewer and shorter slices with less data, for a first look.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help=(
        "Directory to measure in. Default: the system's temporary directory, or the current one if that is in memory."
    ),
)
@click.option(
    "--memory-disk",
    is_flag=True,
    help="Allow a directory on tmpfs; its figures say nothing about disks.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Also write the figures to this file.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 1 if a target is not met, or a subject ended with an error.",
)
def command(
    only: tuple[str, ...],
    quick: bool,
    directory: Path | None,
    memory_disk: bool,
    json_path: Path | None,
    check: bool,
) -> None:
    where = directory or _default_directory()
    if machine.file_system(where) in machine.MEMORY_FILE_SYSTEMS and not memory_disk:
        raise click.UsageError(
            f"{where} is on {machine.file_system(where)}, which syncs nothing. Name a directory on a disk with --dir, "
            "or allow this one with --memory-disk"
        )
    facts = machine.describe(where)
    chosen = [name for name in subjects.SUBJECTS if not only or name in only]
    own = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=where))
    try:
        rows, missing = _measure(own, chosen, quick=quick)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    report.show_table(Console(width=_width()), facts, rows, missing)
    if json_path is not None:
        json_path.write_text(json.dumps(report.as_json(facts, rows, missing), indent=2) + "\n")
    if check and (any(name in missing for name in chosen) or any(row.met is False for row in rows)):
        raise SystemExit(1)


def _measure(own: Path, chosen: list[str], *, quick: bool) -> tuple[list[Figure], dict[str, str]]:
    rounds, slice_s = (QUICK_ROUNDS, QUICK_SLICE_S) if quick else (ROUNDS, SLICE_S)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    rows: list[Figure] = []
    with (
        Bench(own, rounds, slice_s, quick) as run,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=len(chosen))
        for name in chosen:
            progress.update(task, description=subjects.SUBJECTS[name])
            try:
                rows += subjects.rows(name, run)
            except (RuntimeError, TidelogError, AofError, OSError) as error:
                # Hours of the other subjects must not be lost with this one.
                run.missing[name] = f"it ended with an error: {error}"
            progress.advance(task)
        return rows, run.missing


def _default_directory() -> Path:
    usual = Path(tempfile.gettempdir())
    in_memory = machine.file_system(usual) in machine.MEMORY_FILE_SYSTEMS
    return Path.cwd() if in_memory else usual


def _width() -> int | None:
    """A file or a pipe gets the whole table; a terminal decides for itself."""
    return None if sys.stdout.isatty() else 150


def main() -> None:
    command(prog_name="tidelog bench")
