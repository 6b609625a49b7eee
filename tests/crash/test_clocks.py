"""Clocks that jump: a store whose wall clock is set far forwards and back keeps its promises, and IDs only grow."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tidelog.crash import run, workloads
from tidelog.crash.commands import TIMED
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Effort, Explorer, Report
from tidelog.crash.lives import Step
from tidelog.crash.model import number
from tidelog.crash.run import STORE, Task, do
from tidelog.crash.served import Memory, Still
from tidelog.crash.trace import Trace
from tidelog.crash.workloads import JUMPS, jumping, long, record
from tidelog.store.commit.core import Core

STEPS: list[Step] = [
    ["add", 0, 10],
    ["jump", 315_360_000],
    ["add", 0, 300],
    ["read", 0, 1],
    ["sync"],
    ["jump", -630_720_000],
    ["many", 0, 3],
    ["claim", 0, 1],
    ["add", 1, 10],
]


def explored(policy: str) -> tuple[Trace, Report]:
    stage = Memory()
    explorer = Explorer(stage, random.Random(1), Effort(4, 8, 0.1, 0.1))
    trace = record(stage, policy, STEPS, {"seed": "1", "life": 1})
    explorer.explore(trace)
    return trace, explorer.report


def test_a_store_whose_clock_jumps_keeps_its_promises() -> None:
    trace, report = explored("no")
    assert [finding.words for finding in report.findings] == []
    assert report.of(STORE).distinct > 20
    ids = [operation[2] for unit in trace.units for operation in unit if operation[0] == "add"]
    times = [number(each)[0] for each in ids]
    assert times[1] - times[0] > 300_000_000_000  # it went with the clock
    assert 0 <= times[2] - times[1] < 300_000_000  # and not back with it
    assert sorted(ids[:5], key=number) == ids[:5]


def test_jumps_are_put_between_the_steps() -> None:
    steps = long(random.Random(2), 120, checkpoints=False)
    found = jumping(random.Random(2), steps)
    assert any(step[0] in TIMED for step in steps)
    assert [step for step in found if step[0] != "jump"] == [
        step for step in steps if step[0] not in TIMED
    ]
    jumps = {step[1] for step in found if step[0] == "jump"}
    assert jumps and jumps <= {*JUMPS}


def test_every_second_long_workload_has_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[bool] = []

    def recorded(stage: Memory, policy: str, steps: list[Step], *rest: object) -> Trace:
        seen.append(any(step[0] == "jump" for step in steps))
        raise BenchError("enough")

    monkeypatch.setattr(run, "record", recorded)
    for task in range(5):
        with pytest.raises(BenchError, match="enough"):
            do(Task(STORE, "no", "clock", task, False), tmp_path)
    assert seen == [False, False, True, False, False]


def test_an_id_that_goes_back_with_the_clock_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    original = workloads.Life._add

    def forgetful(self: workloads.Life, stream: int, nbytes: int) -> None:
        stored, core = self._model.streams.get(b"stream0"), self.db._core
        assert isinstance(core, Core)
        if stored is not None and self._clock is not None and self._clock.offset_ns > 0:
            stored.last = b"%d-0" % (Still.ms * 10)  # as if it had been later then
        original(self, stream, nbytes)

    monkeypatch.setattr(workloads.Life, "_add", forgetful)
    with pytest.raises(BenchError, match="after the ID b'17000000000000-0'"):
        explored("no")
