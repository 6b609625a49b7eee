"""Alone: a job that was lost with its worker runs alone in a process, so that a job that kills its process takes no
other job along. Decisions under the store's lock.

A job is a *suspect* if its lease ran out and its worker said nothing: the process ended, or stopped renewing. It is
none if its worker dropped it, or if its time limit was over. The log tells that it is a suspect:

    a pending entry with an owner that nobody renews                              it was lost
    one without owner, whose delivery of that number is recorded as "abandoned"   it was lost, taken again, and released

The consumers of one process share what happens to it. The process that has the store open is HOME; a client of a server
says which process it is, or else its connection counts as one. A process has a `Turn` while it gets less than it asks
for:

    clearing   it held other jobs when it was to get a suspect. It gets no more until it has finished them, or for one
               window, and then gets the suspect
    lone       it holds a suspect, and gets nothing else for one window. After that it gets other jobs, but no suspect
    resting    for as long as the two took, other jobs come first, so that many suspects do not stop a queue

As many processes of a queue clear as there are suspects, at most. A *window* is as long as the suspect's lease.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidelog.engine.api import NOBODY, Context
from tidelog.jobs.options import Options
from tidelog.jobs.streams import find
from tidelog.jobs.work.known import Delivery, Known, Process
from tidelog.store.commit.core import Core

# A window is not shorter than this: jobs do not take less time because leases are short.
WINDOW_SECONDS_MIN: Final = 10.0
# A process that has cleared for a window stops if none of its consumers asks in this time.
LATE_SECONDS: Final = 5.0
Lone = tuple[weakref.ref[Delivery], int, int]  # who holds it, job, deliveries
# A delivery, and those of its jobs that are done and end in the unit under way.
Ending = tuple[Delivery | None, Collection[int]]


class Turn:
    """A process that gets less than it asks for. See the module docstring.

    lane_0   the queue that began it              window   in seconds
    began    monotonic seconds
    lone     the suspect that it holds, or None
    lone_at  monotonic seconds at which it got that
    rests    monotonic seconds until which it rests; None = it does not rest yet
    """

    __slots__ = ("lane_0", "window", "began", "lone", "lone_at", "rests")

    def __init__(self, lane_0: Known, window: float, mono: float) -> None:
        self.lane_0, self.window = lane_0, window
        self.began = self.lone_at = mono
        self.lone: Lone | None = None
        self.rests: float | None = None

    @property
    def clears(self) -> bool:
        """Whether it waits until it holds no job."""
        return self.lone is None and self.rests is None

    def end(self, mono: float) -> None:
        """It does not hold its suspect any more, or has cleared in vain."""
        self.lone, self.rests = None, mono + min(mono - self.began, 2 * self.window)


class Alone:
    """The turns of all processes, for all queues of one open store.

    turns    empty unless a worker was lost
    apart    each delivery counts as a process of its own: for models that know nothing of processes
    _queues  the queues that are in use or were lately
    _places  keys on which consumers wait because of a turn
    """

    def __init__(self, queues: Mapping[tuple[int, bytes, bytes], Known]) -> None:
        self.turns: dict[Process, Turn] = {}
        self.apart = False
        self._queues = queues
        self._places: set[tuple[int, bytes]] = set()

    def wait_at(self, place: tuple[int, bytes]) -> None:
        """[lock] A consumer waits because of a turn."""
        self._places.add(place)

    def wake(self, core: Core) -> None:
        """[lock] A job ends in the unit under way: wake the consumers that wait because of a turn."""
        if self._places:
            places, self._places = list(self._places), set()
            core.waiting.signal(places)

    def end_turns(self, ctx: Context, mono: float, ending: Ending) -> None:
        """[lock] End the turns that are over."""
        for process, turn in list(self.turns.items()):
            in_vain = turn.clears and mono >= turn.began + turn.window + LATE_SECONDS
            if in_vain or turn.lone is not None and not _is_held(ctx, turn.lone, mono, ending):
                turn.end(mono)
            if turn.rests is not None and mono >= turn.rests:
                del self.turns[process]

    def took(self, delivery: Delivery, job: int, mono: float) -> None:
        """[lock] A process gets this suspect, or is found to hold it."""
        if self.apart:
            return
        lane, process = delivery.known, delivery.process
        turn = self.turns.get(process)
        if turn is None or not turn.clears:
            turn = Turn(lane.lane_0 or lane, window_of(delivery.options), mono)
            self.turns[process] = turn
        turn.lone, turn.lone_at = (weakref.ref(delivery), job, delivery.open[job]), mono

    def clearing(self, lane_0: Known) -> int:
        """How many processes clear for a queue."""
        return sum(turn.clears and turn.lane_0 is lane_0 for turn in self.turns.values())

    def holds_jobs(self, ctx: Context, process: Process, mono: float, ending: Ending) -> bool:
        """[lock] Whether a process holds jobs."""
        for queue in () if self.apart else list(self._queues.values()):
            for lane in queue.all_lanes():
                for delivery in lane.deliveries():
                    if delivery.process != process or not delivery.lives(mono):
                        continue
                    done = _done(delivery, ending)
                    left = [job for job in list(delivery.open) if job not in done]
                    group = find(ctx.state, lane.db, delivery.options)[1] if left else None
                    # A delivery lists a job for a moment after the unit that ended it.
                    if group is not None and delivery.still_held(group, left):
                        return True
        return False


class Asking:
    """One decision: may the process that asks get suspects, or anything else?

    nothing   it gets nothing                        only    it gets a suspect or nothing
    passed    suspects were passed over              lone    it gets a suspect
    _others   tells whether there are other jobs for it
    """

    def __init__(
        self,
        ctx: Context,
        alone: Alone,
        lane_0: Known,
        options: Options,
        process: Process,
        mono: float,
        ending: Ending,
        others: Callable[[], bool],
    ) -> None:
        self._ctx, self._alone, self._mono = ctx, alone, mono
        self._ending, self._others = ending, others
        self._lane_0, self._options, self._process = lane_0, options, process
        self.nothing = self.only = self.passed = self.lone = False
        self._may: bool | None = None
        self._seen = 0
        self._turn: Turn | None = None
        if alone.turns:
            alone.end_turns(ctx, mono, ending)
            turn = self._turn = alone.turns.get(process)
            if turn is not None:
                mine = turn.lane_0 is lane_0
                fresh = turn.lone is not None and mono < turn.lone_at + turn.window
                self.nothing = fresh or turn.clears and not mine
                self.only = turn.clears and mine

    def may_take(self) -> bool:
        """[lock] Whether the process may get a suspect now."""
        if self._may is None:
            self._may = self._judge()
        return self._may

    def _judge(self) -> bool:
        turn = self._turn
        if turn is not None:
            if turn.lone is not None:
                return False
            if turn.clears and self._mono >= turn.began + turn.window:
                return True  # the jobs that it still holds have run as long as a suspect runs alone
            if turn.rests is not None and self._others():
                return False
        return not self._alone.holds_jobs(self._ctx, self._process, self._mono, self._ending)

    @property
    def enough(self) -> bool:
        """Whether to look for no more suspects: those that were passed over are as many as can change anything."""
        return self.passed and self._turn is not None

    def pass_over(self) -> None:
        """[lock] A suspect is due that the process does not get now."""
        self.passed = True
        self._seen += 1
        alone = self._alone
        if self._turn is None and not alone.apart and self._seen > alone.clearing(self._lane_0):
            turn = Turn(self._lane_0, window_of(self._options), self._mono)
            self._turn = self._alone.turns[self._process] = turn
            self.only = True

    def cleared_in_vain(self) -> bool:
        """[lock] Whether the process clears although no suspect is due: another process got it. It clears no more."""
        if not self.only or self.passed or self.lone:
            return False
        self._alone.turns.pop(self._process, None)
        return True

    def waits(self) -> bool:
        """[lock] Whether the consumer, which gets nothing, is to look again soon: its process may get more by then."""
        if self.nothing or self.only or self.passed:
            self._alone.wait_at(self._lane_0.place)
            return True
        return False


def window_of(options: Options) -> float:
    """For how long a suspect has its process for itself, in seconds."""
    return max(options.lease, WINDOW_SECONDS_MIN)


def _done(delivery: Delivery, ending: Ending) -> set[int]:
    """The jobs of a delivery that are done and not acknowledged yet."""
    before, done = ending
    return {*delivery.finished, *(done if delivery is before else ())}


def _is_held(ctx: Context, lone: Lone, mono: float, ending: Ending) -> bool:
    """[lock] Whether a living worker still holds this suspect, with that number of deliveries."""
    delivery, (job, count) = lone[0](), lone[1:]
    if delivery is None or delivery.open.get(job) != count or not delivery.lives(mono):
        return False
    group = find(ctx.state, delivery.known.db, delivery.options)[1]
    row = None if group is None else group.pending.get(job)
    pending = row is not None and row[1] != NOBODY and row[2] == count
    return pending and job not in _done(delivery, ending)
