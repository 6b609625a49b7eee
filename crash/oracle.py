"""The oracle: what a store must contain, by a plain model of streams, groups, pending entries and strings.

The model is written from Redis's documentation and imports nothing of the engine. A fault of the engine that is the
same live and in replay would otherwise be on both sides of the comparison.

What a store was asked to do is a list of units, each a list of model operations:

    ["add", key, id, [field, value, ...]]         ["read", key, group, consumer, count]
    ["trim", key, maxlen]                         ["claim", key, group, consumer, [id, ...]]
    ["delete", key, [id, ...]]                    ["ack", key, group, [id, ...]]
    ["group", key, group]                         ["set", key, value]
    ["drop", key]

and those of queues (crash/jobs.py). IDs are chosen by the store. Everything else that a reply says can be computed from
the units.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple

from tidelog.crash import jobs
from tidelog.crash.errors import WrongId
from tidelog.crash.jobs import Jobs
from tidelog.crash.trace import Promised, Unit

NO_ID: Final = b"0-0"

# For each key a string, or (entries, last ID, entries added, groups). A group is (name, last delivered ID, consumers,
# pending entries), and a pending entry (ID, consumer, deliveries). A queue is told by crash/jobs.py.
Contents = dict[bytes, Any]


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


class Model:
    """The contents of a store after some units."""

    def __init__(self) -> None:
        self.streams: dict[bytes, _Stream] = {}
        self.strings: dict[bytes, bytes] = {}
        self.queues: dict[bytes, Jobs] = {}

    def apply(self, unit: Unit) -> None:
        """Do one unit. Raises WrongId."""
        for operation in unit:
            self._apply(*operation)

    def _apply(self, name: str, key: bytes, *rest: Any) -> None:
        match name, rest:
            case "add", (entry_id, fields):
                stream = self.streams.setdefault(key, _Stream())
                if number(entry_id) <= number(stream.last):
                    raise WrongId(f"{key!r} got the ID {entry_id!r} after the ID {stream.last!r}")
                stream.entries[entry_id] = tuple(fields)
                stream.last = entry_id
                stream.added += 1
            case "trim", (maxlen,):
                entries = self.streams[key].entries
                for entry_id in list(entries)[: max(0, len(entries) - maxlen)]:
                    del entries[entry_id]
            case "delete", (ids,):
                for entry_id in ids:
                    self.streams[key].entries.pop(entry_id, None)
            case "group", (group,):
                self.streams.setdefault(key, _Stream()).groups[group] = _Group()
            case "read", (group, consumer, count):
                found = self.streams[key].groups[group]
                found.consumers.add(consumer)
                for entry_id in self.unread(key, group)[:count]:
                    found.pending[entry_id] = consumer, 1
                    found.delivered = entry_id
            case "claim", (group, consumer, ids):
                stream = self.streams[key]
                found = stream.groups[group]
                found.consumers.add(consumer)
                for entry_id in ids:
                    held = found.pending.get(entry_id)
                    if held is not None and entry_id not in stream.entries:
                        del found.pending[entry_id]  # its entry is gone, so nobody can work on it
                    elif held is not None:
                        found.pending[entry_id] = consumer, held[1] + 1
            case "ack", (group, ids):
                for entry_id in ids:
                    self.streams[key].groups[group].pending.pop(entry_id, None)
            case "set", (value,):
                self.strings[key] = value
            case "drop", ():
                self.streams.pop(key, None)
                self.strings.pop(key, None)
            case _ if name in jobs.NAMES:
                self.queues.setdefault(key, Jobs()).apply(name, *rest)
            case _:
                raise ValueError(f"the model does not know {name} with {len(rest)} arguments")

    def unread(self, key: bytes, group: bytes) -> list[bytes]:
        """The IDs of the entries that a group has not delivered yet, ascending."""
        stream = self.streams[key]
        delivered = number(stream.groups[group].delivered)
        return [each for each in stream.entries if number(each) > delivered]

    def contents(self) -> Contents:
        """Everything, in the form in which `crash/served.py` reads a store."""
        found: Contents = dict(self.strings)
        for key, stream in self.streams.items():
            groups = [
                (
                    name,
                    group.delivered,
                    tuple(sorted(group.consumers)),
                    tuple((i, *group.pending[i]) for i in sorted(group.pending, key=number)),
                )
                for name, group in sorted(stream.groups.items())
            ]
            found[key] = tuple(stream.entries.items()), stream.last, stream.added, tuple(groups)
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


class Kind(Enum):
    """The ways in which a store can be wrong after a crash."""

    REFUSED = "refused"  # it does not open, or a read fails, although nothing but power was lost
    LOST = "lost"  # something is missing that was acknowledged
    WRONG = "wrong"  # its contents are not those after some whole number of units
    DIED = "died"  # the process died or hung, or an error was raised that is not tidelog's


class Fault(NamedTuple):
    kind: Kind
    words: str


class Served(NamedTuple):
    """The contents that a store showed after an open. `refused` says why it showed nothing."""

    contents: Contents | None
    refused: str = ""


class Oracle:
    """Judges what a store serves after a crash, by the units of its trace."""

    def __init__(self, units: list[Unit]) -> None:
        self.units = units
        self._after = contents_after(units)

    def units_in(self, contents: Contents, most: int) -> int | None:
        """After how many units, at most `most`, the contents are these; None if after none. The largest such number."""
        for count in range(min(most, len(self.units)), -1, -1):
            if self._after[count] == contents:
                return count
        return None

    def after(self, count: int) -> Contents:
        """The contents after so many units."""
        return self._after[count]

    def judge(self, served: Served, promised: Promised, *, power: bool) -> Fault | None:
        """The fault of a store that served this; None if it kept every promise.

        power   the power was cut. If not, only the process ended, and everything written must be there
        """
        if served.contents is None:
            return Fault(Kind.REFUSED, served.refused)
        least = promised.fsynced if power else promised.written
        most = min(promised.issued, len(self.units))  # the last call may have done nothing
        found = self.units_in(served.contents, most)
        if found is None:
            if self.units_in(served.contents, len(self.units)) is not None:
                return Fault(Kind.WRONG, "the store has units that it was not given yet")
            return Fault(
                Kind.WRONG,
                "the contents are not those after any whole number of units; beside those after "
                f"{most} units: {difference(served.contents, self._after[most])}",
            )
        if found < least:
            level = "fsynced" if power else "written"
            return Fault(
                Kind.LOST,
                f"{least} units were acknowledged as {level}, and the store has {found}. "
                f"The first that is missing: {unit_text(self.units[found])}",
            )
        return None


def difference(found: Contents, expected: Contents) -> str:
    """The first key in which two contents differ."""
    for key in sorted(found.keys() | expected.keys()):
        if found.get(key) != expected.get(key):
            return (
                f"{key.decode(errors='replace')} is {_short(found.get(key))} and not "
                f"{_short(expected.get(key))}"
            )
    return "they are equal"


def unit_text(unit: Unit) -> str:
    """A unit for people."""
    return "; ".join(f"{name} " + " ".join(map(_short, rest)) for name, *rest in unit)


def _short(value: Any) -> str:
    if isinstance(value, bytes):
        text = value.decode(errors="replace")
        return text if len(text) <= 40 else f"{text[:30]}... ({len(value)} bytes)"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:190]}..."
