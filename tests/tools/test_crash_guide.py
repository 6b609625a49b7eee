"""The guide of the crash bench shows what the command prints now, and names every layer and set of layers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidelog.crash.explore import Report
from tidelog.crash.notes import notes
from tidelog.crash.report import HEAD, rows
from tidelog.crash.small import SMALL
from tidelog.crash.workloads import POLICIES
from tidelog.tools.crash.command import EVERY, SETS
from tidelog.tools.crash.cutting import REAL
from tidelog.tools.text import columns

GUIDE = (Path(__file__).parents[2] / "docs/guides/crash.md").read_text()
# The runs whose table is shown: command, lines.
RUNS = {
    command: text.splitlines()
    for command, text in re.findall(r"```console\n[$#] ([^\n]*)\n(layers .*?)```", GUIDE, re.DOTALL)
}
LAYERS = re.compile(r"layers ([a-z0-9, -]+?), (?:fsync|of Linux) ")


def layers_in(lines: list[str]) -> list[str]:
    match = LAYERS.match(lines[0])
    assert match is not None, lines[0]
    return match[1].split(", ")


def test_the_runs_are_of_a_user_and_of_root() -> None:
    assert [command.partition(" --")[0] for command in RUNS] == [
        "tidelog crash",
        "tidelog crash machine",
    ]
    every, machine = RUNS.values()
    assert layers_in(every) == [*EVERY]
    assert layers_in(machine) == [*REAL]


@pytest.mark.parametrize("command", RUNS)
def test_a_table_is_as_the_command_prints_it(command: str) -> None:
    lines = RUNS[command]
    at = next(number for number, line in enumerate(lines) if line.startswith("layer "))
    found = [re.split(r"  +", line.strip()) for line in lines[at + 1 :]]
    layers = layers_in(lines)
    table = found[: len(layers)]
    assert [row[0] for row in table] == layers
    # A layer that was run to its end has nothing in the last column.
    whole = [[*row, ""] if len(row) == len(HEAD) - 1 else row for row in table]
    assert {len(row) for row in whole} == {len(HEAD)}
    assert columns(HEAD, whole, " ".join(HEAD[1:])).splitlines() == lines[at : at + 1 + len(layers)]
    for row in whole:
        assert row[-1] or row[5:9] == ["0"] * 4, row


def test_a_layer_that_was_not_run_is_shown_as_one() -> None:
    reason = "only root may mount a file system"
    shown = [[*map(str, row)] for row in rows(Report(not_run=dict.fromkeys(REAL, reason)), REAL)]
    every, _ = RUNS.values()
    assert [re.split(r"  +", line) for line in every if line.endswith(reason)] == shown


def test_the_lines_below_the_table_are_those_of_the_notes() -> None:
    every, *_ = RUNS.values()
    below = every[2 + len(EVERY) :]
    assert re.fullmatch(r"\d+ s, seed 7", below[0])
    report = Report(small={policy: {0} for policy in POLICIES[:2]})
    report.of("store").again = report.of("checkpoints").again = 1
    shape = lambda line: re.sub(r"[\d,.]+", "N", line)  # noqa: E731
    assert sorted(map(shape, below[1:])) == sorted(map(shape, notes(report)))


def test_every_layer_and_set_has_a_row() -> None:
    _, _, text = GUIDE.partition("## Layers\n")
    named = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \| ", text, re.MULTILINE)
    layers = [name for row in named for name in re.findall(r"`([a-z-]+)`", row)]
    assert {*layers[: len(EVERY)]} == {*EVERY} and SMALL in layers
    for name, of in SETS.items():
        if name != "all":
            row = re.search(rf"^\| `{name}` \| (.*) \|$", text, re.MULTILINE)
            assert row is not None, name
            assert set(re.findall(r"`([a-z-]+)`", row[1])) == {*of}, name
