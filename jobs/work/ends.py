"""Ends: jobs that end, or go back to the queue, in the unit of a fetch, a beat or a closed consumer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, Protocol

from tidelog.engine.api import XNACK, Context, Group, Stream
from tidelog.engine.idlist import pack
from tidelog.jobs.options import Options
from tidelog.jobs.streams import among_held, stream_at
from tidelog.jobs.work import progressing
from tidelog.jobs.work.known import Delivery, JobEntry, Known, Leftover
from tidelog.jobs.work.settle import log_done


class Ending(Protocol):
    """A lane during one decision, as `Ends` sees it."""

    known: Known
    options: Options
    stream: Stream
    group: Group


class Ends:
    """The jobs that end in the unit of a fetch. Noted when the unit is in the log.

    before    the previous delivery of the worker, if it has finished jobs
    writing   these jobs              held    those of them that the worker still holds
    lane      the lane in which they are to be logged as done; None if there is nothing to log any more
    left      leftovers that the unit deals with
    unseen    see `Selection`
    """

    before: Delivery | None = None
    writing: Sequence[int] = ()
    held: Sequence[int] = ()
    lane: Ending | None = None
    left: Sequence[Leftover] = ()
    unseen: Sequence[tuple[Delivery, JobEntry]] = ()

    def take_finished(self, before: Delivery, lanes: Iterable[Ending]) -> None:
        """Take the finished jobs of the previous delivery, to acknowledge them in this unit."""
        self.before = before
        self.writing = before.take_finished()
        for lane in lanes:
            if lane.known is before.known:
                self.held = before.still_held(lane.group, self.writing)
                self.lane = lane
                return
        # its stream was deleted

    def take_done(self) -> list[int]:
        """The jobs of `lane` that are done. The caller logs them."""
        self.lane = None
        return list(self.held)

    def handled_in(self, known: Known) -> set[int]:
        """The jobs of a lane that a leftover ended or gave back in this unit."""
        handled: set[int] = set()
        for leftover in self.left:
            if leftover.known is known:
                handled.update(leftover.finished)
                handled.update(job for job, _, _ in leftover.unseen)
        return handled

    def take_unseen(self, unseen: Sequence[tuple[Delivery, JobEntry]]) -> None:
        """[lock] Take jobs from the deliveries that had them. A CONFIRM that comes from now on does not find them."""
        self.unseen = unseen
        for delivery, entry in unseen:
            delivery.settled(entry[0])
            # It is not there if its connection ends just now, which gives the job back, too.
            with suppress(ValueError):
                delivery.jobs.remove(entry)

    def log_rest(self, ctx: Context) -> None:
        """[lock] Log the done jobs of a lane that nobody asked for jobs."""
        if self.lane is not None and self.held:
            lane, self.lane = self.lane, None
            log_finished(lane.known, lane.options, ctx, lane.stream, self.held)

    def written(self, lane_0: Known) -> None:
        """The unit is in the log."""
        if self.before is not None:
            self.before.written(self.writing, self.held)
        if self.left:
            lane_0.dealt_with(self.left)

    def failed(self) -> None:
        """The unit is not in the log, or its outcome is unknown: the finished jobs have to be written (again)."""
        if self.before is not None:
            self.before.finished.extendleft(reversed(self.writing))
        for delivery, entry in self.unseen:
            delivery.open[entry[0]] = entry[2]
            delivery.jobs.append(entry)


NOTHING_ENDS: Final = Ends()


def log_finished(
    known: Known, options: Options, ctx: Context, stream: Stream, jobs: Sequence[int]
) -> None:
    """[lock] Log that these jobs are done."""
    if known.extended or known.failed:
        known.drop_notes(ctx, options, jobs)
        for job in jobs:
            known.failed.pop(job, None)
    log_done(ctx, options, stream, jobs)
    if known.progress:
        ctx.effects += progressing.ended(ctx, known.progress, jobs)
    known.unswept += len(jobs)
    if known.limited:
        known.freed(jobs)
    known.let_others_in()
    known.ended(known.results.firsts(stream, jobs))


def log_leftovers(
    known: Known, ctx: Context, stream: Stream, group: Group, mono: float
) -> list[Leftover]:
    """[lock] Write what ended deliveries left behind: finished jobs are done, unseen ones go back.

    The leftovers stay listed until the unit is in the log (`Known.dealt_with`). Writing one twice does nothing.
    """
    left = list(known.leftovers)
    for leftover in left:
        counts, worker = leftover.open, leftover.worker
        wanted = [(job, counts.get(job, 0)) for job in leftover.finished]
        done = among_held(group, worker, wanted)
        if done:
            log_finished(known, leftover.options, ctx, stream, done)
        give_back(known, leftover.options, ctx, group, worker, leftover.unseen, mono)
        gone = leftover.let_go()
        if gone:
            known.dropped.update(gone)
            if leftover.here:
                known.forgotten = next(iter(gone))
    return left


def give_back(
    known: Known,
    options: Options,
    ctx: Context,
    group: Group,
    worker: bytes,
    unseen: list[JobEntry],
    mono: float,
) -> None:
    """[lock] Undo the delivery of jobs that were fetched but never handed to the worker."""
    counts = {job: count for job, _, count in unseen}
    back = among_held(group, worker, counts.items())
    if back:
        known.drop_notes(ctx, options, back)
        less = tuple(max(counts[job] - 1, 0) for job in back)
        key, name = options.key, options.group_key
        ctx.effects.append((XNACK, ctx.db, key, name, pack(back), less))
        for job, count in zip(back, less, strict=True):
            known.give_back(job, count)


def log_all_leftovers(ctx: Context, lane_0: Known, options: Options, mono: float) -> list[Leftover]:
    """[lock] `log_leftovers` of all lanes of a queue. If a lane or its group is gone, there is nothing to write."""
    left: list[Leftover] = []
    for known in lane_0.all_lanes():
        if not known.leftovers:
            continue
        lane = options.lane(known.priority)
        stream = stream_at(ctx, lane.key)
        group = None if stream is None else stream.groups.get(lane.group_key)
        if stream is None or group is None:
            left += known.leftovers
        else:
            known.fresh(ctx, lane, stream, group)
            left += log_leftovers(known, ctx, stream, group, mono)
    return left
