"""QueueEngine: one group of a queue in an open store, without waiting.

The faces and the QUEUE commands work through it, and add what waits: for the disk, for jobs, for room. Functions and
classes that take an engine do its work, a module for each kind:

    putting     put jobs, at once or delayed          settling    end a delivery, or keep it
    due         which jobs are due again              verbs       all else, a file for each
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.jobs.job_options import JobOptions
from tidelog.jobs.lanes import HIGHEST_FIRST, create_group, depth_of
from tidelog.jobs.options import Options
from tidelog.jobs.streams import stream_at
from tidelog.jobs.work.known import Known
from tidelog.jobs.work.later import Due
from tidelog.jobs.work.leases import leases_of
from tidelog.jobs.work.retention import SWEEP_JOBS, sweep
from tidelog.store.commit.batch import run_unit
from tidelog.store.commit.callers import Caller
from tidelog.store.commit.core import Answer, Core
from tidelog.store.errors import QueueFull, TidelogError, from_command

# A putter that waits for room looks again after this time: if a client acknowledges jobs by a plain XACK, nothing wakes
# the putter.
ROOM_SECONDS: Final = 1.0

log = logging.getLogger("tidelog.queue")


class InDatabase:
    """One database of an open store, for all that changes it in units."""

    def __init__(self, core: Core, db: int) -> None:
        self.core, self.db = core, db

    def ask(self, call: Callable[..., Any], *args: Any) -> Any:
        """The result of a call. Raises ResponseError where that raises CommandError."""
        try:
            return call(*args)
        except CommandError as error:
            raise from_command(error) from None

    def unit(self, plan: Callable[[Context], list[list[bytes]] | None]) -> Answer:
        """Run the commands that `plan` gives as one unit. Raises ResponseError."""
        answer: Answer = self.ask(run_unit, self.core, self.db, plan)
        return answer

    def planned(self, plan: Callable[[Context], tuple[list[list[bytes]], Any]]) -> Answer:
        """Run the commands of a plan as one unit; the answer has its result. Raises ResponseError."""
        result: Any = None

        def commands(ctx: Context) -> list[list[bytes]] | None:
            nonlocal result
            words, result = plan(ctx)
            return words or None

        _, promise = self.unit(commands)
        return result, promise

    def decided(self, work: Callable[[Context], Reply]) -> Answer:
        """Run what logs its own effects as one unit. Raises ResponseError."""
        answer: Answer = self.ask(self.core.decided, self.db, work)
        return answer

    def store_ms(self) -> int:
        """The store's time without a unit, unix ms."""
        return self.core.clocks().store


class QueueEngine(InDatabase):
    """One group of a queue in an open store.

    options    as the queue was opened
    known      what this process knows of the queue
    bounded    whether it has `max_depth`
    keeps      whether it keeps finished jobs for a while
    """

    def __init__(self, core: Core, db: int, options: Options) -> None:
        super().__init__(core, db)
        self.options = options
        self.leases = leases_of(core)
        self.known = self.leases.of(core, db, options)
        self.bounded, self.keeps = options.max_depth is not None, options.keeps

    def due(self, options: JobOptions) -> Due | None:
        """When a job is due that is put now; None = at once. Raises DataError for a time too far away."""
        return options.due(self.core.clocks().wall) if options.is_timed else None

    def subscribe(self) -> Any:
        """Create the stream and the group if they are missing, the group in all lanes. Returns a promise."""
        options = self.options

        def plan(ctx: Context) -> list[list[bytes]] | None:
            keys = [options.key]
            for priority in HIGHEST_FIRST:
                key = options.lane(priority).key
                if key in ctx.database.keys:
                    keys.append(key)
            ctx.stream(options.key)  # raises CommandError for another type
            words = []
            for key in keys:
                stream = stream_at(ctx, key)
                if stream is None or options.group_key not in stream.groups:
                    words.append(create_group(key, options.group_key))
            return words or None

        _, promise = self.unit(plan)
        return promise

    def room(self, ctx: Context, wanted: int) -> int:
        """[lock] How many of the `wanted` jobs there is room for. Raises CommandError for a key of another type."""
        if self.options.max_depth is None:
            return wanted
        ctx.stream(self.options.key)  # raises for a key of another type
        there = depth_of(ctx.state, self.db, self.options, self.used(ctx))
        return min(wanted, self.options.max_depth - there)

    def used(self, ctx: Context) -> tuple[int, ...]:
        """[lock] The priorities above 0 that have a lane."""
        return self.known.later.lanes(self.core, ctx, self.options)

    def queue_up(self, caller: Callable[[], Caller] | None) -> Caller | None:
        """[lock] Let a caller be woken when there is room. Returns it; None if it does not wait."""
        if caller is None:
            return None
        made = caller()
        self.known.room[made] = None
        return made

    def nap(self, deadline: float | None) -> float | None:
        """Seconds that a putter may sleep before it tries again. None: until it is woken. 0: its time is up."""
        left = None if deadline is None else max(0.0, deadline - self.core.monotonic())
        if left == 0 or not self.core.clock.manual:
            return ROOM_SECONDS if left is None else min(left, ROOM_SECONDS)
        return None

    def full(self, stored: int = 0) -> QueueFull:
        """The error for a caller who found no room. stored: how many of its values were put before."""
        before = f"; {stored} values were put before it filled up" if stored else ""
        error = QueueFull(
            f"queue {self.options.name!r} is full: it has {self.options.max_depth} unfinished jobs, as many as "
            f"max_depth allows{before}"
        )
        error.stored = stored
        return error

    def acknowledged(self, known: Known, jobs: int) -> None:
        """Count jobs of a lane that are done. Retention sweeps after every SWEEP_JOBS of them."""
        if self.options.keeps:
            known.unswept += jobs
            self.sweep(SWEEP_JOBS)

    def sweep(self, least: int) -> None:
        """Delete jobs that `keep` no longer covers, in the lanes in which at least `least` jobs were done since the
        last sweep.
        """
        if not self.options.keeps:
            return
        for known in self.known.all_lanes():
            if known.unswept < least:
                continue
            try:
                sweep(self.core, known, self.options.lane(known.priority))
            except (TidelogError, CommandError) as error:
                # Do not raise: the call itself succeeded, and the next sweep tries again.
                log.warning(
                    "queue %s: old finished jobs could not be deleted: %s",
                    *(self.options.name, error),
                )
