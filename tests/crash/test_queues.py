"""Power cuts of queues: no acknowledged job is lost or half done, and planted faults are found and made smaller."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.crash import queues
from tidelog.crash.errors import BenchError
from tidelog.crash.explore import Effort, Explorer, Report
from tidelog.crash.jobs import SEQUENCE_BITS, Jobs, number
from tidelog.crash.lives import Step
from tidelog.crash.queues import QUEUES, WEIGHTS
from tidelog.crash.run import Task, do
from tidelog.crash.served import Files, Memory, Stage
from tidelog.crash.shrink import shrink, tried_again
from tidelog.crash.trace import unpack
from tidelog.crash.workloads import POLICIES
from tidelog.jobs.verbs.dead import PurgeDead, Redrive
from tidelog.jobs.work.fetch import Fetch
from tidelog.jobs.work.keyed import Keyed
from tidelog.jobs.work.keys import Keys
from tidelog.jobs.work.limits import Delivered
from tidelog.store.commit.batch import land_commands, run_unit

# Each way in which a job can end; jobs that are known already; some that nobody ends.
STEPS: list[Step] = [
    *([name, 0, number] for name in ("once", "once") for number in (0, 1)),
    ["puts", 0, 6],
    ["take", 0, 0],
    ["retry", 0, 0],
    ["take", 0, 0],
    ["sync"],
    ["retry", 0, 1],
    ["take", 0, 1],
    ["release", 0],
    ["take", 0, 1],
    ["extend", 0],
    ["follow", 0, 2],
    ["take", 0, 0],
    ["fail", 0],
    ["batch", 0, 1, 3, 2],
    ["redrive", 0],
    ["later", 1, 10],
    ["later", 1, 60],
    ["hasten", 1],
    ["cancel", 1],
    ["take", 1, 0],
    ["answer", 1],
    ["stale", 0],
    ["plan", 1],
    ["overdue", 1, 1],
    ["take", 0, 0],
    ["batch", 1, 1, 4, 3],
    ["urgent", 1],
    ["take", 1, 0],
    *(["keyed", 2, key, high] for key, high in ((1, 0), (1, 0), (2, 0), (1, 1))),
    ["take", 2, 0],
    ["take", 2, 1],
    ["retry", 2, 0],
    ["finish", 2],
    ["batch", 2, 0, 3, 1],
    ["later", 2, 10, 1],
    ["hasten", 2],
    ["take", 2, 0],
]
EFFORT = Effort(drawn=3, exhaustive=6, double=0, killed=0)


def explored(stage: Stage, policy: str, steps: list[Step] = STEPS) -> Report:
    explorer = Explorer(stage, random.Random(1), EFFORT, QUEUES, serve=queues.serve)
    explorer.explore(queues.record(stage, policy, steps, {"seed": "1", "life": 1}))
    return explorer.report


@pytest.mark.parametrize("policy", POLICIES)
def test_queues_keep_their_promises(policy: str) -> None:
    report = explored(Memory(), policy)
    assert [finding.words for finding in report.findings] == []
    counts = report.of(QUEUES)
    assert counts.there > counts.tried > counts.distinct > 80


@pytest.mark.parametrize("policy", POLICIES)
def test_the_process_ends_between_the_units_of_one_fetch(policy: str) -> None:
    steps: list[Step] = [["stale", 0], ["puts", 0, 18], ["take", 0, 0]]
    assert [finding.words for finding in explored(Memory(), policy, steps).findings] == []


@pytest.mark.slow
def test_a_checkpoint_holds_the_jobs_of_queues(tmp_path: Path) -> None:
    stage = Files(tmp_path)
    steps: list[Step] = [*STEPS[2:8], ["checkpoint"], *STEPS[12:14]]
    report = explored(stage, "no", steps)
    stage.clear()
    assert [finding.words for finding in report.findings] == []
    assert report.of(QUEUES).distinct > 20


def test_long_workloads_use_every_step() -> None:
    steps = queues.long(random.Random(1), 2000, checkpoints=True)
    assert {step[0] for step in steps} == {*WEIGHTS, "checkpoint"}
    steps = queues.long(random.Random(1), 200, checkpoints=False)
    assert queues.record(Memory(), "no", steps, {"seed": "1", "life": 1}).units


@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_lives_begin_with_what_a_crash_left(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.crash.run.QUEUE_STEPS", 8)
    report = do(Task(QUEUES, "no", "lives 1", number, False), tmp_path)
    assert [finding.words for finding in report.findings] == []
    assert report.of(QUEUES).distinct > 10
    assert not [*tmp_path.iterdir()]


def test_a_worker_of_a_later_life_gets_its_jobs_again() -> None:
    stage = Memory()
    first = queues.record(
        stage, "no", [["puts", 0, 3], ["take", 0, 0], ["take", 0, 0]], {"life": 1}
    )
    left = Explorer(stage, random.Random(1), EFFORT, QUEUES, serve=queues.serve)
    images = (left.next_base(first) for _ in range(1000))
    base, units = next(found for found in images if found and found[1] == len(first.units))
    again = queues.record(stage, "no", [["take", 0, 0]] * 3, {"life": 2}, base, first.units[:units])
    taken = [
        operation[3] for unit in again.units[units:] for operation in unit if operation[0] == "take"
    ]
    assert taken == [b"%d-%d" % (1_700_000_000_000, n) for n in range(3)]


def test_the_limits_of_a_queue_are_reached() -> None:
    """The second queue holds back what its workers ask for beyond its limits, in each life."""
    steps: list[Step] = [["puts", 1, 40], *([["take", 1, 0]] * 5), *([["finish", 1]] * 5)]
    trace = queues.record(Memory(), "no", steps * 6, {"life": 1})
    taken = Counter(operation[0] for unit in trace.units for operation in unit)
    assert (taken["take"], taken["done"]) == (queues.LIMITS[1].rate, queues.LIMITS[1].rate)
    held = most = 0
    for operation in (operation for unit in trace.units for operation in unit):
        held += {"take": 1, "done": -1}.get(operation[0], 0)
        most = max(most, held)
    assert most == queues.LIMITS[1].concurrency


def taken_in(steps: list[Step]) -> list[bytes]:
    """The jobs that workers got, in order."""
    trace = queues.record(Memory(), "no", steps, {"life": 1})
    operations = (operation for unit in trace.units for operation in unit)
    return [each[3] for each in operations if each[0] == "take"]


def test_jobs_of_a_higher_priority_come_first() -> None:
    steps: list[Step] = [["put", 1, 1], ["urgent", 1], ["urgent", 1], *([["take", 1, 0]] * 3)]
    high = queues.HIGH << SEQUENCE_BITS
    assert [number(job)[1] for job in taken_in(steps)] == [high, high + 1, 0]


def test_jobs_of_a_key_come_one_after_the_other() -> None:
    """Two of a key, one of another key, one without: then the first one is tried again, released, and done."""
    steps: list[Step] = [["keyed", 2, key, 0] for key in (1, 1, 2, 0)]
    steps += [["take", 2, 0]] * 4
    assert [number(job)[1] for job in taken_in(steps)] == [0, 2, 3]
    steps += [["retry", 2, 0], ["take", 2, 1], ["finish", 2], ["finish", 2], ["take", 2, 0]]
    assert [number(job)[1] for job in taken_in(steps)] == [0, 2, 3, 0]
    steps += [["release", 2], ["take", 2, 1], ["finish", 2], ["take", 2, 1]]
    assert [number(job)[1] for job in taken_in(steps)] == [0, 2, 3, 0, 0, 1]


@pytest.mark.parametrize("forgets", [False, True])
def test_jobs_of_a_key_are_in_progress_after_a_crash(
    forgets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a later life gets no job of the key, unless the store forgets which jobs are in progress."""
    stage = Memory()
    steps: list[Step] = [*([["keyed", 2, 1, 0]] * 3), ["take", 2, 0]]
    first = queues.record(stage, "no", steps, {"life": 1})
    left = Explorer(stage, random.Random(1), EFFORT, QUEUES, serve=queues.serve)
    images = (left.next_base(first) for _ in range(1000))
    base, units = next(found for found in images if found and found[1] == len(first.units))
    before = first.units[:units]
    if forgets:
        monkeypatch.setattr(Keys, "load", lambda self, priority, stream, group: None)
        with pytest.raises(BenchError, match="without any crash"):
            queues.record(stage, "no", [["take", 2, 1]], {"life": 2}, base, before)
    else:
        again = queues.record(
            stage, "no", [["take", 2, 1], ["take", 2, 0]], {"life": 2}, base, before
        )
        taken = [op[2:] for unit in again.units[units:] for op in unit if op[0] == "take"]
        assert taken == [[b"ann", b"1700000000000-0"]]


