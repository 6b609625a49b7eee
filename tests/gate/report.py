"""The report of a run of pytest, as JSON: what failed, and whether the run was whole. `--gate-report FILE` writes it.

It is what `tests.gate.again` reads. The list of failures that pytest's cache keeps will not do: it still has tests that
failed in earlier runs and were not chosen in this one, and it says neither how a test failed nor whether any was lost.

A run is whole if it ended by itself and each test that was collected has finished. It is not if it was interrupted, if
pytest or the collection failed, or if a worker process died between two tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from tests.until import WaitRanOut

SEED: Final = re.compile(r"seed[ =]+(\d+)", re.IGNORECASE)
NOTED_SEED: Final = re.compile(r"^E .*\bseed (\d+)", re.MULTILINE)  # in the error or a note of it
CRASHED: Final = "???"  # the phase of the report that xdist makes for a test in which a worker died
WAITED: Final = "wait_ran_out"  # an attribute of a report: xdist carries those from a worker
NAMED: Final = 10  # lost tests that a sentence names


@dataclass
class Failed:
    """A test that failed. `waits_only` if nothing but waits ran out (`tests.until`); `seconds` of all its phases."""

    test: str
    phases: list[str] = field(default_factory=list)
    seconds: float = 0.0
    seed: int | None = None
    waits_only: bool = True


@dataclass(frozen=True)
class Report:
    """`broken` has a sentence for each reason why the run was not whole."""

    collected: int
    finished: int
    passed: int
    failed: list[Failed]
    broken: list[str]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")


def read(path: Path) -> Report:
    """Raises FileNotFoundError and ValueError."""
    told = json.loads(path.read_text())
    return Report(**{**told, "failed": [Failed(**each) for each in told["failed"]]})


def nothing_but_waits(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(nothing_but_waits, error.exceptions))
    return isinstance(error, WaitRanOut)


class Waits:
    """Marks what failed by a wait, in the process that ran it."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.excinfo is not None and nothing_but_waits(call.excinfo.value):
            setattr(report, WAITED, True)
        return report


class Gatherer:
    """Gathers the report, in the one process of the tests or in the controller of xdist."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.unlink(missing_ok=True)  # so that no run is taken for another one
        self.collected: set[str] = set()
        self.finished: set[str] = set()
        self.passed: set[str] = set()
        self.seconds: dict[str, float] = {}
        self.failed: dict[str, Failed] = {}
        self.broken: list[str] = []
        self.died = self.crashed = 0

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.broken.append(f"{report.nodeid or 'the collection'} could not be collected")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        self.collected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        self.died += error is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        phase = str(report.when)
        self.seconds[test] = self.seconds.get(test, 0.0) + report.duration
        self.crashed += phase == CRASHED
        if phase in ("teardown", CRASHED):
            self.finished.add(test)
        if report.passed and phase == "call":
            self.passed.add(test)
        if report.failed:
            failed = self.failed.setdefault(test, Failed(test))
            failed.phases.append("crash" if phase == CRASHED else phase)
            failed.waits_only &= getattr(report, WAITED, False)
        if test in self.failed:
            failed = self.failed[test]
            failed.seconds = round(self.seconds[test], 3)
            seeds = SEED.findall(report.capstdout) or NOTED_SEED.findall(report.longreprtext)
            failed.seed = int(seeds[-1]) if seeds else failed.seed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, Any, Any]:
        done = yield  # others change the status
        self.report(int(session.exitstatus)).write(self.path)
        return done

    def report(self, status: int) -> Report:
        broken = list(self.broken)
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            broken.append(f"pytest ended with status {status} ({_name(status)})")
        elif (status == pytest.ExitCode.TESTS_FAILED) != bool(self.failed) and not broken:
            broken.append(f"pytest ended with status {status}, and {len(self.failed)} tests failed")
        if self.died > self.crashed:
            broken.append(f"{self.died - self.crashed} workers died, and not in a test")
        lost = sorted(self.collected - self.finished)
        if lost:
            broken.append(f"{len(lost)} tests did not finish: {_some(lost)}")
        passed = len(self.passed - self.failed.keys())
        failed = [*self.failed.values()]
        return Report(len(self.collected), len(self.finished), passed, failed, broken)


def _name(status: int) -> str:
    known = {each.value: each.name for each in pytest.ExitCode}
    return known.get(status, "unknown").lower().replace("_", " ")


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:NAMED], *(["..."] if len(names) > NAMED else [])])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gate-report",
        metavar="FILE",
        help="write what failed, and whether the run was whole, as JSON",
    )


def pytest_configure(config: pytest.Config) -> None:
    path: str | None = config.getoption("--gate-report")
    if path is not None:
        config.pluginmanager.register(Waits())
        if not hasattr(config, "workerinput"):
            config.pluginmanager.register(Gatherer(Path(path)))
