"""The parts of the gate: all of them run, each beside its budget, and one that fails fails the gate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.gate import __main__ as gate
from tests.gate import unsteady
from tests.gate.unsteady import Unsteady

ROOT = Path(__file__).parents[2]
BUDGET = """
reserve = 5
part = [
    {name = "first", seconds = 10, make = ["--jobs=2 right", "wrong"]},
    {name = "second", seconds = 0, make = ["right"]},
    {name = "tests", seconds = 10, make = ["tests"], tries_again = true},
]
"""
MAKEFILE = """
right:
\t@echo right >> made
\t@sleep 0.6
wrong:
\t@echo wrong >> made
\t@exit 3
tests:
\t@echo $(PYTEST) >> made
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a gate of its own, in which we stand."""
    (tmp_path / "Makefile").write_text(MAKEFILE)
    (tmp_path / "budget.toml").write_text(BUDGET)
    monkeypatch.setattr(gate, "ROOT", tmp_path)
    monkeypatch.setattr(gate, "BUDGET", tmp_path / "budget.toml")
    monkeypatch.setattr(gate, "REPORTS", tmp_path / ".gate")
    monkeypatch.setenv(unsteady.RUN, "")  # what the gate sets ends with the test
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MAKEFLAGS", "")  # of a make that runs this test
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_parts_run_and_one_that_fails_fails_the_gate(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert gate.main([]) == 1
    made = (place / "made").read_text().splitlines()
    assert made == ["right", "wrong", "right", "--gate-report .gate/tests.json"]
    lines = capfd.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("part "))
    _, first, second, tests, together = lines[at:]
    assert re.fullmatch(r"first +10 s +\d s  failed: make wrong", first)
    assert re.fullmatch(r"second +0 s +1 s  1 s over", second)
    assert re.fullmatch(r"tests +10 s +\d s  failed: make tests", tests)  # pytest left no report
    assert re.fullmatch(r"together +25 s +\d s", together)
    assert any("pytest ended without a report" in line for line in lines[:at])


def test_one_part_by_its_name(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert gate.main(["second"]) == 0
    assert (place / "made").read_text() == "right\n"
    assert gate.main(["third"]) == 2
    assert capfd.readouterr().err == ("'third' is not a part of the gate: first, second, tests\n")


def test_unsteady_tests_of_this_run_are_told_last(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(unsteady.RUN, "this")
    found = [
        Unsteady(f"tests/a.py::test_{run}", 5, 1.0, run, "2026-11-25") for run in ("this", "old")
    ]
    unsteady.keep(found)
    assert gate.main(["second"]) == 0
    assert capfd.readouterr().out.splitlines()[-1] == (
        "unsteady: tests/a.py::test_this, seed 5, 1.0 s"
    )


def test_the_budget_is_twenty_minutes_for_targets_that_there_are() -> None:
    parts, reserve = gate.budget()
    assert sum(part.seconds for part in parts) + reserve == 1200
    makefile = (ROOT / "Makefile").read_text()
    for part in parts:
        for words in part.make:
            (target,) = [word for word in words.split() if "-" not in word[:1] and "=" not in word]
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), words
        assert not part.tries_again or len(part.make) == 1
