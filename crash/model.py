"""The model: what a store contains after some units, in plain dicts. It imports nothing of the engine.

It is written from Redis's documentation. A fault of the engine that is the same live and in replay would otherwise be
on both sides of the comparison.

What a store was asked to do is a list of units, each a list of model operations:

    entries   ["add", key, id, [field, value, ...]]           ["once", key, id, producer, iid, [field, value, ...]]
              ["again", key]                                  ["remember", key, seconds, maxsize]
              ["trim", key, maxlen]                           ["minid", key, id]
              ["delete", key, [id, ...]]                      ["delex", key, policy, [id, ...]]
              ["setid", key, id, added]
    groups    ["group", key, group]                           ["ungroup", key, group]
              ["rewind", key, group, id]                      ["ackdel", key, group, policy, [id, ...]]
              ["consumer", key, group, consumer]              ["unconsumer", key, group, consumer]
              ["read", key, group, consumer, count]           ["noack", key, group, consumer, count]
              ["claim", key, group, consumer, [id, ...]]      ["autoclaim", key, group, consumer, count]
              ["retried", key, group, consumer, [id, ...], deliveries]
              ["force", key, group, consumer, [id, ...]]      ["ack", key, group, [id, ...]]
              ["nack", key, group, mode, [id, ...]]
    keys      ["set", key, value]      ["append", key, value]     ["drop", key]        ["copy", key, target]
              ["expire", key, ms]      ["persist", key]           ["rename", key, target]
    databases ["flush", number]        ["flushall", ""]           ["swap", number, other]

and those of queues (crash/jobs.py). IDs are chosen by the store. Everything else that a reply says can be computed from
the units. A key of another database than 0 is written as its number, a slash and the key: see `place`.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Final

from tidelog.crash import jobs
from tidelog.crash.errors import WrongId
from tidelog.crash.jobs import Jobs
from tidelog.crash.trace import Unit

NO_ID: Final = b"0-0"
DATABASES: Final = 2  # in use
# For how many seconds a stream knows an iid, and how many of a producer, until it is told otherwise.
REMEMBERS: Final = (100, 100)
DELIVERIES_MAX: Final = 2**63 - 1
KEEPREF: Final = "KEEPREF"
DELREF: Final = "DELREF"
ACKED: Final = "ACKED"

# For each key a string, or (entries, last ID, entries added, groups, greatest deleted ID, idempotent production), and
# with an expiry ("expires", unix ms, that). A group is (name, last delivered ID, consumers, pending entries), a pending
# entry (ID, consumer or b"", deliveries). Idempotent production is (seconds, iids that a producer may have, iids added,
# duplicates, iids remembered). A queue is told by crash/jobs.py.
Contents = dict[bytes, Any]


def place(database: int, key: bytes) -> bytes:
    """The name of a key in a database, for the model."""
    return key if database == 0 else b"%d/%b" % (database, key)


def database_of(name: bytes) -> int:
    """The database of a key that is named by `place`."""
    number, slash, _ = name.partition(b"/")
    return int(number) if slash and number.isdigit() else 0


def _elsewhere(name: bytes, database: int) -> bytes:
    """The same key in another database."""
    return place(database, name.partition(b"/")[2] if database_of(name) else name)


def number(entry_id: bytes) -> tuple[int, int]:
    """An ID as (milliseconds, sequence number), for comparisons."""
    ms, _, sequence = entry_id.partition(b"-")
    return int(ms), int(sequence)


class _Group:
    def __init__(self) -> None:
        self.delivered = NO_ID
        self.consumers: set[bytes] = set()
        self.pending: dict[bytes, tuple[bytes, int]] = {}  # ID -> (consumer, deliveries)


class _Stream:
    def __init__(self) -> None:
        self.entries: dict[bytes, tuple[bytes, ...]] = {}
        self.last = NO_ID
        self.added = 0
        self.groups: dict[bytes, _Group] = {}
        self.deleted = NO_ID
        self.remembers = REMEMBERS
        self.producers: dict[bytes, dict[bytes, bytes]] = {}  # producer -> iid -> ID, oldest first
        self.once = self.again = 0

    def add(self, key: bytes, entry_id: bytes, fields: Iterable[bytes]) -> None:
        if number(entry_id) <= number(self.last):
            raise WrongId(f"{key!r} got the ID {entry_id!r} after the ID {self.last!r}")
        self.entries[entry_id] = tuple(fields)
        self.last = entry_id
        self.added += 1

    def remember(self, producer: bytes, iid: bytes, entry_id: bytes) -> None:
        known = self.producers.setdefault(producer, {})
        known[iid] = entry_id
        self.once += 1
        while len(known) > self.remembers[1]:
            del known[next(iter(known))]

    def unread(self, group: bytes) -> list[bytes]:
        delivered = number(self.groups[group].delivered)
        return [each for each in self.entries if number(each) > delivered]

    def referenced(self, entry_id: bytes) -> bool:
        """Whether a group has not delivered an entry yet, or not acknowledged it."""
        groups = self.groups.values()
        return any(
            number(group.delivered) < number(entry_id) or entry_id in group.pending
            for group in groups
        )

    def delete(self, ids: Iterable[bytes], policy: str = KEEPREF) -> None:
        for entry_id in ids:
            if policy == ACKED and self.referenced(entry_id):
                continue
            if policy == DELREF:
                for group in self.groups.values():
                    group.pending.pop(entry_id, None)
            if self.entries.pop(entry_id, None) is not None:
                self.deleted = max(self.deleted, entry_id, key=number)

    def claim(
        self, group: _Group, consumer: bytes, ids: Iterable[bytes], deliveries: int | None = None
    ) -> None:
        group.consumers.add(consumer)
        for entry_id in ids:
            held = group.pending.get(entry_id)
            if held is not None and entry_id not in self.entries:
                del group.pending[entry_id]  # its entry is gone, so nobody can work on it
            elif held is not None:
                count = min(held[1] + 1, DELIVERIES_MAX) if deliveries is None else deliveries
                group.pending[entry_id] = consumer, count

    def contents(self) -> tuple[Any, ...]:
        groups = [
            (
                name,
                group.delivered,
                tuple(sorted(group.consumers)),
                tuple((i, *group.pending[i]) for i in sorted(group.pending, key=number)),
            )
            for name, group in sorted(self.groups.items())
        ]
        known = sum(len(iids) for iids in self.producers.values())
        once = *self.remembers, self.once, self.again, known
        return (
            tuple(self.entries.items()),
            self.last,
            self.added,
            tuple(groups),
            self.deleted,
            once,
        )


class Model:
    """The contents of a store after some units."""

    def __init__(self) -> None:
        self.streams: dict[bytes, _Stream] = {}
        self.strings: dict[bytes, bytes] = {}
        self.expiries: dict[bytes, int] = {}
        self.queues: dict[bytes, Jobs] = {}

    def apply(self, unit: Unit) -> None:
        """Do one unit. Raises WrongId."""
        for name, key, *rest in unit:
            if name in jobs.NAMES:
                self.queues.setdefault(key, Jobs()).apply(name, *rest)
            elif not (
                self._entries(name, key, *rest)
                or self._groups(name, key, *rest)
                or self._keys(name, key, *rest)
                or self._databases(name, key, *rest)
            ):
                raise ValueError(f"the model does not know {name} with {len(rest)} arguments")

    def _entries(self, name: str, key: bytes, *rest: Any) -> bool:
        """Do an operation on entries. Returns whether it is one."""
        match name, rest:
            case "add", (entry_id, fields):
                self.streams.setdefault(key, _Stream()).add(key, entry_id, fields)
            case "once", (entry_id, producer, iid, fields):
                stream = self.streams.setdefault(key, _Stream())
                stream.add(key, entry_id, fields)
                stream.remember(producer, iid, entry_id)
            case "again", ():
                self.streams[key].again += 1
            case "remember", (seconds, maxsize):
                stream = self.streams[key]
                if stream.remembers != (seconds, maxsize):
                    stream.remembers = seconds, maxsize
                    stream.producers.clear()
            case "trim", (maxlen,):
                entries = self.streams[key].entries
                for entry_id in list(entries)[: max(0, len(entries) - maxlen)]:
                    del entries[entry_id]
            case "minid", (least,):
                entries = self.streams[key].entries
                for entry_id in [each for each in entries if number(each) < number(least)]:
                    del entries[entry_id]
            case "delete", (ids,):
                self.streams[key].delete(ids)
            case "delex", (policy, ids):
                self.streams[key].delete(ids, policy)
            case "setid", (entry_id, added):
                stream = self.streams[key]
                stream.last, stream.added = entry_id, added
            case _:
                return False
        return True

    def _groups(self, name: str, key: bytes, *rest: Any) -> bool:
        """Do an operation on groups. Returns whether it is one."""
        if name == "group":
            (group,) = rest
            self.streams.setdefault(key, _Stream()).groups[group] = _Group()
            return True
        stream = self.streams.get(key)
        if stream is None or not rest or rest[0] not in stream.groups:
            return False
        found = stream.groups[rest[0]]
        match name, rest[1:]:
            case "ungroup", ():
                del stream.groups[rest[0]]
            case "rewind", (entry_id,):
                found.delivered = entry_id
            case "consumer", (consumer,):
                found.consumers.add(consumer)
            case "unconsumer", (consumer,):
                found.consumers.discard(consumer)
                for entry_id in [i for i, held in found.pending.items() if held[0] == consumer]:
                    del found.pending[entry_id]
            case "read" | "noack", (consumer, count):
                found.consumers.add(consumer)
                for entry_id in stream.unread(rest[0])[:count]:
                    found.delivered = entry_id
                    if name == "read":
                        found.pending[entry_id] = consumer, 1
            case "claim", (consumer, ids):
                stream.claim(found, consumer, ids)
            case "retried", (consumer, ids, deliveries):
                stream.claim(found, consumer, ids, deliveries)
            case "autoclaim", (consumer, count):
                stream.claim(found, consumer, sorted(found.pending, key=number)[:count])
            case "force", (consumer, ids):
                for entry_id in ids:
                    if entry_id in stream.entries:
                        found.pending.setdefault(entry_id, (b"", 1))
                stream.claim(found, consumer, ids)
            case "ack", (ids,):
                for entry_id in ids:
                    found.pending.pop(entry_id, None)
            case "ackdel", (policy, ids):
                for entry_id in ids:
                    if found.pending.pop(entry_id, None) is not None:
                        stream.delete([entry_id], policy)
            case "nack", (mode, ids):
                for entry_id in ids:
                    if entry_id in found.pending:
                        count = found.pending[entry_id][1]
                        after = {"SILENT": max(0, count - 1), "FAIL": count}
                        found.pending[entry_id] = b"", after.get(mode, DELIVERIES_MAX)
            case _:
                return False
        return True

    def _keys(self, name: str, key: bytes, *rest: Any) -> bool:
        """Do an operation on whole keys. Returns whether it is one."""
        match name, rest:
            case "set", (value,):
                self._drop(key)
                self.strings[key] = value
            case "append", (value,):
                self.strings[key] = self.strings.get(key, b"") + value
            case "drop", ():
                self._drop(key)
            case "expire", (ms,):
                self.expiries[key] = ms
            case "persist", ():
                self.expiries.pop(key, None)
            case "rename", (target,):
                self._copy(key, target)
                self._drop(key)
            case "copy", (target,):
                self._copy(key, target)
            case _:
                return False
        return True

    def _databases(self, name: str, first: Any, *rest: Any) -> bool:
        """Do an operation on databases. Returns whether it is one."""
        match name, rest:
            case "flush", ():
                for key in [each for each in self._names() if database_of(each) == first]:
                    self._drop(key)
            case "flushall", ():
                for key in self._names():
                    self._drop(key)
            case "swap", (other,):
                to = {first: other, other: first}

                def moved(name: bytes) -> bytes:
                    number = database_of(name)
                    return _elsewhere(name, to.get(number, number))

                self.streams = {moved(each): value for each, value in self.streams.items()}
                self.strings = {moved(each): text for each, text in self.strings.items()}
                self.expiries = {moved(each): ms for each, ms in self.expiries.items()}
            case _:
                return False
        return True

    def _names(self) -> list[bytes]:
        return [*self.streams, *self.strings]

    def _drop(self, key: bytes) -> None:
        self.streams.pop(key, None)
        self.strings.pop(key, None)
        self.expiries.pop(key, None)

    def _copy(self, key: bytes, target: bytes) -> None:
        self._drop(target)
        if key in self.streams:
            self.streams[target] = deepcopy(self.streams[key])
        else:
            self.strings[target] = self.strings[key]
        if key in self.expiries:
            self.expiries[target] = self.expiries[key]

    def unread(self, key: bytes, group: bytes) -> list[bytes]:
        """The IDs of the entries that a group has not delivered yet, ascending."""
        return self.streams[key].unread(group)

    def contents(self) -> Contents:
        """Everything, in the form in which `crash/served.py` reads a store."""
        found: Contents = dict(self.strings)
        for key, stream in self.streams.items():
            found[key] = stream.contents()
        for key, ms in self.expiries.items():
            found[key] = "expires", ms, found[key]
        for key, queue in self.queues.items():
            queued = queue.contents()
            if any(queued):
                found[key] = queued
        return found


def contents_after(units: list[Unit]) -> list[Contents]:
    """The contents before the first unit and after each one. Raises WrongId."""
    model = Model()
    found = [model.contents()]
    for unit in units:
        model.apply(unit)
        found.append(model.contents())
    return found
