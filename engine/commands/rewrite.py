"""Rewrite: a state as Redis commands, key by key, as Redis's AOF rewrite writes them (spec 12.2).

    SELECT db                                             once for each database that has keys
    SET key value                                         a string
    XADD key id field value ...                           every live entry; an empty stream: XADD key MAXLEN 0 0-1 x y
    XSETID key last ENTRIESADDED n MAXDELETEDID id        corrects the counters after the XADDs
    XGROUP CREATE key group last ENTRIESREAD n            groups, then their consumers, sorted by name
    XCLAIM key group consumer 0 id TIME t RETRYCOUNT n JUSTID FORCE     every pending entry
    XGROUP CREATECONSUMER key group consumer              a consumer without an XCLAIM
    XNACK key group FAIL IDS n id ... RETRYCOUNT n FORCE  released entries, in the order of their release
    XCFGSET key IDMP-DURATION s IDMP-MAXSIZE n            if these are not the defaults
    XIDMPRECORD key pid iid id                            the dedup tables
    PEXPIREAT key ms

Sent to an empty server, the commands build the same state, except for facts that have no command; `Lost` counts them.
XNACK, XCFGSET and XIDMPRECORD need Redis 8.x and are left out for `Target.REDIS_7_0`; all others work with 7.0.

Two losses are not counted: whether APPEND made a string `raw`, which is not in the digest either; and a delivery time
in the server's future, which the server replaces by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import groupby, islice
from typing import Final

from tidelog.engine.commands.streams.add import place
from tidelog.engine.groups.group import NEVER_ACTIVE, Consumer, Group
from tidelog.engine.ids import MAX
from tidelog.engine.ids import text as id_text
from tidelog.engine.keys.keyrow import NO_EXPIRY
from tidelog.engine.keys.state import Settings, State
from tidelog.engine.streams.block import EntryRow
from tidelog.engine.streams.idmp import DURATION_DEFAULT_S, MAXSIZE_DEFAULT, Idmp
from tidelog.engine.streams.stream import Stream

Command = list[bytes]

PENDING_PER_PAGE: Final = 1024  # pending entries read at once
NACKED_PER_COMMAND: Final = 64


class Target(Enum):
    """The version of Redis that will run the commands."""

    REDIS_7_0 = "7.0"
    REDIS_8_8 = "8.8"


class Kind(Enum):
    """Kinds of facts that the commands cannot carry. The value is the kind's name; `told` describes what is counted."""

    PENDING_GONE = "pending-gone"
    NACKED = "nacked"
    ENTRIES_READ = "entries-read"
    DEDUP = "dedup"
    DEDUP_GONE = "dedup-gone"
    DEDUP_TIMES = "dedup-times"
    DEDUP_COUNTERS = "dedup-counters"
    NODES = "nodes"
    SEEN_TIME = "seen-time"
    ACTIVE_TIME = "active-time"
    MAX_DELETED = "max-deleted"

    @property
    def told(self) -> str:
        """A description of what is counted."""
        return _TOLD[self]


_TOLD: Final = {
    Kind.PENDING_GONE: "pending entries whose message was deleted; Redis cannot create them",
    Kind.NACKED: "entries released by XNACK; they become pending of the consumer '' with delivery time 0",
    Kind.ENTRIES_READ: "groups whose entries-read is above entries-added; it is lowered to entries-added",
    Kind.DEDUP: "idempotency IDs and their settings; the target has none",
    Kind.DEDUP_GONE: "idempotency IDs whose message was deleted; they are dropped",
    Kind.DEDUP_TIMES: "idempotency IDs recorded while IDs ran ahead of the clock; now they expire by the ID",
    Kind.DEDUP_COUNTERS: "streams whose iids-added and iids-duplicates start again",
    Kind.NODES: "nodes with deleted slots or with bounds that differ from Redis's; Redis divides them again",
    Kind.SEEN_TIME: "consumers whose seen-time becomes the time of the import",
    Kind.ACTIVE_TIME: "consumers whose active-time becomes the time of the import, or never",
    Kind.MAX_DELETED: "entries that a trim with ACKED removed; deleting them raises max-deleted-entry-id",
}