def redriven_in_two_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant it: dead jobs are put back by one unit and removed by another."""
    original = run_unit

    def split(core, db, plan):  # type: ignore[no-untyped-def]
        words: list[list[bytes]] = []
        original(core, db, lambda ctx: words.extend(plan(ctx) or []))
        answer = None
        for command in words:
            answer = original(core, db, lambda ctx, one=command: [one])  # type: ignore[misc]
        return answer

    monkeypatch.setattr("tidelog.jobs.engine.run_unit", split)


def result_behind_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant it: a job is done by one unit, and its result is stored by another."""
    original = run_unit

    def split(core, db, plan):  # type: ignore[no-untyped-def]
        rest: list[list[bytes]] = []

        def first(ctx: Any) -> Any:
            words = plan(ctx)
            if words is not None:
                rest.extend(words[1:])
                del words[1:]
            return words

        answer = original(core, db, first)
        for command in rest:
            answer = original(core, db, lambda ctx, one=command: [one])  # type: ignore[misc]
        return answer

    monkeypatch.setattr("tidelog.jobs.settling.run_unit", split)


def tick_behind_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant it: a tick puts its job by one unit, without a dedup ID, and is counted by another."""
    original = land_commands

    def split(core: Any, ctx: Any, words: list[list[bytes]]) -> None:
        for command in words:
            if command[0] == b"XADD":
                del command[2:5]
            original(core, ctx, [command])

    monkeypatch.setattr("tidelog.jobs.work.ticks.land_commands", split)


def rate_behind_the_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant it: deliveries are not counted against the rate."""
    monkeypatch.setattr(Delivered, "log", lambda self, ctx, jobs: None)


