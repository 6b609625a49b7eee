"""Model: the figures of a store at one moment. None is a figure that its source does not know.

A directory knows nothing of the writer's memory, and a Redis before 7.0 counts no added entries. Times are unix ms,
lengths of time seconds, unless a name says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidelog.engine.api import DbKey


@dataclass(frozen=True, slots=True)
class ConsumerFigures:
    """A consumer of a group."""

    name: bytes
    pending: int
    idle_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A group of a stream.

    read        entries read, as in XINFO GROUPS
    oldest_ms   the time of the oldest delivery that is pending
    due_ms      when the first delayed job, or the next tick of a schedule, is due
    members     its consumers, if they were asked for
    """

    name: bytes
    last_id: str
    read: int | None
    lag: int | None
    pending: int
    oldest_ms: int | None
    consumers: int
    due_ms: int | None = None
    members: tuple[ConsumerFigures, ...] = ()
    read_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """A stream. `lag` and `pending` are sums over its groups; `oldest_ms` and `due_ms` are the first of them.

    groups    how many there are
    each      their figures, perhaps of the first ones only
    """

    db: int
    key: bytes
    length: int
    added: int | None
    added_per_s: float | None
    groups: int
    lag: int | None
    pending: int
    oldest_ms: int | None
    due_ms: int | None = None
    each: tuple[GroupFigures, ...] = ()

    @property
    def place(self) -> DbKey:
        return self.db, self.key


def stream_figures(
    db: int,
    key: bytes,
    length: int,
    added: int | None,
    each: tuple[GroupFigures, ...],
    *,
    groups: int | None = None,
    added_per_s: float | None = None,
) -> StreamFigures:
    """The figures of a stream with these groups."""
    lags = [group.lag for group in each]
    known = [lag for lag in lags if lag is not None]
    return StreamFigures(
        *(db, key, length, added, added_per_s, len(each) if groups is None else groups),
        sum(known) if len(known) == len(lags) else None,
        sum(group.pending for group in each),
        min((group.oldest_ms for group in each if group.oldest_ms is not None), default=None),
        min((group.due_ms for group in each if group.due_ms is not None), default=None),
        each,
    )


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """A queue, for one of its groups. `group` is None for a queue that no worker has opened.

    waiting     jobs that are due: new, given back, or their pause is over
    in_flight   jobs that workers hold
    paused      failed jobs that wait for their retry
    dead        jobs that were given up, by any group; failures: recorded ones that are kept
    scheduled   delayed jobs that are not due; None if there never was one
    oldest_ms   the time of the oldest job that is not done
    kept        jobs that are done and still stored
    held        how many of the jobs in flight each worker holds; by_priority: how many that are due have which priority
    put         jobs ever put; a delayed one counts from its time on
    left        jobs that left the group: done or dead
    stopped_ms  when the queue itself was paused, unix ms; None if it delivers jobs
    cancelled   jobs that were cancelled, once for each group that had not done them. The store keeps the counter
    hanging     handlers that hang now, and processes that were killed for that, as the runs of workers say; see
    killed      jobs/hangs.py. 0 if the source does not know it, as a directory

    Of two looks, `put_per_s` and `left_per_s` are what came between them. Of an open store also counters that the store
    keeps, so they go on after a restart:

    done        those of `left` that are not dead, if no other group has made any
    died        jobs that became dead jobs, of any group
    failed      failures that were recorded; retried: pauses that were recorded, and extended leases
    workers     those alive: they hold jobs or wait for some, in this process or over a connection
    """

    db: int
    key: bytes
    group: bytes | None
    depth: int
    waiting: int
    in_flight: int
    paused: int
    dead: int
    oldest_ms: int | None
    failures: int = 0
    scheduled: int | None = None
    kept: int = 0
    held: tuple[tuple[bytes, int], ...] = ()
    by_priority: tuple[tuple[int, int], ...] = ()
    put: int = 0
    left: int = 0
    stopped_ms: int | None = None
    cancelled: int = 0
    hanging: int = 0
    killed: int = 0
    put_per_s: float | None = None
    left_per_s: float | None = None
    done: int | None = None
    died: int = 0
    failed: int = 0
    retried: int = 0
    workers: int = 0

    @property
    def stopped(self) -> int:
        """1 if the queue itself is paused, else 0."""
        return int(self.stopped_ms is not None)

    @property
    def name(self) -> tuple[int, bytes, bytes | None]:
        """Its database, key and group."""
        return self.db, self.key, self.group

    @property
    def rates(self) -> tuple[float | None, float | None]:
        """Jobs put and jobs that left, each second."""
        return self.put_per_s, self.left_per_s

    def since(self, before: QueueFigures, seconds: float) -> QueueFigures:
        """These figures with the rates since an earlier look."""
        put, left = (max(0, getattr(self, of) - getattr(before, of)) for of in ("put", "left"))
        return replace(self, put_per_s=put / seconds, left_per_s=left / seconds)


@dataclass(frozen=True, slots=True)
class LogFigures:
    """The log. `refusal`: why writes are refused now; `parked`: replies wait because the disk is slow."""

    policy: str
    last_lsn: int
    written_lsn: int
    synced_lsn: int
    unsynced_bytes: int
    unsynced_s: float
    failure: str | None
    refusal: str | None
    parked: bool


@dataclass(frozen=True, slots=True)
class FollowerFigures:
    """A connected follower."""

    name: str
    host: str
    port: int
    written_lsn: int
    fsynced_lsn: int
    lag_bytes: int
    lag_s: float
    heard_s: float


@dataclass(frozen=True, slots=True)
class LinkFigures:
    """A follower's link to its leader. Without a link yet, only `up` is known."""

    up: bool
    failure: str = ""
    leader_lsn: int | None = None
    lag_lsn: int = 0
    lag_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ReplicationFigures:
    """The role, the followers, and what the disk keeps because of replication. `link`: of a follower."""

    follows: bool
    followers: tuple[FollowerFigures, ...]
    retained_bytes: int
    surpluses: int
    surplus_records: int
    link: LinkFigures | None
