"""QUEUE TAKE: a worker gets jobs, or waits for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

from tidelog.engine import ids
from tidelog.jobs.options import positive
from tidelog.jobs.own import FLAG, ONE, Own, ms_word
from tidelog.jobs.verbs.verb import Facts, Verb
from tidelog.jobs.work.known import JobEntry
from tidelog.store.errors import DataError

BATCH_MAX: Final = 100_000  # jobs that one call may ask for


def checked_batch(batch: Any) -> int:
    """The `batch` of a consumer. Raises DataError."""
    positive("batch", batch)
    if batch > BATCH_MAX:
        raise DataError(f"batch must be at most {BATCH_MAX}, not {batch}")
    number: int = batch
    return number


@dataclass(frozen=True, slots=True)
class Take(Verb):
    """Get jobs as a worker: [(ID, row, deliveries), ...]. It waits, so what decides it is `Fetch`.

    beat       seconds after which the jobs are taken back unless QUEUE RENEW names them so often; None = when the
               connection ends
    limit      seconds after which they are taken back in any case; None = never
    history    the worker begins: this and the calls after it first get the jobs that an earlier connection of this
               worker left, in the order of priorities
    token      the jobs are unconfirmed until QUEUE CONFIRM, RENEW or a settling names one of them. Before that, they go
               back uncounted if the connection ends or takes others. QUEUE UNBLOCK ends a call that waits with this
               token
    """

    name = b"TAKE"
    facts = Facts(
        *(-4, "write blocking noscript no_multi", "RW access update", "0.1.0"),
        "Get jobs as a worker; may block",
        (
            "TAKE <name> <worker> [COUNT <n>] [BLOCK <ms>] [HEARTBEAT <ms>] [LIMIT <ms>] [HISTORY]",
            "[CONFIRM <token>]",
            "Get jobs, each as ID, number of deliveries, and fields.",
        ),
    )
    places = 1
    options = {
        **dict.fromkeys((b"COUNT", b"BLOCK", b"HEARTBEAT", b"LIMIT", b"CONFIRM"), ONE),
        b"HISTORY": FLAG,
    }

    worker: bytes
    count: int = 1
    beat: float | None = None
    limit: float | None = None
    history: bool = False
    token: bytes | None = None

    def words(self) -> list[bytes]:
        """See `Verb`."""
        words = [self.worker, b"COUNT", b"%d" % self.count]
        if self.beat is not None:
            words += (b"HEARTBEAT", ms_word(self.beat))
        if self.limit is not None:
            words += (b"LIMIT", ms_word(self.limit))
        if self.history:
            words.append(b"HISTORY")
        return words if self.token is None else [*words, b"CONFIRM", self.token]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(
            words[0],
            own.count(1, BATCH_MAX),
            own.milliseconds(b"HEARTBEAT"),
            own.milliseconds(b"LIMIT"),
            b"HISTORY" in own,
            own[b"CONFIRM"][0] if b"CONFIRM" in own else None,
        )

    def result(self, reply: Any) -> list[JobEntry]:
        """See `Verb`."""
        found = () if reply is None else reply
        return [(ids.parse(job), tuple(row), deliveries) for job, deliveries, row in found]
