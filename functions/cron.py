"""Cron: a schedule of a task, as a module declares it. The store gets it when a worker begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidelog.functions.task import Task
from tidelog.functions.work import TICK
from tidelog.jobs.scheduling import Schedule
from tidelog.store.durations import Duration


@dataclass(frozen=True, slots=True)
class Cron:
    """A schedule: the arguments of `Tasks.cron`.

    A schedule stores a value and a priority. So the job of a task with more options is a tick, and a worker puts
    the real one with all of them in its place, in one unit.
    """

    task: Task[Any, Any, Any]
    cron: str | None
    every: Duration | None
    tz: str | None
    catch_up: str
    args: Mapping[str, Any]

    def make(self, store: Any, name: str, codec: str) -> Schedule:
        """Make it in a store, if it is not there. Raises DataError, TypeError, EncodeError."""
        task, priority = self.task, 0
        value = task.value_of((), self.args)
        if task.options.keys() <= {"priority"}:
            priority = task.options.get("priority", 0)
        else:
            value[TICK] = True
        made: Schedule = store.schedule(
            name,
            self.cron,
            queue=task.queue,
            every=self.every,
            value=value,
            tz=self.tz,
            catch_up=self.catch_up,
            codec=codec,
            priority=priority,
        )
        return made
