"""Session: the common part of the commands that run the bench: their options, their scratch directory, their ending."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidelog.crash import report as reports
from tidelog.crash.errors import CrashError
from tidelog.crash.explore import Finding, Report
from tidelog.crash.served import be_quiet
from tidelog.crash.shrink import shrink
from tidelog.crash.trace import versions
from tidelog.disk.real import RealDisk
from tidelog.tools import console, exits
from tidelog.tools.crash.scratch import scratch
from tidelog.tools.queue.stats import a_number

SHRINK_SECONDS: Final = 30.0

F = TypeVar("F", bound=Callable[..., Any])


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


class Session:
    """One run of a command of the bench.

    seed     drawn, if the user gave none
    report   the counts and findings so far. The command keeps it up to date
    code     the exit code, when `running` has ended
    """

    def __init__(self, seed: str | None, keep: Path, as_json: bool) -> None:
        be_quiet()
        self.seed = secrets.token_hex(4) if seed is None else seed
        self.report = Report()
        self.code = exits.OK
        self._keep = keep
        self._as_json = as_json
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """The time since the session began."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """Print a line for people. With --json it goes to stderr."""
        click.echo(text, err=self._as_json)

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
                kept = [keep_finding(each, self._keep, place) for each in self.report.findings]
            except KeyboardInterrupt:
                interrupted = True
            except CrashError as error:
                raise click.ClickException(f"{error} (seed {self.seed})") from error
            except OSError as error:
                raise click.ClickException(f"the bench itself failed: {error}") from error
        show(self.report, layers, self.seed, self.seconds, kept, self._as_json)
        if interrupted:
            click.echo("interrupted", err=True)
            self.code = exits.INTERRUPTED
        elif self.report.findings:
            self.code = exits.FAILED


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
