"""Faults that are planted for everybody to see: they fit the source, one is found, and a miss says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.mutants.gate import ROOT

from tidelog.crash.logs import LOG
from tidelog.crash.mutants import BY_NAME, PLANTED, Planted
from tidelog.crash.run import LAYERS
from tidelog.crash.workloads import POLICIES
from tidelog.tools import exits
from tidelog.tools.crash.bite import bite, search

FAULT = BY_NAME["log/no-fdatasync"]
SECONDS = 400.0  # nearly all are found in a few
# These take ten seconds to a minute.
LONG = {
    ("log/header-knows-its-own-lsn", "always"),
    ("reader/any-later-frame-is-proof", "always"),
    ("checkpoints/released-before-commit", "always"),
    ("checkpoints/released-before-commit", "everysec"),
    ("checkpoints/sync-one-short", "everysec"),
    ("checkpoints/sync-one-short", "no"),
    ("queue/done-and-in-two-units", "always"),
}


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_a_fault_stands_in_the_source_once(fault: object) -> None:
    assert fault in PLANTED
    each = next(planted for planted in PLANTED if planted == fault)
    assert (ROOT / each.file).read_text().count(each.anchor) == 1
    assert each.layer in LAYERS
    assert [*each.policies] == [policy for policy in POLICIES if policy in each.policies] != []


def test_a_fault_is_found_and_nothing_is_left(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert bite(False, (FAULT,)) == exits.OK
    # Another run that was killed meanwhile may have left a directory, which this one says that it clears.
    *_, first, last = capsys.readouterr().out.splitlines()
    assert FAULT.name in first and FAULT.promise in first
    assert last == "1 of 1 planted faults found"


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("fault", "policy"),
    [
        pytest.param(
            *(each, policy),
            id=f"{each.name}-{policy}",
            marks=pytest.mark.soak if (each.name, policy) in LONG else pytest.mark.slow,
        )
        for each in PLANTED
        for policy in each.policies
    ],
)
def test_each_fault_is_found_under_each_of_its_policies(
    fault: Planted, policy: str, tmp_path: Path
) -> None:
    caught = search(fault, policy, tmp_path, SECONDS)
    assert caught.kind, caught.words


def test_a_fault_that_is_none_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert bite(True, (FAULT._replace(anchor="no such text"),)) == exits.FAILED
    (missed,) = json.loads(capsys.readouterr().out)["mutants"]
    assert missed["kind"] == ""


def test_a_miss_says_why(tmp_path: Path) -> None:
    none = FAULT._replace(replacement=FAULT.anchor + "\n")
    caught = search(none, "always", tmp_path, 0.0)
    assert (caught.kind, caught.words) == ("", f"the layer {LOG} found nothing in 0 s")
    elsewhere = FAULT._replace(
        file="tools/digest.py",
        anchor="from __future__ import annotations\n",
        replacement="from __future__ import annotations\n\n",
    )
    (tmp_path / "planted").unlink()
    assert (
        search(elsewhere, "always", tmp_path, 0.0).words
        == "no module of tools/digest.py was loaded"
    )
    broken = FAULT._replace(anchor="no such text")
    assert "the anchor must be there exactly once" in search(broken, "always", tmp_path, 0.0).words
