"""Search: the jobs of a queue that a caller looks for by their facts. Decisions under the store's lock.

Found are the jobs that the group has not done, the dead ones that it gave up, and cancelled ones. Entries that a queue
keeps of other jobs are passed over: they do not say which of these died, or live on under another ID.

Jobs are looked at in the order of the IDs that they have now, in all streams of the queue together, slice by slice:

    lane of priority p    rank p     jobs that were put at once or are due
    delayed jobs          rank 10
    dead jobs             rank 11    those of the caller's group
    cancelled jobs        rank 12    likewise, if they are asked for

A slice ends after a bounded number of entries, so others get the lock. Its last place, an ID and the rank of its
stream, says where the next slice begins. A job that gets another ID gets a greater one, so a search meets every job
that is there all the time, and may meet one twice.

Only what is needed is read: jobs that were delivered are looked for among the pending entries of the group, and sealed
nodes without the bytes of the key or the header are not decoded. A text may be anywhere, so a search for it reads all
jobs; long ones cost more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from typing import Final, NamedTuple

from tidelog.engine import ids
from tidelog.engine.api import NOBODY, Context, EntryRow, Group, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.jobs import rows
from tidelog.jobs.due import known_of_lane
from tidelog.jobs.engine import QueueEngine
from tidelog.jobs.found import dead_status, delayed_status, entry_status
from tidelog.jobs.lanes import Lane, lanes_in
from tidelog.jobs.options import PRIORITY_MAX
from tidelog.jobs.status import CANCELLED, DEAD, DELAYED, PAUSED, RUNNING, WAITING, JobStatus, texts
from tidelog.jobs.streams import stream_at
from tidelog.jobs.work.later import find_later
from tidelog.jobs.work.results import first_id, first_id_of_dead

SLICE_COST: Final = 500  # entries of a slice; a node that is not decoded counts by its KiB
STATUS_COST: Final = 4  # so much more for a job whose status is made
PAGE: Final = 100  # pending entries read together
# the states that a caller may name
SOUGHT: Final = (DELAYED, WAITING, RUNNING, PAUSED, DEAD, CANCELLED)
LATER_RANK: Final = PRIORITY_MAX + 1
DEAD_RANK: Final = PRIORITY_MAX + 2
CANCELLED_RANK: Final = PRIORITY_MAX + 3

FoundAt = tuple[int, int]  # of an entry: its ID, and the rank of its stream
# the ID of an entry, its row if that may be wanted, the cost of the look
Looked = tuple[int, EntryRow | None, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The jobs that a caller looks for: those for which all facts that are not None hold.

    key       the key
    header    name and text of a header
    error     a part of the error of a recorded failure
    text      a part of one of its `texts`, in lower case
    state     one of SOUGHT
    since     the time of the put or later, unix ms
    """

    key: bytes | None = None
    header: tuple[bytes, bytes] | None = None
    error: str | None = None
    text: str | None = None
    state: str | None = None
    since: int | None = None

    @property
    def mark(self) -> bytes:
        """Bytes that the row of each of the jobs has; empty if none are known."""
        return max(self.key or b"", *(self.header or (b"",)), key=len)

    def fits_row(self, row: EntryRow) -> bool:
        """Whether the key and the header are those of a row."""
        if self.key is not None and rows.key_of(row) != self.key:
            return False
        if self.header is None:
            return True
        name, text = self.header
        return (rows.HEADER + name, text) in zip(row[::2], row[1::2], strict=False)

    def fits(self, status: JobStatus) -> bool:
        """Whether the state, the failures and the text are those of a job."""
        if self.state is not None and status.state != self.state:
            return False
        error, text = self.error, self.text
        if error is not None and not any(error in failure.error for failure in status.failures):
            return False
        return text is None or any(text in each.lower() for _, each in texts(status))

    def status_cost(self, row: EntryRow) -> int:
        """The cost of a look at a job whose row fits."""
        return STATUS_COST + (0 if self.text is None else sum(map(len, row)) >> 12)


class Source(NamedTuple):
    """A stream of the queue in a slice of a search.

    looks     of the entries from an ID on, in ascending order; the stream must not change meanwhile
    status    of a job by its first ID, its ID now and its row
    first     the first ID of a job by its ID now and its row
    """

    rank: int
    looks: Callable[[int], Iterator[Looked]]
    status: Callable[[bytes, int, EntryRow], JobStatus]
    first: Callable[[int, EntryRow], bytes] = first_id


