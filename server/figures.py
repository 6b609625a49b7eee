"""Figures of single streams and their groups, for metrics: what is in memory and cheap to tell, in slices of the lock.

Which streams: the first by name, database by database, among those in memory. To find them in a store of millions would
take a walk over all keys, so of each database only the KEYS_MAX keys are looked at that came into memory first.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.engine.group import Group
from tidelog.engine.keyspace import resident
from tidelog.engine.lag import lag
from tidelog.engine.stream import Stream

if TYPE_CHECKING:
    from tidelog.store.core import Core

KEYS_MAX: Final = 10_000
GROUPS_MAX: Final = 100  # of one stream, those that were created first
ALL_GROUPS_MAX: Final = 10_000
NAMES: Final = 500  # that are looked at in one slice
FIGURES: Final = 10  # streams or groups that are measured in one slice, a few microseconds each
PAUSE_S: Final = 0.0005  # after each slice others have the lock and the interpreter

_Place = tuple[int, bytes]


class GroupFigures(NamedTuple):
    """One group. `lag`, `oldest_s` (seconds): None where that is not known, or there is none."""

    name: str
    pending: int
    consumers: int
    lag: int | None
    oldest_s: float | None


class StreamFigures(NamedTuple):
    """One stream; its first GROUPS_MAX groups, and none once ALL_GROUPS_MAX were seen."""

    db: int
    name: str
    length: int
    added: int
    group_count: int
    groups: list[GroupFigures]


def figures(core: Core, count: int) -> list[StreamFigures]:
    """Of the first `count` streams by name. The lock is held for about 0.2 ms at a time."""
    found: list[StreamFigures] = []
    groups: list[tuple[int, Stream, Group]] = []
    labels: set[tuple[int, str]] = set()
    places = _first(core, count) if count else []
    for at in range(0, len(places), FIGURES):
        with core.lock:
            for db, key in places[at : at + FIGURES]:
                value = resident(core.state.databases[db].keys, key)
                if not isinstance(value, Stream):
                    continue
                name = _label(key)
                if (db, name) in labels:  # another name that is shown the same
                    continue
                labels.add((db, name))
                some = islice(value.groups.values(), min(GROUPS_MAX, ALL_GROUPS_MAX - len(groups)))
                groups += [(len(found), value, group) for group in some]
                counters = value.length, value.entries_added, len(value.groups)
                found.append(StreamFigures(db, name, *counters, []))
        time.sleep(PAUSE_S)
    for at in range(0, len(groups), FIGURES):
        with core.lock:
            for index, stream, group in groups[at : at + FIGURES]:
                if stream.groups.get(group.name) is group and not group.lost:
                    found[index].groups.append(_group(core, stream, group))
        time.sleep(PAUSE_S)
    return [each._replace(groups=_distinct(each.groups)) for each in found]


def _first(core: Core, count: int) -> list[_Place]:
    """The first `count` streams that are in memory."""
    found: list[_Place] = []
    for db in range(len(core.state.databases)):
        best: list[bytes] = []
        with core.lock:
            names = list(islice(dict.keys(core.state.databases[db].keys), KEYS_MAX))
        for at in range(0, len(names), NAMES):
            some = names[at : at + NAMES]
            with core.lock:
                keys = core.state.databases[db].keys
                some = [name for name in some if resident(keys, name).__class__ is Stream]
            best = sorted(best + some)[: count - len(found)]
            time.sleep(PAUSE_S)
        found += [(db, name) for name in best]
        if len(found) >= count:
            break
    return found


def _group(core: Core, stream: Stream, group: Group) -> GroupFigures:
    """[lock] Reads no row of a checkpoint."""
    # Only where the first entry is known: to find it, a page of the checkpoint may have to be read.
    known = stream.cold is None or stream._first is not None or not stream.length
    return GroupFigures(
        _label(group.name),
        len(group.pending),
        len(group.consumers),
        lag(stream, group) if known else None,
        _oldest_s(core, group),
    )


def _oldest_s(core: Core, group: Group) -> float | None:
    """Seconds since the oldest delivery to a consumer. What XNACK released was given back, and is not waited for."""
    at = group.pending.oldest()
    if at is None:
        return None
    return max(core.time_ns() // 1_000_000 - at, 0) / 1000


def _distinct(groups: list[GroupFigures]) -> list[GroupFigures]:
    return list({group.name: group for group in groups}.values())


def _label(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
