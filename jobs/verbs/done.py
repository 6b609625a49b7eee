"""QUEUE DONE: jobs are done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError
from tidelog.jobs import rows
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.options import Options
from tidelog.jobs.own import ONE, Own, ms_word
from tidelog.jobs.streams import among_held
from tidelog.jobs.verbs.ending import ACKED, Ending
from tidelog.jobs.verbs.named import Named, by_lane
from tidelog.jobs.verbs.verb import WORKS, Change, Facts
from tidelog.jobs.work import settle
from tidelog.jobs.work.ends import log_finished
from tidelog.jobs.work.results import RESULT_SECONDS
from tidelog.jobs.work.settle import Held
from tidelog.store.durations import SECONDS_MAX, Duration, seconds

ONE_RESULT: Final = b"ERR RESULT is for one job, without ONCE, and RESULTTTL needs RESULT"


@dataclass(slots=True)
class Done(Named, Change):
    """Jobs are done, and leave no result: how many the worker still held."""

    name = b"DONE"
    facts = Facts(
        *(-6, WORKS, "RW delete", "0.1.0"),
        "Mark jobs as done",
        (
            "DONE <name> <worker> <id> <deliveries> [<id> <deliveries> ...] [RESULT <value> [RESULTTTL <ms>]]",
            "The jobs are done. A result is for one job.",
        ),
    )
    options = {b"RESULT": ONE, b"RESULTTTL": ONE}

    def decision(self, engine: QueueEngine) -> Callable[[Context], int]:
        """See `Change`."""
        return partial(_log_done, engine, self)


def _log_done(engine: QueueEngine, request: Done, ctx: Context) -> int:
    """[lock] Log that the jobs are done which the worker still holds. Returns how many."""
    done = 0
    for lane, options, stream, group, some in by_lane(engine, ctx, request.fences):
        here = among_held(group, request.worker, some)
        if len(here) > 1:
            here = list(dict.fromkeys(here))
        if here:
            lane.fresh(ctx, options, stream, group)
            log_finished(lane, options, ctx, stream, here)
            done += len(here)
    return done


@dataclass(frozen=True, slots=True)
class DoneWith(Ending):
    """One job is done. It leaves a result, encoded, for `ttl` seconds.

    Its delivery fences a repeated call, so it needs no number.
    """

    name = Done.name
    options = Done.options
    end = ACKED

    data: bytes
    ttl: float

    @classmethod
    def of(cls, options: Options, result: Any, ttl: Duration) -> Self:
        """The request of a worker. Raises EncodeError, DataError."""
        return cls(rows.encode_value(options, result, "a result"), seconds("ttl", ttl))

    def words(self) -> list[bytes]:
        """See `Verb`."""
        return [b"RESULT", self.data, b"RESULTTTL", ms_word(self.ttl)]

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        result, ttl = own.get(b"RESULT"), own.milliseconds(b"RESULTTTL")
        if result is None or b"ONCE" in own:
            raise CommandError(ONE_RESULT)
        length = RESULT_SECONDS if ttl is None else ttl
        if length > SECONDS_MAX:
            raise CommandError(b"ERR RESULTTTL is out of range")
        return cls(result[0], length)

    def plan(self, held: Held, ctx: Context) -> list[list[bytes]] | None:
        """See `Ending`."""
        return settle.done_with(held, ctx, self.data, max(1, round(self.ttl * 1000)))


class Ack(Ending):
    """One job is done, and leaves no result: as a client says it, which has no faster way."""

    __slots__ = ()

    name = Done.name
    end = ACKED


ACK: Final = Ack()
