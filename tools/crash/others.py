"""`tidelog crash --subject`: crash other stores, or a program of the user, and see whether they keep their promises."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click

from tidelog.crash import report as reports
from tidelog.crash.errors import Mismatch
from tidelog.crash.explore import Finding
from tidelog.crash.preload.library import RECORD, NoCompiler, build
from tidelog.crash.subjects.bench import PROGRAM, Result, Task, counts_in, crash, smaller
from tidelog.crash.subjects.judges import DIR
from tidelog.crash.subjects.registry import GROUPS, SUBJECTS
from tidelog.crash.subjects.subject import FAULTS, CannotRun
from tidelog.disk import recipe
from tidelog.disk.real import RealDisk
from tidelog.tools import exits
from tidelog.tools.crash.session import SHRINK_SECONDS, Session, Shown

ALL: Final = "all"
NUMBERS: Final = ("tried", "distinct", "lost", "refused", "wrong", "died")
HEAD: Final = ("subject", "fault", *NUMBERS, "beyond")
GIVEN: Final = (ALL, *GROUPS, "the name of one setting", f"a command with {DIR}")


def tasks_of(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> tuple[Task, ...]:
    """The tasks that --subject names, each once. The check of a command is not in them yet."""
    found: dict[Task, None] = {}
    for each in given:
        if each == ALL:
            names = list(SUBJECTS)
        elif each in GROUPS:
            names = [subject.name for subject in GROUPS[each]]
        elif each in SUBJECTS:
            names = [each]
        elif DIR in each:
            names = []
            found[Task(PROGRAM, each)] = None
        else:
            raise click.BadParameter(f"{each!r} is not one of {', '.join(GIVEN)}")
        found.update(dict.fromkeys(Task(name) for name in names))
    return tuple(found)


class Others(Session):
    """A run over subjects."""

    def __init__(self, seed: str | None, keep: Path, check: str, as_json: bool, model: str) -> None:
        super().__init__(seed, keep, as_json, model)
        self.results: list[Result] = []
        self.not_run: dict[str, str] = {}
        self._check = check

    def smaller(self, finding: Finding, room: Path) -> Finding:
        end = time.monotonic() + SHRINK_SECONDS
        return smaller(finding, room, self._check, lambda: time.monotonic() >= end)

    def counts(self, path: Path, place: Path) -> bool:
        return counts_in(reports.load(RealDisk(), path), self._model)

    def _result(self) -> Shown:
        rows = []
        data = []
        for result in self.results:
            for fault in FAULTS:
                counts, beyond = result.counts[fault], result.beyond[fault]
                numbers = [getattr(counts, name) for name in NUMBERS]
                name = result.task.name if fault == FAULTS[0] else ""
                rows.append([name, fault, *(f"{number:,}" for number in (*numbers, beyond))])
                shown = dict(zip(NUMBERS, numbers, strict=True))
                data.append(
                    {"subject": result.task.name, "fault": fault, **shown, "beyond": beyond}
                )
        promises = {result.task.name: result.task.promise for result in self.results}
        said = {result.task.name: result.said for result in self.results}
        return HEAD, rows, {
            "subjects": data, "promises": promises, "said": said, "not_run": self.not_run
        }  # fmt: skip

    def _say_once(self, title: str, said: list[tuple[str, str]]) -> None:
        """Print each text once, with the names that it is for."""
        names: dict[str, list[str]] = {}
        for text, name in said:
            names.setdefault(text, []).append(name)
        for text, of in names.items():
            self.say(": ".join(filter(None, (title, text))) + f" ({', '.join(of)})")

    def show(self, layers: tuple[str, ...], kept: list[Path]) -> None:
        if not self.as_json:
            self._say_once("promised", [(r.task.promise, r.task.name) for r in self.results])
            self._say_once("", [(line, r.task.name) for r in self.results for line in r.said])
        for name, reason in self.not_run.items():
            self.say(f"{name}: not run: {reason}")
        self.show_table(self._result(), kept)


def run(
    tasks: tuple[Task, ...],
    check: str,
    seconds: float,
    seed: str | None,
    keep: Path,
    as_json: bool,
    model: str,
) -> int:
    """Crash each of the subjects for its share of the time."""
    if any(task.command for task in tasks) != bool(check):
        raise click.UsageError("a command as --subject needs a --check, and only a command has one")
    tasks = tuple(task._replace(check=check) if task.command else task for task in tasks)
    session = Others(seed, keep, check, as_json, model)
    session.say(f"subjects {', '.join(task.name for task in tasks)}, seed {session.seed}")
    share = seconds / len(tasks)
    disk = RealDisk()
    with session.running(()) as place:
        try:
            library = build(place, RECORD)
        except NoCompiler as error:
            session.not_run = {task.name: str(error) for task in tasks}
            tasks = ()
        for task in tasks:
            room = place / "subject"
            disk.mkdir(room)
            end = time.monotonic() + share

            def began() -> None:
                nonlocal end
                end = time.monotonic() + share

            try:
                result = crash(
                    task, room, library, session.seed, lambda: time.monotonic() >= end, began=began
                )
                session.results.append(result)
                session.report.findings += result.findings
            except Mismatch as error:
                session.wrong.append(f"{task.name}: {error}")
            except CannotRun as error:
                session.not_run[task.name] = str(error)
            finally:
                recipe.remove_tree(disk, room)
    return session.code or (exits.OK if session.results else exits.SYSTEM)
