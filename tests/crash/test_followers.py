"""Power cuts of a follower: it keeps what it confirmed to its leader, also while it gets a copy."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidelog.crash import followers, run
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Effort, Explorer
from tidelog.crash.followers import FOLLOWERS, leading, record
from tidelog.crash.run import Task, do
from tidelog.crash.served import Files, Memory
from tidelog.crash.trace import Promised, Rename
from tidelog.crash.workloads import POLICIES

EFFORT = Effort(drawn=3, exhaustive=4, double=0, killed=0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_follower_keeps_what_it_confirmed(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "STEPS", 8)
    stage = Memory()
    explorer = Explorer(stage, random.Random(1), EFFORT, FOLLOWERS)
    with leading(Memory(), "confirmed 2", checkpoints=False) as leader:
        first = record(stage, policy, leader, {"life": 1})
        explorer.explore(first)
        assert [finding.words for finding in explorer.report.findings] == []
        left = explorer.next_base(first)
        assert left is not None
        second = record(stage, policy, leader, {"life": 2}, *left)
    assert second.units[: len(first.units)] == first.units
    assert len(second.units) > len(first.units)
    confirmed = [each for each in first.operations if isinstance(each, Promised)][-1]
    assert confirmed.written == len(first.units)
    assert (confirmed.fsynced == confirmed.written) == (policy != "no")
    counts = explorer.report.of(FOLLOWERS)
    assert counts.there > counts.tried > counts.distinct > 30


@pytest.mark.slow
def test_a_copy_of_the_leaders_checkpoint_loses_power(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "STEPS", 2)
    places = tmp_path / "leader", tmp_path / "follower"
    for place in places:
        place.mkdir()
    theirs, ours = map(Files, places)
    explorer = Explorer(ours, random.Random(1), Effort(1, 1, 0, 0), FOLLOWERS)
    with leading(theirs, "copy 1", checkpoints=True) as leader:
        trace = record(ours, "no", leader, {"life": 1})
    ours.clear()
    moved = [each for each in trace.operations if isinstance(each, Rename)]
    assert any(each.new_name == "checkpoint" for each in moved), "the follower got no copy"
    explorer.explore(trace)
    ours.clear()
    assert [finding.words for finding in explorer.report.findings] == []
    assert explorer.report.of(FOLLOWERS).distinct > 20


def test_contents_that_come_again_prove_only_the_first_units() -> None:
    stage = Memory()
    with leading(Memory(), "again", checkpoints=False) as leader:
        leader.life.run(["drop", 0])
        leader.life.run(["drop", 1])
        units = len(leader.life.units)
        leader.life.run(["set", 9, 1])
        leader.life.db.delete(b"string9")
        leader.life._done([["drop", b"string9"]])
        trace = record(stage, "always", leader, {"life": 1}, None, units + 2)
    first = trace.operations[0]
    assert isinstance(first, Promised) and first.fsynced <= units


def test_a_task_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followers, "STEPS", 3)
    monkeypatch.setattr(run, "LIVES_MAX", 2)
    report = do(Task(FOLLOWERS, "no", "nothing", 0, False), tmp_path)
    assert report.findings == [] and report.of(FOLLOWERS).tried > 20
    assert not [*tmp_path.iterdir()]


def test_a_follower_that_does_not_confirm_is_an_error_of_the_bench(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(followers, "SECONDS", 2.0)
    monkeypatch.setattr(followers, "CONFIRMED", 1.0)
    with leading(Memory(), "alone", checkpoints=False) as leader:
        monkeypatch.setattr(leader, "port", 1)
        with pytest.raises(BenchError, match="a follower does not confirm"):
            record(Memory(), "no", leader, {"life": 1})
