"""Power cuts at every operation of recorded lives: the store keeps what it promised, and planted faults are found."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tidelog.crash import explore
from tidelog.crash.explore import DOUBLE, STORE, Effort, Explorer, Report, try_again
from tidelog.crash.lives import Step
from tidelog.crash.oracle import Kind
from tidelog.crash.record import RecordingFile
from tidelog.crash.served import Files, Memory, Stage
from tidelog.crash.trace import unpack
from tidelog.crash.workloads import POLICIES, record
from tidelog.snapshot.rows import environment

# Two syncs with writes beside the first, and enough bytes for a second segment.
AROUND_A_SYNC: list[Step] = [
    ["add", 0, 300],
    ["meanwhile", 0, 2],
    ["sync"],
    ["both", 0, 3],
    ["add", 0, 3000],
    ["read", 0, 2],
    ["add", 0, 3000],
    ["ack", 0, 1],
    ["sync"],
    ["set", 0, 600],
]
# The second checkpoint releases the first segments, whose blocks the third one reuses.
CHECKPOINTS: list[Step] = [
    ["add", 0, 700],
    ["read", 0, 1],
    ["checkpoint"],
    *([["add", 0, 3000]] * 4),
    ["sync"],
    ["set", 0, 20],  # the only record that the sync before does not cover
    ["checkpoint"],
    ["ack", 0, 1],
    *([["add", 1, 3000]] * 3),
]
# Enough for each mutant that names these tests (tests/mutants/of_crash.py).
MOST = Effort(drawn=4, exhaustive=8, double=0.01, killed=0, double_drawn=2)
EFFORT = Effort(drawn=2, exhaustive=4, double=0.01, killed=0, double_drawn=2)
KILLED = Effort(drawn=1, exhaustive=0, double=0, killed=1, double_drawn=2)


def explored(
    stage: Stage, policy: str, steps: list[Step], effort: Effort = EFFORT, seed: int = 1
) -> Report:
    explorer = Explorer(stage, random.Random(seed), effort)
    explorer.explore(record(stage, policy, steps, {"seed": str(seed)}))
    stage.clear()
    return explorer.report


@pytest.mark.parametrize("policy", POLICIES)
def test_a_store_keeps_its_promises_around_a_sync(policy: str) -> None:
    report = explored(Memory(), policy, AROUND_A_SYNC, MOST)
    assert [finding.words for finding in report.findings] == []
    counts = report.of(STORE)
    assert counts.there > counts.tried > counts.distinct > 50
    assert counts.faults == 0


@pytest.mark.slow
def test_checkpoint_segments_and_names_lose_power_together(tmp_path: Path) -> None:
    report = explored(Files(tmp_path), "no", CHECKPOINTS, EFFORT)
    assert [finding.words for finding in report.findings] == []
    assert report.of(STORE).distinct > 50


def test_a_recovery_loses_power_too() -> None:
    report = explored(Memory(), "no", AROUND_A_SYNC, EFFORT._replace(drawn=1, double=0.5))
    assert [finding.words for finding in report.findings] == []
    assert report.of(DOUBLE).distinct > 20


def test_a_recovery_after_the_end_of_a_process_loses_power() -> None:
    """The page cache outlives the process, and no sync has written it yet."""
    report = explored(Memory(), "no", [["add", 0, 300], ["set", 0, 600]], KILLED)
    assert [finding.words for finding in report.findings] == []
    assert report.of(DOUBLE).distinct > 20


def test_a_tail_that_is_served_before_it_was_fsynced_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = explore.record_recovery

    def without_fsync(*args: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(RecordingFile, "fsync", lambda self: None)
            return recorded(*args)

    with monkeypatch.context() as patch:
        patch.setattr(explore, "record_recovery", without_fsync)
        report = explored(Memory(), "no", [["add", 0, 300], ["set", 0, 600]], KILLED)
    assert {finding.layer for finding in report.findings} == {DOUBLE}


@pytest.mark.slow
def test_lmdb_without_syncs_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LMDB's own writes and syncs are in the trace: a checkpoint that is not on the disk has released its log."""

    def without_syncs(path: Path, read_only: bool, **options: Any) -> lmdb.Environment:
        map_size = environment.MAP_BYTES
        return lmdb.Environment(
            str(path), map_size=map_size, readonly=read_only, create=False, sync=False, **options
        )

    with monkeypatch.context() as patch:
        patch.setattr(environment, "_open_lmdb", without_syncs)
        steps = [*CHECKPOINTS, ["checkpoint"]]
        report = explored(Files(tmp_path), "always", steps, Effort(2, 0, 0, 0, 0))
    assert report.findings


def test_a_finding_can_be_tried_again_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(RecordingFile, "fdatasync", lambda self: None)
        report = explored(Memory(), "always", AROUND_A_SYNC, EFFORT._replace(double=0))
    (finding,) = report.findings
    assert finding.kind == Kind.LOST.value
    fault, words = try_again(Memory(), unpack(finding.trace, "finding"), finding)
    assert fault is not None
    assert (fault.kind.value, fault.words) == (finding.kind, finding.words)
    assert any(".aof" in line for line in words)