def lowest_lane_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant it: a fetch looks into the lanes in the wrong order."""
    original = Fetch._lanes

    def reversed_(self: Any, ctx: Any, lane_0: Any) -> Any:
        found = original(self, ctx, lane_0)
        return found and found[::-1]

    monkeypatch.setattr(Fetch, "_lanes", reversed_)


def passed_without_going_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant it: a job that must wait for its key stays with the worker that passed it."""
    original = Keyed._log

    def log(self: Any, fresh: Any) -> None:
        passed, self.passed = self.passed, []
        original(self, fresh)
        self.passed = passed

    monkeypatch.setattr(Keyed, "_log", log)


@pytest.mark.parametrize(
    ("plant", "steps", "error"),
    [
        (result_behind_the_end, [["put", 0, 10], ["take", 0, 0], ["answer", 0]], None),
        (
            tick_behind_its_job,
            [["plan", 0], ["overdue", 0, 1], ["set", 0, 1], ["take", 0, 0]],
            None,
        ),
        (rate_behind_the_delivery, [["put", 1, 10], ["take", 1, 0]], "without any crash"),
        (
            lowest_lane_first,
            [["put", 1, 10], ["urgent", 1], ["take", 1, 0]],
            "without any crash",
        ),
        (
            passed_without_going_back,
            [["keyed", 2, 1, 0], ["keyed", 2, 1, 0], ["take", 2, 0], ["take", 2, 0]],
            "without any crash",
        ),
    ],
)
def test_planted_faults_of_results_ticks_and_limits_are_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    steps: list[Step],
    error: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert explored(Memory(), "no", steps).findings == []
    plant(monkeypatch)
    if error is not None:
        with pytest.raises(BenchError, match=error):
            explored(Memory(), "no", steps)
    else:
        findings = explored(Memory(), "no", steps).findings
        assert findings and findings[0].kind in ("wrong", "lost")


def test_a_job_that_a_worker_has_is_cancelled() -> None:
    """Wherever the power goes, it is as before or cancelled, and its worker cannot end it."""
    steps: list[Step] = [
        ["puts", 0, 3],
        ["take", 0, 0],
        ["cancel", 0],
        ["later", 0, 10, 0],
        ["cancel", 0],
    ]
    trace = queues.record(Memory(), "no", steps, {"life": 1})
    assert [unit[0][0] for unit in trace.units].count("cancel") == 2
    assert explored(Memory(), "no", steps).findings == []


def test_a_planted_fault_is_found_and_made_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Step] = [
        ["set", 0, 10],
        ["put", 0, 10],
        ["take", 0, 0],
        ["fail", 0],
        ["redrive", 0],
    ]
    assert explored(Memory(), "no", steps).findings == []
    redriven_in_two_units(monkeypatch)
    finding = explored(Memory(), "no", steps).findings[0]
    assert finding.kind == "wrong"
    smaller = shrink(finding, tmp_path, 10.0)
    trace = unpack(smaller.trace, "smaller")
    assert trace.about["steps"] == steps[1:]
    fault = tried_again(smaller, trace, tmp_path)
    assert fault is not None and fault.kind.value == "wrong"


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda: setattr(Redrive, "_planner", PurgeDead._planner), "mails is"),
        (lambda: setattr(Jobs, "known", lambda self, dedup: None), "got the ID"),
    ],
)
def test_a_queue_that_is_wrong_without_any_crash_is_an_error_of_the_bench(
    plant: Callable[[], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Redrive, "_planner", Redrive._planner)  # put back at the end
    monkeypatch.setattr(Jobs, "known", Jobs.known)
    plant()
    steps: list[Step] = [
        ["once", 0, 1],
        ["once", 0, 1],
        ["take", 0, 0],
        ["fail", 0],
        ["redrive", 0],
    ]
    with pytest.raises(BenchError, match=said):
        queues.record(Memory(), "no", steps, {"seed": "1", "life": 1})
