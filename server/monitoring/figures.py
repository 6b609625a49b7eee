"""Figures of single streams and their groups, for metrics: only data in memory, read under the lock in short slices.

The streams are the first by name among those in memory, database by database. A store may have millions of keys, so of
each database only the KEYS_MAX keys that came into memory first are considered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.engine.api import DbKey, Group, Stream, lag, resident

if TYPE_CHECKING:
    from tidelog.store.commit.core import Core

KEYS_MAX: Final = 10_000
GROUPS_MAX: Final = 100  # per stream, the oldest groups
ALL_GROUPS_MAX: Final = 10_000
NAMES: Final = 500  # keys examined per slice
FIGURES: Final = 10  # streams or groups measured per slice; each takes a few microseconds
PAUSE_S: Final = 0.0005  # pause after each slice, so that other threads get the lock and the GIL


class GroupFigures(NamedTuple):
    """One group. `lag` (entries) and `oldest_s` (seconds) are None if unknown or absent."""

    name: str
    pending: int
    consumers: int
    lag: int | None
    oldest_s: float | None


class StreamFigures(NamedTuple):
    """One stream with its first GROUPS_MAX groups; at most ALL_GROUPS_MAX groups over all streams."""

    db: int
    name: str
    length: int
    added: int
    group_count: int
    groups: list[GroupFigures]


def figures(
    core: Core, count: int, sees: Callable[[bytes], bool] = lambda key: True
) -> list[StreamFigures]:
    """Return the figures of the first `count` streams by name, of those that the reader sees.

    Holds the lock for about 0.2 ms at a time.
    """
    found: list[StreamFigures] = []
    groups: list[tuple[int, Stream, Group]] = []
    labels: set[tuple[int, str]] = set()
    places = _first(core, count, sees) if count else []
    for at in range(0, len(places), FIGURES):
        with core.lock:
            for db, key in places[at : at + FIGURES]:
                value = resident(core.state.databases[db].keys, key)
                if not isinstance(value, Stream):
                    continue
                name = _label(key)
                if (db, name) in labels:  # another name with the same label
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


def _first(core: Core, count: int, sees: Callable[[bytes], bool]) -> list[DbKey]:
    """Return the first `count` streams by name that are in memory and that the reader sees."""
    found: list[DbKey] = []
    for db in range(len(core.state.databases)):
        best: list[bytes] = []
        with core.lock:
            names = list(islice(dict.keys(core.state.databases[db].keys), KEYS_MAX))
        for at in range(0, len(names), NAMES):
            some = list(filter(sees, names[at : at + NAMES]))
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
    """[lock] Measure one group without reading the checkpoint."""
    # The lag needs the first entry. If that is unknown, finding it may read a page of the checkpoint, so omit the lag.
    known = stream.cold is None or stream.first_known is not None or not stream.length
    return GroupFigures(
        _label(group.name),
        len(group.pending),
        len(group.consumers),
        lag(stream, group) if known else None,
        _oldest_s(core, group),
    )


def _oldest_s(core: Core, group: Group) -> float | None:
    """Seconds since the oldest unacknowledged delivery to a consumer. Entries released by XNACK do not count."""
    at = group.pending.oldest()
    if at is None:
        return None
    return max(core.clocks().store - at, 0) / 1000


def _distinct(groups: list[GroupFigures]) -> list[GroupFigures]:
    return list({group.name: group for group in groups}.values())


def _label(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")
