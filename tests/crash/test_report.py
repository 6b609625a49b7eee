"""A finding is a directory that shows itself in words, and can be made smaller and tried again alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.crash.test_explore import AROUND_A_SYNC, EFFORT, explored

from tidelog.crash.errors import BadFinding, BadTrace
from tidelog.crash.explore import Finding, Report, try_again
from tidelog.crash.record import RecordingFile
from tidelog.crash.report import FINDING, TRACE, big, describe, load, rows, save
from tidelog.crash.served import Memory
from tidelog.crash.shrink import minimise, shrink
from tidelog.crash.states import cut_at
from tidelog.crash.trace import unpack
from tidelog.disk.real import RealDisk

DISK = RealDisk()


@pytest.fixture
def finding(monkeypatch: pytest.MonkeyPatch) -> Finding:
    """Of a store whose log is never synced, found under `always`."""
    monkeypatch.setattr(RecordingFile, "fdatasync", lambda self: None)
    (found,) = explored(Memory(), "always", AROUND_A_SYNC, EFFORT._replace(double=0)).findings
    return found


def test_a_finding_comes_back_and_shows_itself_in_words(finding: Finding, tmp_path: Path) -> None:
    save(DISK, tmp_path / "lost-1", finding)
    found = load(DISK, tmp_path / "lost-1")
    assert found == finding
    text = "\n".join(describe(found))
    assert text.startswith(f"{finding.kind}: {finding.words}")
    assert "policy always" in text
    assert f"after operation {finding.time} of" in text
    assert "acknowledged by then: 1 units as fsynced" in text or "units as fsynced" in text
    assert ".aof" in text
    assert '["add", 0, 300]' in text
    fault, _ = try_again(Memory(), unpack(found.trace, "x"), found)
    assert fault is not None and fault.words == finding.words


def test_a_finding_is_made_smaller(finding: Finding, tmp_path: Path) -> None:
    smaller = shrink(finding, tmp_path, 600)
    assert smaller.kind == finding.kind
    trace = unpack(smaller.trace, "x")
    assert len(trace.about["steps"]) == 1
    cut = cut_at(trace, smaller.time)
    assert len(cut.words(smaller.state)) <= len(
        cut_at(unpack(finding.trace, "x"), finding.time).words(finding.state)
    )
    fault, _ = try_again(Memory(), trace, smaller)
    assert fault is not None and fault.words == smaller.words


def test_minimise_leaves_only_what_is_needed() -> None:
    kept = minimise(list(range(50)), lambda part: {3, 17, 40} <= set(part), lambda: False)
    assert kept == [3, 17, 40]
    assert minimise([1, 2], lambda part: True, lambda: False) == []
    assert minimise([1, 2], lambda part: True, lambda: True) == [1, 2]


def test_a_directory_that_is_no_finding(finding: Finding, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(DISK, tmp_path / "missing")
    save(DISK, tmp_path / "f", finding)
    path = tmp_path / "f" / FINDING
    about = json.loads(path.read_text())
    for changed, words in (
        ({"format": 1}, "format 1"),
        ({"time": 10**6}, "names operation"),
        ({"state": [0]}, "names a state"),
        ({"state": None}, "is not a finding"),
    ):
        path.write_text(json.dumps({**about, **changed}))
        with pytest.raises(BadFinding, match=words):
            load(DISK, tmp_path / "f")
    path.write_text("{")
    with pytest.raises(BadFinding, match="is not a finding"):
        load(DISK, tmp_path / "f")
    path.write_text(json.dumps(about))
    (tmp_path / "f" / TRACE).write_bytes(finding.trace[:-1])
    with pytest.raises(BadTrace, match="was cut"):
        load(DISK, tmp_path / "f")


def test_the_table() -> None:
    report = Report()
    report.of("store").there = 3**100
    report.of("store").tried = 1234
    report.of("store").seconds = 7.6
    report.not_run["xfs"] = "no loop device"
    assert rows(report, ("store", "double", "xfs")) == [
        ["store", "5.15e47", "1,234", *["0"] * 6, "8 s", ""],
        ["double", *["-"] * 9, "none in this time"],
        ["xfs", *["-"] * 9, "no loop device"],
    ]
    assert big(123456) == "123,456"
