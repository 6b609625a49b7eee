"""Power cuts of a log alone: it keeps what it promised, and planted faults are found and made smaller."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tidelog.aof.durable import DurableFile
from tidelog.crash import logs, run
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Effort, Explorer, Report
from tidelog.crash.lives import Step
from tidelog.crash.logs import LOG
from tidelog.crash.record import RecordingFile
from tidelog.crash.run import Task, do
from tidelog.crash.served import Memory
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.trace import SyncBegin, SyncEnd, Trace, Write, unpack
from tidelog.crash.workloads import POLICIES

# Gathered units, a sync with units beside it, and enough bytes for a second segment.
STEPS: list[Step] = [
    ["add", 1, 10, 1],
    ["add", 2, 100, 0],
    ["fsynced"],
    ["beside", 2],
    ["add", 1, 3000, 1],
    ["written"],
    ["add", 3, 700, 1],
    ["beside", 1],
    ["add", 1, 0, 0],
]
EFFORT = Effort(drawn=4, exhaustive=8, double=0, killed=0)


def explored(policy: str, steps: list[Step] = STEPS) -> Report:
    stage = Memory()
    explorer = Explorer(stage, random.Random(1), EFFORT, LOG, serve=logs.serve)
    explorer.explore(logs.record(stage, policy, steps, {"seed": "1", "life": 1}))
    return explorer.report


@pytest.mark.parametrize("policy", POLICIES)
def test_a_log_keeps_its_promises(policy: str) -> None:
    report = explored(policy)
    assert [finding.words for finding in report.findings] == []
    counts = report.of(LOG)
    assert counts.there > counts.tried > counts.distinct > 100


def test_units_are_written_while_a_sync_runs() -> None:
    trace = logs.record(Memory(), "no", STEPS, {"seed": "1", "life": 1})
    kinds = [type(operation) for operation in trace.operations]
    begun = 0
    beside = 0
    for kind in kinds:
        begun += (kind is SyncBegin) - (kind is SyncEnd)
        beside += bool(begun) and kind is Write
    assert beside >= 3


def test_lives_begin_with_what_a_crash_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(run, "LOG_STEPS", 8)
    monkeypatch.setattr(run, "LOG_DRAWN", 2)
    lives: list[int] = []
    recorded = logs.record

    def record(*args: Any) -> Trace:
        trace = recorded(*args)
        lives.append(len(trace.units) - len(args[5]))
        return trace

    monkeypatch.setattr(logs, "record", record)
    report = do(Task(LOG, "no", "three lives 2", 0, False), tmp_path)
    assert report.findings == []
    assert len(lives) == 3 and all(lives)


def test_a_log_that_is_not_synced_is_found_made_smaller_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RecordingFile, "fdatasync", lambda self: None)
        (finding,) = explored("always").findings
        smaller = shrink(finding, tmp_path, 20.0)
    trace = unpack(smaller.trace, "finding")
    assert len(trace.about["steps"]) < len(STEPS)
    fault = tried_again(smaller, trace, tmp_path)
    assert fault is not None and fault.kind.value == finding.kind


def test_a_durable_file_that_runs_ahead_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """DURABLE says of more records than were synced that they are on the disk."""
    write = DurableFile.write

    def ahead(self: DurableFile, incarnation: int, lsn: int) -> None:
        write(self, incarnation, lsn + 1)

    with monkeypatch.context() as patch:
        patch.setattr(DurableFile, "write", ahead)
        report = explored("no")
    assert [finding.kind for finding in report.findings] == ["refused"]


def test_an_unknown_step_is_an_error_of_the_bench() -> None:
    with pytest.raises(BenchError, match="does not know the step"):
        explored("no", [["wipe"]])
