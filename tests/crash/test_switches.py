"""Workloads that switch the policy, write with two threads, read evicted rows again and make snapshots."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidelog.api.sync import Store
from tidelog.crash import workloads
from tidelog.crash.explore import STORE, Effort, Explorer, Report
from tidelog.crash.killed import Effort as KillEffort
from tidelog.crash.killed import kill
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Kind
from tidelog.crash.record import RecordingFile
from tidelog.crash.run import BUDGET
from tidelog.crash.served import Files, Memory, Stage, be_quiet
from tidelog.crash.suffered import Scene
from tidelog.crash.trace import Promised, Trace
from tidelog.crash.workloads import record
from tidelog.snapshot.rows.environment import ColdRows

ALWAYS, NO = 0, 2
SWITCHED: list[Step] = [
    ["add", 0, 300],
    ["policy", ALWAYS],
    ["add", 0, 10],
    ["policy", NO],
    ["set", 0, 600],
]
THREADS: list[Step] = [["add", 0, 10], ["threads", 0, 4], ["sync"], ["threads", 1, 2]]
MORE: list[Step] = [["threads", 0, 2]]
EFFORT = Effort(drawn=3, exhaustive=8, double=0, killed=0)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    be_quiet()


def explored(
    stage: Stage, policy: str, steps: list[Step], budget: int | None = None
) -> tuple[Trace, Report]:
    trace = record(stage, policy, steps, {"seed": "1", "budget": budget})
    explorer = Explorer(stage, random.Random(1), EFFORT)
    explorer.explore(trace)
    stage.clear()
    return trace, explorer.report


def promises(trace: Trace) -> list[Promised]:
    return [each for each in trace.operations if isinstance(each, Promised)]


def test_a_switched_policy_promises_from_then_on() -> None:
    trace, report = explored(Memory(), "no", SWITCHED)
    assert [finding.words for finding in report.findings] == []
    fsynced = [each.fsynced for each in promises(trace) if each.issued == each.written]
    assert max(fsynced[:-1]) == 2  # the last one is that of the close


def test_a_switch_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "config_set", lambda *args: True)
    _, report = explored(Memory(), "no", SWITCHED)
    assert {finding.kind for finding in report.findings} == {Kind.LOST.value}


def test_two_threads_keep_their_promises() -> None:
    trace, report = explored(Memory(), "always", THREADS)
    assert [finding.words for finding in report.findings] == []
    assert len(trace.units) == 1 + 8 + 4
    # While both write, more was given than was acknowledged.
    assert any(each.issued > each.fsynced + 1 > 2 for each in promises(trace))
    assert report.of(STORE).distinct > 20


def test_a_thread_that_is_answered_before_the_sync_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RecordingFile, "fdatasync", lambda self: None)
        _, report = explored(Memory(), "always", [["threads", 0, 3]])
    assert {finding.kind for finding in report.findings} == {Kind.LOST.value}


def test_two_threads_are_killed(tmp_path: Path) -> None:
    scene = Scene("always", (THREADS, MORE), "1")
    report = kill(scene, tmp_path, random.Random(1), KillEffort(8, 0))
    assert [finding.words for finding in report.findings] == []
    assert report.of("kill").distinct > 4


def test_evicted_rows_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: set[bytes] = set()
    real = ColdRows.get

    def get(self: ColdRows, key: bytes) -> object:
        rows.add(key)
        return real(self, key)

    monkeypatch.setattr(ColdRows, "get", get)
    steps: list[Step] = [["many", 0, 30], ["many", 10, 30], ["checkpoint"], ["both", 0, 3]]
    stage = Files(tmp_path)
    record(stage, "no", steps, {"seed": "1", "budget": None})
    without = len(rows)
    rows.clear()
    record(stage, "no", steps, {"seed": "1", "budget": BUDGET})
    stage.clear()
    assert len(rows) > without


@pytest.mark.slow
def test_snapshots_lose_power_too(tmp_path: Path) -> None:
    again: list[Step] = [["snapshot"], ["add", 0, 300]]
    steps: list[Step] = [["add", 0, 10], *(again * 3)]
    trace, report = explored(Files(tmp_path), "no", steps, BUDGET)
    assert [finding.words for finding in report.findings] == []
    assert len(trace.about["snapshots"]) == 3
    assert report.of(STORE).distinct > 50


def test_the_steps_are_drawn() -> None:
    names = [step[0] for step in workloads.long(random.Random(1), 300, checkpoints=True)]
    assert {"policy", "threads"} <= {*names}
    alone = workloads.long(random.Random(1), 300, checkpoints=True, threads=False)
    assert "threads" not in [step[0] for step in alone]