class Lost:
    """Counts of lost facts by kind, database and key. Complete once `rewrite` is exhausted."""

    def __init__(self) -> None:
        self.counts: dict[tuple[Kind, int, bytes], int] = {}

    def add(self, kind: Kind, db: int, key: bytes, count: int = 1) -> None:
        """Add to the count of a key."""
        if count:
            at = kind, db, key
            self.counts[at] = self.counts.get(at, 0) + count

    def __bool__(self) -> bool:
        return bool(self.counts)

    def of(self, kind: Kind) -> dict[tuple[int, bytes], int]:
        """(database, key) -> count of one kind."""
        return {(db, key): n for (found, db, key), n in self.counts.items() if found is kind}


def rewrite(
    state: State, lost: Lost | None = None, target: Target = Target.REDIS_8_8
) -> Iterator[Command]:
    """Yield the commands that build `state` in an empty server. Counts what they cannot carry in `lost`.

    Generates them lazily, and holds at most one node of entries or one page of pending entries. `state` must not change
    until the generator is exhausted. Raises CorruptBlock.
    """
    lost = Lost() if lost is None else lost
    for number, database in enumerate(state.databases):
        keys = database.keys.walk()
        first = next(keys, None)
        if first is None:
            continue
        yield [b"SELECT", b"%d" % number]
        yield from _key(number, *first, lost, target)
        for found in keys:
            yield from _key(number, *found, lost, target)


def commands_about(state: State) -> int:
    """The approximate number of commands of `rewrite`, for a progress bar. O(keys + groups); reads no entry."""
    total = 0
    for database in state.databases:
        for _, value, _ in database.keys.walk():
            total += 1
            if isinstance(value, Stream):
                total += value.length
                total += sum(1 + len(group.pending) for group in value.groups.values())
    return total


def _key(
    db: int, key: bytes, value: Stream | bytes, expire_at: int, lost: Lost, target: Target
) -> Iterator[Command]:
    if isinstance(value, bytes):
        yield [b"SET", key, bytes(value)]
    else:
        yield from _StreamForm(db, key, value, lost, target).commands()
    if expire_at != NO_EXPIRY:
        yield [b"PEXPIREAT", key, _number(expire_at)]


