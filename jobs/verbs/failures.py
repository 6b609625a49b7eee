"""QUEUE FAILURES: what was recorded of deliveries that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from tidelog.engine import ids
from tidelog.engine.api import State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.engine.reply import Reply
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import named, positive
from tidelog.jobs.own import ONE, Own, job_id
from tidelog.jobs.rows import Failure
from tidelog.jobs.verbs.verb import LOOKS, Facts, Verb
from tidelog.store.commit.core import Answer


@dataclass(frozen=True, slots=True)
class Failures(Verb):
    """Recorded failures, newest first, of one job or of all: [Failure, ...]."""

    name = b"FAILURES"
    facts = Facts(
        *(-3, LOOKS, "RO access", "0.1.0", "Show recorded failures"),
        ("FAILURES <name> [JOB <id>] [COUNT <n>]", "Recorded failures, newest first."),
    )
    options = {b"COUNT": ONE, b"JOB": ONE}

    job_id: str | None = None
    count: int = 100

    def __post_init__(self) -> None:
        positive("count", self.count)

    def words(self) -> list[bytes]:
        """See `Verb`."""
        words = [b"COUNT", b"%d" % self.count]
        return words if self.job_id is None else [*words, b"JOB", named("job_id", self.job_id)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        job = own.get(b"JOB")
        return cls(None if job is None else ids.text(job_id(job[0])).decode(), own.count(100))

    def decide(self, engine: QueueEngine) -> Answer:
        """See `Verb`."""
        job_id, number = self.job_id, self.count
        options = engine.options

        def at(state: State) -> list[Failure]:
            value = state.databases[engine.db].keys.get(options.failures_key)
            found: list[Failure] = []
            if isinstance(value, Stream):
                for entry, row in reading.between(value, 0, MAX, None, reverse=True):
                    if row is None:
                        continue
                    failure = rows.failure_of(entry, row)
                    if job_id is None or failure.job_id == job_id:
                        found.append(failure)
                        if len(found) == number:
                            break
            return found

        answer: Answer = engine.core.look(at)
        return answer

    def reply(self, result: list[Failure]) -> Reply:
        """See `Verb`."""
        return [told_failure(failure) for failure in result]

    def result(self, reply: Any) -> list[Failure]:
        """See `Verb`."""
        return list(map(failure_told, reply))


def told_failure(failure: Failure) -> list[Reply]:
    """A failure in a reply of the server."""
    return [
        *(failure.job_id.encode(), rows.milliseconds(failure.at), failure.worker.encode()),
        *(failure.deliveries, rows.unshown(failure.error), rows.unshown(failure.traceback)),
    ]


def failure_told(found: Sequence[Any]) -> Failure:
    """The failure of a reply."""
    job, ms, worker, deliveries, error, trace = found
    return Failure(
        *(job.decode(), rows.moment(ms), worker.decode(), deliveries),
        *(rows.shown(error), rows.shown(trace)),
    )
