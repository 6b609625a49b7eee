"""Session: the common part of the commands that run the bench: their options, their scratch directory, their ending."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import click

from tidelog.crash import report as reports
from tidelog.crash.errors import CrashError
from tidelog.crash.explore import Finding, Report
from tidelog.crash.notes import notes
from tidelog.crash.served import be_quiet
from tidelog.crash.shrink import shrink
from tidelog.crash.trace import versions
from tidelog.disk.real import RealDisk
from tidelog.store.errors import TidelogError
from tidelog.testing.scratch import scratch
from tidelog.tools import console, exits
from tidelog.tools.crash.blocks import RECORDED
from tidelog.tools.crash.models import ORDERED, STRICT, on_ordered
from tidelog.tools.queue.stats import a_number

SHRINK_SECONDS: Final = 30.0

F = TypeVar("F", bound=Callable[..., Any])
# The head of a table, its rows, and the same for --json.
Shown = tuple[Sequence[str], list[list[str]], dict[str, Any]]


def minutes_option(default: float) -> Callable[[F], F]:
    """The option --minutes."""
    return click.option(
        "--minutes",
        default=default,
        show_default=True,
        type=click.FloatRange(0, 10_000),
        callback=a_number,
        help="Begin no further workload after this time.",
    )


seed_option = click.option(
    "--seed", help="Seed of everything random. It is printed, so that you can repeat a run."
)
keep_option = click.option(
    "--keep",
    default="crash-findings",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Write findings into this directory. It is created with the first one.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


class CannotRun(click.ClickException):
    """The system refuses what the bench needs."""

    exit_code = exits.SYSTEM


class Session:
    """One run of a command of the bench.

    seed     drawn, if the user gave none
    report   the counts and findings so far. The command keeps it up to date
    code     the exit code, when `running` has ended: SYSTEM if nothing could be run
    ordered  of each kept finding, whether an ordered file system can show it, with the model ORDERED
    """

    def __init__(self, seed: str | None, keep: Path, as_json: bool, model: str = STRICT) -> None:
        be_quiet()
        self.seed = secrets.token_hex(4) if seed is None else seed
        self.report = Report()
        self.code = exits.OK
        self._keep = keep
        self.as_json = as_json
        self._model = model
        self.ordered: dict[Path, str] = {}
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the session began."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Print a line for people. With --json it goes to stderr."""
        click.echo(text, err=self.as_json)

    @contextmanager
    def running(self, layers: tuple[str, ...]) -> Iterator[Path]:
        """Meanwhile there is a scratch directory. At the end findings are kept and the table of `layers` is printed.

        Ctrl-C ends the body, and the table shows what was done. Raises ClickException for an error of the bench.
        """
        kept: list[Path] = []
        interrupted = False
        with scratch(self.say) as place:
            try:
                yield place
                kept = [
                    keep_finding(each, self._keep, place, self.smaller)
                    for each in self.report.findings
                ]
                if self._model == ORDERED:
                    self.ordered = {
                        path: on_ordered(reports.load(RealDisk(), path), place / "ordered")
                        for path in kept
                    }
            except KeyboardInterrupt:
                interrupted = True
            except CrashError as error:
                raise click.ClickException(f"{error} (seed {self.seed})") from error
            except (OSError, TidelogError) as error:
                raise CannotRun(f"the bench itself failed: {error} (seed {self.seed})") from error
        self.show(layers, kept)
        if interrupted:
            click.echo("interrupted", err=True)
            self.code = exits.INTERRUPTED
        elif self.report.findings:
            self.code = exits.FAILED
        elif self.report.not_run and set(layers) <= set(self.report.not_run):
            self.code = exits.SYSTEM

    def smaller(self, finding: Finding, room: Path) -> Finding:
        """A smaller finding of the same kind. `room` is an existing empty directory."""
        return _shrunk(finding, room)

    def show(self, layers: tuple[str, ...], kept: list[Path]) -> None:
        """Print the result: one JSON object, or the table and the kept findings in words."""
        show(self.report, layers, self.seed, self.seconds, kept, self.as_json, self.ordered)


def _shrunk(finding: Finding, room: Path) -> Finding:
    return shrink(finding, room, SHRINK_SECONDS)


def keep_finding(
    finding: Finding,
    keep: Path,
    place: Path,
    smaller: Callable[[Finding, Path], Finding] = _shrunk,
) -> Path:
    """Make a finding smaller, and write it into a new directory."""
    disk = RealDisk()
    room = place / "shrink"
    disk.mkdir(room)
    try:
        if finding.layer not in RECORDED:  # it is one image of a disk
            finding = smaller(finding, room)
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
    ordered: Mapping[Path, str] = MappingProxyType({}),
) -> None:
    """Print the table of the layers, and the findings in words."""
    found = {
        layer: {
            **vars(report.of(layer)),
            "seconds": round(report.of(layer).seconds, 1),
            "not_run": reports.why_not_run(report, layer) or None,
        }
        for layer in layers
    }
    data: dict[str, Any] = {"layers": found}
    if as_json:
        data["notes"] = notes(report)
    shown = reports.HEAD, reports.rows(report, layers), data
    show_table(shown, seed, seconds, kept, as_json, ordered)
    if not as_json:
        for line in notes(report):
            click.echo(line)


def show_table(
    shown: Shown,
    seed: str,
    seconds: float,
    kept: list[Path],
    as_json: bool,
    ordered: Mapping[Path, str] = MappingProxyType({}),
) -> None:
    """Print a table, and the findings in words. `ordered` says of some whether an ordered file system shows them."""
    head, rows, data = shown
    if as_json:
        found: dict[str, Any] = {
            "seed": seed,
            "seconds": round(seconds, 1),
            "versions": versions(),
            **data,
            "findings": [str(path) for path in kept],
        }
        if ordered:
            found["ordered"] = {str(path): words for path, words in ordered.items()}
        click.echo(json.dumps(found))
        return
    console.table(head, rows, right=" ".join(head[1:]))
    click.echo(f"{seconds:.0f} s, seed {seed}")
    for path in kept:
        for line in reports.describe(reports.load(RealDisk(), path)):
            click.echo(line)
        if path in ordered:
            click.echo(f"on an ordered file system: {ordered[path]}")
        click.echo(f"try it again: tidelog crash replay {path}")