class Search:
    """A slice of a search, which is decided as a whole. Its result: (the jobs found, the place of the last entry that
    was looked at, or None if there are no more).
    """

    __slots__ = ("_engine", "_wanted", "_most", "_after")

    def __init__(
        self, engine: QueueEngine, wanted: Wanted, most: int, after: FoundAt | None
    ) -> None:
        self._engine, self._wanted = engine, wanted
        self._most, self._after = most, after

    def __call__(self, ctx: Context) -> tuple[list[JobStatus], FoundAt | None]:
        wanted, left = self._wanted, SLICE_COST
        sources = {source.rank: source for source in self._sources(ctx)}
        found: list[JobStatus] = []
        at: FoundAt | None = None
        for job, rank, row, cost in merge(*map(self._from, sources.values())):
            if left <= 0 or len(found) == self._most:
                return found, at
            left -= cost
            at = job, rank
            if row is None or not wanted.fits_row(row):
                continue
            source = sources[rank]
            first = source.first(job, row)
            if wanted.since is not None and _put_at(first) < wanted.since:
                continue
            left -= wanted.status_cost(row)
            status = source.status(first, job, row)
            if wanted.fits(status):
                found.append(status)
        return found, None

    def _from(self, source: Source) -> Iterator[tuple[int, int, EntryRow | None, int]]:
        """The looks at a stream from where the slice begins. No two have the same ID and rank."""
        since = self._wanted.since
        start = 0 if since is None else since << 64  # no job has a smaller ID than its first one
        if self._after is not None:
            job, rank = self._after
            start = max(start, job + (source.rank <= rank))
        if start > MAX:
            return
        for at, row, cost in source.looks(start):
            yield at, source.rank, row, cost

    # --- the streams

    def _sources(self, ctx: Context) -> Iterator[Source]:
        wanted, engine = self._wanted, self._engine
        options = engine.options
        if wanted.state == CANCELLED:
            cancels = stream_at(ctx, options.cancels_key)
            if cancels is not None:
                yield self._dead(cancels, CANCELLED_RANK, CANCELLED)
            return
        if wanted.state not in (DELAYED, DEAD):
            for lane in lanes_in(ctx.state, ctx.db, options):
                yield self._lane(ctx, lane)
        later = find_later(ctx, options)
        if later is not None and wanted.error is None and wanted.state in (None, DELAYED, WAITING):
            yield self._later(ctx, *later)
        dead = stream_at(ctx, options.dead_key)
        if dead is not None and wanted.state in (None, DEAD):
            yield self._dead(dead, DEAD_RANK, DEAD)

    def _lane(self, ctx: Context, lane: Lane) -> Source:
        wanted, stream, group = self._wanted, lane.stream, lane.group
        known = None if group is None else known_of_lane(self._engine, ctx, lane)
        failed = None if wanted.error is None or known is None else known.failed

        def may_be(job: int, owner: int) -> bool:
            if failed is not None and job not in failed:
                return False
            return wanted.state is None or (wanted.state == RUNNING) == (owner != NOBODY)

        def looks(start: int) -> Iterator[Looked]:
            unread = 0 if group is None else group.last_id + 1
            if group is not None and start < unread:
                yield from _pending(stream, group, start, unread - 1, may_be)
            if wanted.error is None and wanted.state in (None, WAITING):
                yield from _entries(stream, wanted.mark, max(start, unread))

        def status(first: bytes, job: int, row: EntryRow) -> JobStatus:
            return entry_status(ctx, lane, known, rows.shown(first), job, row)

        return Source(lane.options.priority, looks, status)

    def _later(self, ctx: Context, stream: Stream, group: Group) -> Source:
        def looks(start: int) -> Iterator[Looked]:
            return _pending(stream, group, start, MAX, lambda job, owner: True)

        def status(first: bytes, job: int, row: EntryRow) -> JobStatus:
            return delayed_status(self._engine, ctx, group, job, row)

        return Source(LATER_RANK, looks, status)

    def _dead(self, stream: Stream, rank: int, state: str) -> Source:
        mine = self._engine.options.group_key

        def looks(start: int) -> Iterator[Looked]:
            for job, row, cost in _entries(stream, self._wanted.mark, start):
                other = row is not None and rows.fields_of(row).get(b"group") != mine
                yield job, None if other else row, cost

        def status(first: bytes, job: int, row: EntryRow) -> JobStatus:
            return dead_status(self._engine, rows.shown(first), job, row, state)

        return Source(rank, looks, status, lambda job, row: first_id_of_dead(row))


def _put_at(first: bytes) -> int:
    """When a job was put, unix ms; 0 if another client wrote an ID that is none."""
    number = ids.parse_or_none(first)
    return 0 if number is None else number >> 64


def _entries(stream: Stream, mark: bytes, start: int) -> Iterator[Looked]:
    """The entries of a stream from an ID on that may have certain bytes. A node without them is one look."""
    for last, nbytes, entries in reading.having(stream, mark, start):
        if not entries:
            yield last, None, 1 + (nbytes >> 10)
        for job, row in entries:
            yield job, row, 1


def _pending(
    stream: Stream, group: Group, start: int, end: int, may_be: Callable[[int, int], bool]
) -> Iterator[Looked]:
    """The pending entries of a group between two IDs. `may_be` tells by ID and owner whether a row is read."""
    while page := group.pending.page(start, end, PAGE):
        for job, _, owner, _ in page:
            yield job, stream.get(job) if may_be(job, owner) else None, 1
        start = page[-1][0] + 1