class _StreamForm:
    """The commands of one stream."""

    def __init__(self, db: int, key: bytes, stream: Stream, lost: Lost, target: Target) -> None:
        self.db = db
        self.key = key
        self.stream = stream
        self.lost = lost
        self.target = target

    def lose(self, kind: Kind, count: int = 1) -> None:
        self.lost.add(kind, self.db, self.key, count)

    def commands(self) -> Iterator[Command]:
        key, stream = self.key, self.stream
        yield from self.entries()
        yield [
            *(b"XSETID", key, id_text(stream.last_id)),
            *(b"ENTRIESADDED", _number(stream.entries_added)),
            *(b"MAXDELETEDID", id_text(stream.max_deleted_id)),
        ]
        for name in sorted(stream.groups):
            yield from self.group(name, stream.groups[name])
        if stream.idmp is not None:
            yield from self.dedup(stream.idmp)

    def entries(self) -> Iterator[Command]:
        key = self.key
        if not self.stream.length:
            # The XADD trims its own entry at once, so the stream exists and is empty. The later XSETID corrects the
            # counters.
            yield [b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]
            return
        nodes = _Nodes()
        for node in self.stream.walk():
            ids, rows = node.ids(), node.rows()
            if node.deleted:
                slots = node.live_slots()
                ids, rows = [ids[slot] for slot in slots], [rows[slot] for slot in slots]
            as_there = nodes.would_be_one(ids, rows)
            self.lose(Kind.NODES, node.deleted != 0 or not as_there)
            for entry_id, row in zip(ids, rows, strict=True):
                yield [b"XADD", key, id_text(entry_id), *row]

    # --- groups

    def group(self, name: bytes, group: Group) -> Iterator[Command]:
        position = [id_text(group.last_id), b"ENTRIESREAD", _number(group.entries_read)]
        yield [b"XGROUP", b"CREATE", self.key, name, *position]
        if group.entries_read > self.stream.entries_added and self.target is Target.REDIS_8_8:
            self.lose(Kind.ENTRIES_READ)
        for consumer in group.listed():
            yield from self.consumer(group, consumer)
        if group.pending.nacked():
            yield from self.nacked(group)

    def consumer(self, group: Group, consumer: Consumer) -> Iterator[Command]:
        claims = False
        start = 0
        head = [b"XCLAIM", self.key, group.name, consumer.name, b"0"]
        while True:
            page = group.pending.page(start, MAX, PENDING_PER_PAGE, consumer.index)
            for entry_id, time, _, count in page:
                if self.stream.still_has(entry_id):
                    claims = True
                    yield _claim(head, entry_id, time, count)
                else:
                    self.lose(Kind.PENDING_GONE)
            if len(page) < PENDING_PER_PAGE or page[-1][0] == MAX:
                break
            start = page[-1][0] + 1
        if not claims:
            # Create the consumer here if no XCLAIM creates it, for example because all its pending entries are lost.
            yield [b"XGROUP", b"CREATECONSUMER", self.key, group.name, consumer.name]
        self.lose(Kind.SEEN_TIME)
        self.lose(Kind.ACTIVE_TIME, claims or consumer.active_time != NEVER_ACTIVE)

    def nacked(self, group: Group) -> Iterator[Command]:
        released = self.released(group)
        if self.target is Target.REDIS_7_0:
            # Redis 7.0 has no XNACK, and its `>` never returns an entry again. So give released entries an owner with
            # an empty name; then consumers can claim them.
            for entry_id, count in released:
                self.lose(Kind.NACKED)
                yield _claim([b"XCLAIM", self.key, group.name, b"", b"0"], entry_id, 0, count)
            return
        for count, run in groupby(released, key=lambda pair: pair[1]):
            while batch := [id_text(entry_id) for entry_id, _ in islice(run, NACKED_PER_COMMAND)]:
                command = [b"XNACK", self.key, group.name, b"FAIL", b"IDS", _number(len(batch))]
                yield [*command, *batch, b"RETRYCOUNT", _number(count), b"FORCE"]

    def released(self, group: Group) -> Iterator[tuple[int, int]]:
        """Yield (ID, delivery count) of the NACK zone's entries that still exist, in order of release."""
        for _, entry_id in islice(group.pending.by_age(), group.pending.nacked()):
            if self.stream.still_has(entry_id):
                entry = group.pending.get(entry_id)
                assert entry is not None
                yield entry_id, entry[2]
            else:
                self.lose(Kind.PENDING_GONE)

    # --- dedup tables

    def dedup(self, idmp: Idmp) -> Iterator[Command]:
        changed = (idmp.duration, idmp.maxsize) != (DURATION_DEFAULT_S, MAXSIZE_DEFAULT)
        if self.target is Target.REDIS_7_0:
            self.lose(Kind.DEDUP, sum(1 for _ in idmp.records()) + changed)
            self.lose(Kind.DEDUP_COUNTERS, bool(idmp.added or idmp.duplicates))
            return
        if changed:
            yield [
                *(b"XCFGSET", self.key, b"IDMP-DURATION", _number(idmp.duration)),
                *(b"IDMP-MAXSIZE", _number(idmp.maxsize)),
            ]
        carried = 0
        for pid, iid, entry_id, time in idmp.records():
            if self.stream.still_has(entry_id):
                carried += 1
                self.lose(Kind.DEDUP_TIMES, time is not None)
                yield [b"XIDMPRECORD", self.key, pid, iid, id_text(entry_id)]
            else:
                self.lose(Kind.DEDUP_GONE)
        self.lose(Kind.DEDUP_COUNTERS, (idmp.added, idmp.duplicates) != (carried, 0))


class _Nodes:
    """Predicts where a server with Redis's default limits starts its nodes when it runs the XADDs."""

    def __init__(self) -> None:
        self._settings = Settings()
        self._stream = Stream(0)  # has one node, the open one

    def would_be_one(self, ids: list[int], rows: list[EntryRow]) -> bool:
        """Whether the server puts the next entries, those of one node here, into one new node."""
        begins = [self._begins(entry_id, row) for entry_id, row in zip(ids, rows, strict=True)]
        return begins[0] and not any(begins[1:])

    def _begins(self, entry_id: int, row: EntryRow) -> bool:
        stream = self._stream
        begins, _ = place(stream, self._settings, entry_id, row)
        if begins:
            stream = self._stream = Stream(0)
            stream.start_node(entry_id, row)
        else:
            stream.append(entry_id, row)
        return begins


def _claim(head: Command, entry_id: int, time: int, count: int) -> Command:
    numbers = [b"TIME", _number(time), b"RETRYCOUNT", _number(count)]
    return [*head, id_text(entry_id), *numbers, b"JUSTID", b"FORCE"]


def _number(value: int) -> bytes:
    return b"%d" % value
