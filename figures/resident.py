"""Resident: figures of the streams in memory and their groups, for a scrape. Reads them in short slices of the store's
lock, and nothing of the checkpoint.

The streams are the first by name among those in memory, database by database. A store may have millions of keys, so of
each database only the KEYS_MAX keys that came into memory first are considered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from tidelog.engine.api import DbKey, Group, Stream, resident
from tidelog.figures.model import GroupFigures, StreamFigures, stream_figures
from tidelog.figures.names import DUE, NOTES, SCHEDULES, owner_of
from tidelog.figures.streams import of_group

if TYPE_CHECKING:
    from tidelog.store.commit.core import Core

KEYS_MAX: Final = 10_000
GROUPS_MAX: Final = 100  # per stream, the oldest groups
ALL_GROUPS_MAX: Final = 10_000
NAMES: Final = 500  # keys examined per slice
DOUBTFUL: Final = 50  # those with the name of a queue's own stream
FIGURES: Final = 10  # streams or groups measured per slice; each takes a few microseconds
PAUSE_S: Final = 0.0005  # pause after each slice, so that other threads get the lock and the GIL


def figures(
    core: Core, count: int, sees: Callable[[bytes], bool] = lambda key: True
) -> list[StreamFigures]:
    """Return the figures of the first `count` streams by name, of those that the reader sees.

    Each has its first GROUPS_MAX groups, at most ALL_GROUPS_MAX over all streams. Holds the lock for about 0.2 ms at a
    time.
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
                if (db, label(key)) in labels:  # another name with the same label
                    continue
                labels.add((db, label(key)))
                some = islice(value.groups.values(), min(GROUPS_MAX, ALL_GROUPS_MAX - len(groups)))
                groups += [(len(found), value, group) for group in some]
                counts = value.length, value.entries_added, ()
                found.append(stream_figures(db, key, *counts, groups=len(value.groups)))
        time.sleep(PAUSE_S)
    each: list[list[GroupFigures]] = [[] for _ in found]
    for at in range(0, len(groups), FIGURES):
        with core.lock:
            for index, stream, group in groups[at : at + FIGURES]:
                if stream.groups.get(group.name) is group and not group.lost:
                    key = found[index].key
                    each[index].append(of_group(key, stream, group, resident=True))
        time.sleep(PAUSE_S)
    return [replace(stream, each=_distinct(some)) for stream, some in zip(found, each, strict=True)]


def _first(core: Core, count: int, sees: Callable[[bytes], bool]) -> list[DbKey]:
    """Return the first `count` streams by name that are in memory and that the reader sees, without helpers."""
    found: list[DbKey] = []
    for db in range(len(core.state.databases)):
        best: list[bytes] = []
        names = names_in_memory(core, db)
        there = frozenset(names)
        seen = [name for name in names if sees(name) and name != SCHEDULES]
        plain = [name for name in seen if owner_of(name) not in there]
        for at in range(0, len(plain), NAMES):
            some = plain[at : at + NAMES]
            with core.lock:
                keys = core.state.databases[db].keys
                some = [name for name in some if resident(keys, name).__class__ is Stream]
            best = sorted(best + some)[: count - len(found)]
            time.sleep(PAUSE_S)
        doubtful = [name for name in seen if owner_of(name) in there]
        for at in range(0, len(doubtful), DOUBTFUL):
            with core.lock:
                keys = core.state.databases[db].keys
                values = [(name, resident(keys, name)) for name in doubtful[at : at + DOUBTFUL]]
                best += [name for name, value in values if _is_users(name, value)]
            best = sorted(best)[: count - len(found)]
            time.sleep(PAUSE_S)
        found += [(db, name) for name in best]
        if len(found) >= count:
            break
    return found


def _is_users(key: bytes, value: object) -> bool:
    """[lock] Whether a value is a stream of the user's, although its name is that of a queue's own stream.

    The first entry may lie in the checkpoint, so its groups decide: of a queue's notes only the delayed jobs have one.
    """
    return isinstance(value, Stream) and key.endswith(NOTES) and not value.groups.keys() <= {DUE}


def names_in_memory(core: Core, db: int) -> list[bytes]:
    """The KEYS_MAX keys of a database that came into memory first."""
    with core.lock:
        return list(islice(dict.keys(core.state.databases[db].keys), KEYS_MAX))


def _distinct(groups: list[GroupFigures]) -> tuple[GroupFigures, ...]:
    return tuple({label(group.name): group for group in groups}.values())


def label(raw: bytes) -> str:
    """A name as the value of a label."""
    return raw.decode("utf-8", "backslashreplace")
