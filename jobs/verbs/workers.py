"""QUEUE WORKERS: the workers of a group."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from tidelog.engine.api import State
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import lanes_in
from tidelog.jobs.living import living_workers, waiting_workers
from tidelog.jobs.stats import WorkerStatus
from tidelog.jobs.verbs.verb import LOOKS, WORKERS, Facts, Verb
from tidelog.store.commit.core import Answer

JOBS_MAX: Final = 100  # of a worker, whose IDs are listed


class AskWorkers(Verb):
    """The workers of a group, by name: [WorkerStatus, ...]."""

    __slots__ = ()

    name = b"WORKERS"
    facts = Facts(
        *(-3, LOOKS, "RO access", "0.2.0", "List the workers of a group"),
        (
            "WORKERS <name>",
            "Of each worker: name, number of jobs, their IDs, whether it waits, whether it lives, when it was seen"
            " and when it last got a job, unix ms.",
        ),
    )
    needs = WORKERS

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        options, known = engine.options, engine.known

        def at(state: State) -> list[WorkerStatus]:
            waits, lives = waiting_workers(known), living_workers(known)
            held: dict[bytes, int] = dict.fromkeys(lives, 0)
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
                        some += (rows.text(job) for job, *_ in page)
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
            )
            for name, held, jobs, waits, lives, seen, got in reply
        ]


def _moment(ms: int | None) -> datetime | None:
    """The time of unix ms; None for -1, never, and if it is not known."""
    return None if ms is None or ms < 0 else rows.moment(ms)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else rows.milliseconds(at)
