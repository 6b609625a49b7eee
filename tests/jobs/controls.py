"""Controls: the rules of the stateful model that are about pausing, cancelling, looking and progress.

A part of `machine.Machine`, which has the queues, their models, and the jobs in hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.jobs.model import CANCELLED, DEAD, FLIGHT, PAUSED, SLACK, UNFINISHED, WAITING, Task

picks = st.integers(0, 1 << 16)
chosen = st.sampled_from((0, 0, 0, 1))
PROGRESS_SURE = 80_000.0  # seconds for which a progress is certainly kept
STATES = {
    WAITING: {"waiting"},
    FLIGHT: {"running"},
    PAUSED: {"paused", "waiting"},
    DEAD: {"dead"},
    CANCELLED: {"cancelled"},
}


class Controls:
    """See the module docstring."""

    queues: list[Any]
    models: list[Any]
    held: list[Any]
    jumped: bool
    looks = 0
    now: Callable[[], float]
    one: Callable[[int], Any]
    settle: Callable[[Any], None]
    pass_time: Callable[[float], None]

    # --- pausing

    @rule(at=st.sampled_from((0, 1)), goes_on=st.sampled_from((False, True, True)))
    def pause(self, at: int, goes_on: bool) -> None:
        """Deliver nothing for a while: `Machine.got` knows it."""
        model, queue = self.models[at], self.queues[at]
        assert (queue.paused_at() is not None) is model.stopped
        assert (queue.resume() if goes_on else queue.pause()) is (model.stopped is goes_on)
        model.stopped = not goes_on

    # --- cancelling

    @rule(at=chosen, pick=picks, in_hand=st.booleans())
    def cancel(self, at: int, pick: int, in_hand: bool) -> None:
        """A job in any state, by the ID that its first put returned."""
        model = self.models[at]
        tasks = model.of(FLIGHT) if in_hand else list(model.tasks.values())
        if not tasks or pick % 3 and not in_hand:  # seldom: jobs should live
            return
        first = tasks[pick % len(tasks)].first
        living = [t for t in model.named(first) if t.where in UNFINISHED]
        assert self.queues[at].cancel(first) is bool(living)
        for task in living:
            held = [each for each in self.held if each.number == task.holder]
            model.cancelled(task)
            for each in held:
                self.learns(each.job)
                self.settle(each)

    def learns(self, job: Any) -> None:
        """The worker that has the job in hand learns that it was cancelled."""
        assert job.cancelled and job.state == "cancelled"

    # --- progress

    @precondition(lambda self: self.held)
    @rule(pick=picks, fraction=st.sampled_from((0.0, 0.25, 1.0)))
    def progress(self, pick: int, fraction: float) -> None:
        held = self.one(pick)
        right = self.models[held.queue].holds(held.task, held.number)
        # A report that comes too early is noted by the worker, who does not know whether it lost the job.
        assert held.job.progress(fraction, "as told") or not right
        if right:
            held.task.told_progress.add(fraction)
            held.task.progress_at = self.now()

    # --- looking

    def look(self, at: int) -> None:
        """Compare what `job` tells of one of the jobs, by its first ID. Called after each step."""
        model = self.models[at]
        known = [task for task in model.tasks.values() if task.where in STATES]
        known = known or list(model.tasks.values())
        if not known:
            return
        self.looks += 1
        first = known[self.looks % len(known)].first
        found, task = self.queues[at].job(first), model.named(first)[-1]  # the newest
        if task.poison and task.origin:
            return  # the entry of another client keeps its first ID through one redrive only
        if task.where not in STATES:  # done or purged: what is kept of it is not modelled
            assert found is None or found.state in ("done", "dead", "cancelled"), (task, found)
            return
        assert found is not None, f"nothing is told of {task}"
        if found.state == "dead" and model.may_die(task, self.now()):
            return
        assert found.state in STATES[task.where], f"{task} is told to be {found.state}"
        self._compare(task, found)

    def _compare(self, task: Task, found: Any) -> None:
        assert found.id == task.first
        if task.where == FLIGHT:
            assert (found.worker, found.deliveries) == (task.owner, task.deliveries), task
        if task.where == PAUSED and not self.jumped:
            assert found.deliveries == task.deliveries, task
            if self.now() < task.earliest - SLACK:
                assert found.state == "paused", f"{task} is told to be due"
            elif self.now() >= task.latest:
                assert found.state == "waiting", f"{task} is told to be paused"
        if task.where in UNFINISHED:
            assert found.priority == task.priority and found.key == task.key
            come = found.progress
            sure = not self.jumped and self.now() - task.progress_at < PROGRESS_SURE
            assert come is not None or not sure, task
            assert come is None or come.fraction in task.told_progress, task
