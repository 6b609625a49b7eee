"""Session: the common part of the commands that run the bench: their options, their scratch directory, their ending."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import click

from tidelog.crash import report as reports
from tidelog.crash.errors import CrashError, Mismatch
from tidelog.crash.explore import Finding, Report
from tidelog.crash.notes import notes
from tidelog.crash.served import be_quiet
from tidelog.crash.shrink import shrink
from tidelog.crash.trace import versions
from tidelog.disk.plain import Kind
from tidelog.disk.readable import readable
from tidelog.disk.real import RealDisk
from tidelog.store.errors import TidelogError
from tidelog.testing.scratch import scratch
from tidelog.tools import console, exits
from tidelog.tools.crash.blocks import RECORDED
from tidelog.tools.crash.models import NOT_FOUND, STRICT, on_ordered
from tidelog.tools.text import path_value
from tidelog.tools.times import Duration, duration, renamed

SHRINK_SECONDS: Final = 30.0

F = TypeVar("F", bound=Callable[..., Any])
# The head of a table, its rows, and the same for --json.
Shown = tuple[Sequence[str], list[list[str]], dict[str, Any]]


def time_option(help: str, default: float | None = None) -> Callable[[F], F]:
    """The option --for of a command that takes `seconds`. `--minutes` is what it was before."""

    def added(function: F) -> F:
        @duration("--for", "seconds", default=default, show_default=default is not None, help=help)
        @click.option("--minutes", type=Duration(0, 100_000), hidden=True)
        @wraps(function)
        def timed(*args: Any, seconds: float | None, minutes: float | None, **more: Any) -> Any:
            return function(*args, seconds=seconds if minutes is None else minutes * 60, **more)

        return cast(F, timed)

    return added


seed_option = click.option(
    "--seed", help="Seed of everything random. It is printed, so that you can repeat a run."
)
keep_option = renamed(
    "--findings",
    "keep",
    formerly=("--keep",),
    default="crash-findings",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Write findings into this directory. It is created with the first one.",
)


class CannotRun(click.ClickException):
    """The system refuses what the bench needs."""

    exit_code = exits.SYSTEM


class Session:
    """One run of a command of the bench.

    seed     drawn, if the user gave none
    report   the counts and findings so far. The command keeps it up to date
    code     the exit code, when `running` has ended: FAILED if a finding counts, SYSTEM if nothing could be run
    ordered  of each kept finding, whether an ordered file system can show it, with the model ORDERED
    notes    the kept findings that the model does not count
    wrong    what stores did wrong without any crash
    """

    def __init__(self, seed: str | None, keep: Path, as_json: bool, model: str) -> None:
        be_quiet()
        self.seed = secrets.token_hex(4) if seed is None else seed
        self.report = Report()
        self.code = exits.OK
        self._keep = keep
        self.as_json = as_json
        self._model = model
        self.ordered: dict[Path, str] = {}
        self.notes: list[Path] = []
        self.wrong: list[str] = []
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
        _make_parents(self._keep)
        with scratch(self.say) as place:
            try:
                yield place
                kept = [
                    keep_finding(each, self._keep, place, self.smaller)
                    for each in self.report.findings
                ]
                self.notes = [path for path in kept if not self.counts(path, place)]
            except KeyboardInterrupt:
                interrupted = True
            except Mismatch as error:
                self.wrong.append(str(error))
            except CrashError as error:
                raise click.ClickException(f"{error} (seed {self.seed})") from error
            except (OSError, TidelogError) as error:
                raise CannotRun(f"the bench itself failed: {error} (seed {self.seed})") from error
        self.show(layers, kept)
        if interrupted:
            click.echo("interrupted", err=True)
            self.code = exits.INTERRUPTED
        elif self.wrong or len(self.report.findings) > len(self.notes):
            self.code = exits.FAILED
        elif self.report.not_run and set(layers) <= set(self.report.not_run):
            self.code = exits.SYSTEM

    def counts(self, path: Path, place: Path) -> bool:
        """Whether the model counts a kept finding. `place`: a directory to try it again."""
        if self._model == STRICT:
            return True
        words = on_ordered(reports.load(RealDisk(), path), place / "ordered")
        self.ordered[path] = words
        return not words.startswith(NOT_FOUND)

    def smaller(self, finding: Finding, room: Path) -> Finding:
        """A smaller finding of the same kind. `room` is an existing empty directory."""
        return _shrunk(finding, room)

    def show(self, layers: tuple[str, ...], kept: list[Path]) -> None:
        """Print the result: one JSON object, or the table and the kept findings in words."""
        shown = shown_layers(self.report, layers, self.as_json)
        self.show_table(shown, kept)
        if not self.as_json:
            for line in notes(self.report):
                click.echo(line)

    def show_table(self, shown: Shown, kept: list[Path]) -> None:
        """Print a table, the findings in words, and which of them are notes."""
        head, rows, data = shown
        if self.as_json:
            found: dict[str, Any] = {
                "seed": self.seed,
                "seconds": round(self.seconds, 1),
                "versions": versions(),
                **data,
                "findings": [path_value(path) for path in kept],
                "not_counted": [path_value(path) for path in self.notes],
                "wrong_without_crash": self.wrong,
            }
            if self.ordered:
                found["ordered"] = {
                    readable(str(path)): words for path, words in self.ordered.items()
                }
            console.json_object(found)
            return
        console.table(head, rows, right=" ".join(head[1:]))
        click.echo(f"{self.seconds:.0f} s, seed {self.seed}")
        for text in self.wrong:
            click.echo(f"wrong: {text}")
        for path in kept:
            for line in reports.describe(reports.load(RealDisk(), path)):
                click.echo(line)
            if path in self.ordered:
                click.echo(f"on an ordered file system: {self.ordered[path]}")
            if path in self.notes:
                click.echo(f"a note only: the model {self._model} does not count it")
            click.echo(f"try it again: tidelog crash replay {path}")


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


def shown_layers(report: Report, layers: tuple[str, ...], as_json: bool) -> Shown:
    """The table of the layers."""
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
    return reports.HEAD, reports.rows(report, layers), data


def _make_parents(keep: Path) -> None:
    """Make the directories above that of the findings now, and not after the run. Raises CannotRun."""
    disk = RealDisk()
    try:
        for parent in reversed(keep.parents):
            if not disk.exists(parent):
                disk.mkdir(parent)
        files = [path for path in (keep, keep.parent) if disk.kind(path) is Kind.FILE]
        if files or not disk.writable(keep.parent):
            raise CannotRun(
                f"--findings {keep}: findings cannot be written there; name another directory"
            )
    except OSError as error:
        raise CannotRun(f"--findings {keep}: {error.strerror}; name another directory") from error
