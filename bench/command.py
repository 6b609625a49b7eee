"""The command line: measure tidelog beside its baselines, or this clone's tidelog beside another one's."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from bench import machine, report, subjects
from bench.figure import Figure, mean
from bench.run import Run, Version
from bench.worker import ROOT

# fmt: off
ROUNDS, SLICE_S = 15, 0.1
QUICK_ROUNDS, QUICK_SLICE_S = 5, 0.05
# fmt: on
LEAST, MEAN_LEAST = 0.9, 0.98  # of a version that is no slower
NAMES: Final = "\n".join(f"  {name:<12} {about}" for name, about in subjects.SUBJECTS.items())


@click.command(
    help="Measure tidelog beside other queues on this machine, or beside another version of itself.",
    epilog=f"\b\nSubjects:\n{NAMES}",
)
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(subjects.SUBJECTS)),
    help="Measure only this subject; may be repeated.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A clone of another version, measured in turns with this one instead of the baselines.",
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
    help=(
        "Exit with 1 if a target is not met, or a subject ended with an error; with --against, if a row is below "
        f"{LEAST} of the other version, or the mean below {MEAN_LEAST}."
    ),
)
def command(
    only: tuple[str, ...],
    against: Path | None,
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
    clones = [ROOT, *([against] if against else [])]
    versions = [Version.of(clone) for clone in clones]
    facts = machine.describe(where)
    for name, clone, version in zip(("this", "other"), clones, versions, strict=False):
        facts[name] = f"tidelog {version.number} of {clone}"
    chosen = [name for name in subjects.SUBJECTS if not only or name in only]
    own = Path(tempfile.mkdtemp(prefix="tidelog-bench-", dir=where))
    try:
        rows, missing = _measure(own, chosen, versions, quick=quick)
    finally:
        shutil.rmtree(own, ignore_errors=True)
    compared = against is not None
    report.show_report(Console(width=_width()), facts, rows, missing, compared=compared)
    if json_path is not None:
        json_path.write_text(json.dumps(report.as_json(facts, rows, missing), indent=2) + "\n")
    if check and (any(name in missing for name in chosen) or missed(rows, compared=compared)):
        raise SystemExit(1)


def missed(rows: list[Figure], *, compared: bool) -> list[str]:
    """The rows that miss their target, or that are slower than in the other version."""
    if not compared:
        return [row.name for row in rows if row.met is False]
    slower = [row.name for row in rows if row.gain is not None and row.gain < LEAST]
    gain = mean(rows)
    return slower + (["geometric mean"] if gain is not None and gain < MEAN_LEAST else [])


def _measure(
    own: Path, chosen: list[str], versions: list[Version], *, quick: bool
) -> tuple[list[Figure], dict[str, str]]:
    rounds, slice_s = (QUICK_ROUNDS, QUICK_SLICE_S) if quick else (ROUNDS, SLICE_S)
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    rows: list[Figure] = []
    with (
        Run(own, rounds, slice_s, quick, versions) as run,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task("", total=len(chosen))
        for name in chosen:
            progress.update(task, description=subjects.SUBJECTS[name])
            try:
                for row in subjects.rows(name, run):
                    rows.append(row)
            except (ImportError, RuntimeError, OSError) as error:
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
