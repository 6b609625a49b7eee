"""Small suites, run by real pytest processes, on which the gate is tried."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.gate.report import Report, read
from tests.gate.unsteady import RUN

ROOT = Path(__file__).parents[2]
QUICK = "xdist.plugin,pytest_timeout,tests.gate.report"
WHOLE = "xdist.plugin,pytest_timeout,tests.conftest"  # with the scheduler of the tests

# `tries` is the number of times that a test was begun, this one included.
HEAD = """
import os, time
from pathlib import Path
import pytest
from tests import until
from tests.until import until as wait

until.PATIENCE_S = 0.0

def tries(name):
    with Path(name).open("a") as file:
        file.write("x")
        return file.tell()
"""


class Suite(NamedTuple):
    """A project whose tests are at the paths of real ones, so that the patterns of strict tests fit them."""

    root: Path

    def write(self, file: str, body: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD + body)

    def run(self, *words: str, plugins: str = QUICK) -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # half of the time of a small run
            "PYTEST_PLUGINS": plugins,
            "PYTEST_ADDOPTS": "--import-mode=importlib",
            RUN: "one run",
        }
        for name in [each for each in environ if each.startswith("PYTEST_XDIST")]:
            del environ[name]
        return subprocess.run(
            [sys.executable, "-m", *words],
            cwd=self.root,
            env=environ,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def first(self, *words: str, plugins: str = QUICK) -> Report:
        """The report of the first run."""
        done = self.run("pytest", "-q", "--gate-report", "report", *words, plugins=plugins)
        assert self.report.exists(), done.stdout + done.stderr
        return read(self.report)

    def again(self, plugins: str = QUICK) -> tuple[int, list[str]]:
        """(status of the gate, the lines that it prints itself at the end)."""
        done = self.run("tests.gate.again", "report", plugins=plugins)
        assert not done.stderr, done.stderr
        assert not self.report.exists()
        own = ("unsteady: ", "the gate fails: ")
        return done.returncode, [line for line in done.stdout.splitlines() if line.startswith(own)]

    @property
    def report(self) -> Path:
        return self.root / "report"

    def tries(self, name: str) -> int:
        path = self.root / name
        return path.stat().st_size if path.exists() else 0
