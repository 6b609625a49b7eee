"""The command line of the bench: what it refuses, what it reports, how it exits."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench import machine, subjects
from bench.command import command, missed
from bench.figure import Bound, Figure
from bench.run import Run
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
README = ROOT / "bench/README.md"


@pytest.fixture
def one_subject(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Replaces what is measured by two rows made up; gives the directories that were used."""
    used: list[Path] = []

    def rows(subject: str, run: Run) -> Iterator[Figure]:
        used.append(run.directory)
        yield Figure("quick thing", "/s", 500, {"bare": 1000}, (Bound(0.4, "bare"),))
        yield Figure("slow thing", "us", 7, {}, (Bound(3, most=True),), "by hand")

    monkeypatch.setattr(subjects, "rows", rows)
    return used


def test_memory_file_systems_are_refused_unless_one_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_subject: list[Path]
) -> None:
    monkeypatch.setattr(machine, "file_system", lambda directory: "tmpfs")
    arguments = ["--only", "xadd", "--dir", str(tmp_path)]
    refused = CliRunner().invoke(command, arguments)
    assert refused.exit_code == 2
    assert "tmpfs" in refused.output and not one_subject
    assert CliRunner().invoke(command, [*arguments, "--memory-disk"]).exit_code == 0


def test_the_table_the_json_and_the_exit_codes(tmp_path: Path, one_subject: list[Path]) -> None:
    figures = tmp_path / "figures.json"
    arguments = ["--only", "xadd", "--dir", str(tmp_path), "--json", str(figures), "--memory-disk"]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0
    for text in ("quick thing", "500/s", "0.50", ">= 0.4 x bare", "not met", "1 of 2 targets met"):
        assert text in done.output
    assert machine.interpreter() in " ".join(done.output.split())
    report = json.loads(figures.read_text())
    assert report["machine"]["python"] == machine.interpreter()
    assert [row["met"] for row in report["rows"]] == [True, False]
    assert CliRunner().invoke(command, [*arguments, "--check"]).exit_code == 1


def test_it_leaves_nothing_behind(tmp_path: Path, one_subject: list[Path]) -> None:
    CliRunner().invoke(command, ["--only", "xadd", "--dir", str(tmp_path), "--memory-disk"])
    assert one_subject[0].parent == tmp_path
    assert not list(tmp_path.iterdir())


def test_a_subject_that_fails_costs_nothing_that_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rows(subject: str, run: Run) -> Iterator[Figure]:
        yield Figure(f"{subject} begins", "/s", 500)
        if subject == "xadd":
            raise RuntimeError("the query read 6 entries of 10")

    monkeypatch.setattr(subjects, "rows", rows)
    arguments = ["--only", "xadd", "--only", "queue", "--dir", str(tmp_path), "--memory-disk"]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0
    for text in ("xadd begins", "queue begins", "xadd was not measured", "read 6 entries of 10"):
        assert text in done.output
    assert CliRunner().invoke(command, [*arguments, "--check"]).exit_code == 1


def test_a_version_that_is_slower_is_missed() -> None:
    equal, slower = Figure("a", "/s", 99, other=100), Figure("b", "/s", 80, other=100)
    assert missed([equal], compared=True) == []
    assert missed([equal, slower], compared=True) == ["b", "geometric mean"]
    assert missed([Figure("c", "/s", 1, target=(Bound(2),))], compared=False) == ["c"]


def test_every_subject_has_a_module() -> None:
    here = Path(subjects.__file__).parent
    modules = {path.stem for path in here.glob("*.py")} - {"__init__"}
    assert modules == set(subjects.SUBJECTS)


def test_every_subject_is_in_the_readme() -> None:
    """In the list, and with what happens in its rows."""
    rows = re.findall(r"^\| `([a-z]+)` \|", README.read_text(), re.MULTILINE)
    assert sorted(rows) == sorted([*subjects.SUBJECTS] * 2)
