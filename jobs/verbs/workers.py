"""QUEUE WORKERS: the workers of a group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from tidelog.engine.api import State
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.hangs import NONE
from tidelog.jobs.lanes import Lane, lanes_in
from tidelog.jobs.living import living_workers, waiting_workers
from tidelog.jobs.progress import Progress, packed, unpacked
from tidelog.jobs.stats import WorkerStatus
from tidelog.jobs.verbs.verb import LOOKS, WORKERS, Facts, Verb
from tidelog.jobs.work.progressing import progress_of
from tidelog.jobs.work.results import first_id
from tidelog.store.commit.core import Answer

JOBS_MAX: Final = 100  # of a worker, whose IDs are listed
LOOKED_MAX: Final = 1_000  # jobs of all workers, whose progress is looked for


class AskWorkers(Verb):
    """The workers of a group, by name: [WorkerStatus, ...]."""

    __slots__ = ()

    name = b"WORKERS"
    facts = Facts(
        *(-3, LOOKS, "RO access", "0.2.0", "List the workers of a group"),
        (
            "WORKERS <name>",
            "Of each worker: name, number of jobs, their IDs, whether it waits, whether it lives, when it was seen"
            " and when it last got a job, unix ms, how many of its handlers hang, how many of its processes were"
            " killed, and the IDs of jobs of which a progress is known, each with that as JSON.",
        ),
    )
    needs = WORKERS

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        options, known = engine.options, engine.known
        place = engine.db, options.key, options.group_key

        def at(state: State) -> list[WorkerStatus]:
            hangs = engine.leases.hangs.of(place, engine.core.monotonic())
            waits, lives = waiting_workers(known), living_workers(known) | hangs.keys()
            held: dict[bytes, int] = dict.fromkeys(lives, 0)
            come: dict[bytes, dict[str, Progress]] = {}
            left = LOOKED_MAX
            jobs: dict[bytes, list[str]] = {}
            seen: dict[bytes, int] = {}
            got: dict[bytes, int] = {}
            for lane in lanes_in(state, engine.db, options):
                if lane.group is None:
                    continue
                pending = lane.group.pending
                for name, consumer in lane.group.consumers.items():
                    some, more = jobs.setdefault(name, []), pending.held_by(consumer.index)
                    if more and len(some) < JOBS_MAX:
                        page = pending.page(0, MAX, JOBS_MAX - len(some), consumer.index)
                        found = [job for job, *_ in page]
                        some += map(rows.text, found)
                        progress = _progress(engine, state, lane, found[: max(left, 0)])
                        come.setdefault(name, {}).update(progress)
                        left -= len(found)
                    held[name] = held.get(name, 0) + more
                    seen[name] = max(seen.get(name, 0), consumer.seen_time)
                    got[name] = max(got.get(name, -1), consumer.active_time)
            return [
                WorkerStatus(
                    name=rows.shown(name),
                    held=held[name],
                    jobs=tuple(jobs.get(name, ())),
                    waits=name in waits,
                    lives=name in lives,
                    seen_at=_moment(seen.get(name)),
                    got_at=_moment(got.get(name)),
                    progress=come.get(name, {}),
                    **hangs.get(name, NONE)._asdict(),
                )
                for name in sorted(held)
            ]

        answer: Answer = engine.core.look(at)
        return answer

    def reply(self, result: list[WorkerStatus]) -> Reply:
        """See `Verb`."""
        return [
            [
                *(rows.unshown(each.name), each.held, [job.encode() for job in each.jobs]),
                *(int(each.waits), int(each.lives), _ms(each.seen_at), _ms(each.got_at)),
                *(each.hanging, each.killed, _progress_told(each.progress)),
            ]
            for each in result
        ]

    def result(self, reply: Any) -> list[WorkerStatus]:
        """See `Verb`."""
        return [
            WorkerStatus(
                name=rows.shown(name),
                held=held,
                jobs=tuple(job.decode() for job in jobs),
                waits=bool(waits),
                lives=bool(lives),
                seen_at=_moment(seen),
                got_at=_moment(got),
                hanging=hanging,
                killed=killed,
                progress={
                    job.decode(): progress
                    for job, raw in zip(come[::2], come[1::2], strict=True)
                    if (progress := unpacked(raw)) is not None
                },
            )
            for name, held, jobs, waits, lives, seen, got, hanging, killed, come in reply
        ]


def _progress(
    engine: QueueEngine, state: State, lane: Lane, jobs: Sequence[int]
) -> Iterator[tuple[str, Progress]]:
    """[lock] Those of these jobs of a lane, by their present IDs, that have told how far they have come."""
    for job in jobs:
        row = lane.stream.get(job)
        first = first_id(job, row or ()).decode()
        come = progress_of(state, engine.db, engine.options, first)
        if come is not None:
            yield rows.text(job), come


def _progress_told(come: Mapping[str, Progress]) -> list[bytes]:
    return [
        word
        for job, each in come.items()
        for word in (job.encode(), packed(each.fraction, each.text, rows.milliseconds(each.at)))
    ]


def _moment(ms: int | None) -> datetime | None:
    """The time of unix ms; None for -1, never, and if it is not known."""
    return None if ms is None or ms < 0 else rows.moment(ms)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else rows.milliseconds(at)
