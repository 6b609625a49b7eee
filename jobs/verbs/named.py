"""Named: a worker names jobs that it holds, each with its number of deliveries. Both fence it against later workers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from tidelog.engine import ids
from tidelog.engine.api import Context, Group, Stream
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.lanes import lane_of
from tidelog.jobs.options import Options
from tidelog.jobs.own import Own, job_id
from tidelog.jobs.verbs.verb import Verb
from tidelog.jobs.work.known import Known

Fences = list[tuple[int, int]]  # (job, deliveries)
FencedLane = tuple[Known, Options, Stream, Group, Fences]


@dataclass(slots=True)  # not frozen, which takes a microsecond for each job that is done
class Named(Verb):
    """A request about jobs that a worker says it holds."""

    worker: bytes
    fences: Fences

    @classmethod
    def placed(cls, words: list[bytes]) -> int:
        """See `Verb`. The worker, and pairs for as long as there are numbers."""
        at = 1
        while at + 1 < len(words) and words[at][:1].isdigit():
            at += 2
        if at == 1:
            raise CommandError(b"ERR each job needs its ID and its number of deliveries")
        return at

    def words(self) -> list[bytes]:
        """See `Verb`."""
        words = [self.worker]
        for job, count in self.fences:
            words += (ids.text(job), b"%d" % count)
        return words

    @classmethod
    def parse(cls, words: list[bytes], own: Own) -> Self:
        """See `Verb`."""
        return cls(words[0], fences_in(words))


def fences_in(words: list[bytes]) -> Fences:
    """The jobs behind a worker: each its ID and its number of deliveries. Raises CommandError."""
    pairs = iter(words)
    next(pairs)
    return [(job_id(job), int64(count)) for job, count in zip(pairs, pairs)]


def by_lane(engine: QueueEngine, ctx: Context, fences: Fences) -> Iterator[FencedLane]:
    """[lock] Jobs by their lanes, with the streams and groups of these: those that exist."""
    lanes: dict[int, Fences] = {}
    if len(fences) == 1:  # as in most calls
        lanes[lane_of(fences[0][0])] = fences
    else:
        for fence in fences:
            lanes.setdefault(lane_of(fence[0]), []).append(fence)
    for priority, some in lanes.items():
        options = engine.options.lane(priority)
        stream = ctx.stream(options.key)
        group = None if stream is None else stream.groups.get(options.group_key)
        if stream is not None and group is not None:
            yield engine.known.lane(priority), options, stream, group, some
