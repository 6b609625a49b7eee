"""Which queues a store holds. Streams are not marked as queues, so every stream with a group counts as one."""

from __future__ import annotations

from typing import Final

from tidelog.engine.api import State, Stream, reading
from tidelog.engine.ids import MAX
from tidelog.jobs.options import LANES, RESERVED, SCHEDULES
from tidelog.jobs.rows import VALUE, shown
from tidelog.store.commit.core import Answer, Core

LATER: Final = ":later"
USUAL: Final = "workers"  # the group of a queue that no worker has opened yet


def queue_names(core: Core, db: int) -> Answer:
    """(name, group) of every stream with a group, and of queues that have only been put to, also if only for later or
    with a priority, with the promise for the reply.

    Leaves out the streams that belong to another queue, and keys that are not UTF-8.
    """
    return core.look(lambda state: _names(state, db))


def _names(state: State, db: int) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    keys = state.databases[db].keys
    for key in keys:
        name = shown(key)
        if keys.is_string(key) or name.encode() != key:
            continue
        if key == SCHEDULES or name.endswith(RESERVED) and not name.endswith((LATER, *LANES)):
            continue
        value, _ = keys.look(key)
        if not isinstance(value, Stream):
            continue
        if name.endswith((LATER, *LANES)):
            name = name.removesuffix(LATER) if name.endswith(LATER) else name[: -len(LANES[0])]
            if name and value.length and name.encode() not in keys:
                found.append((name, USUAL))  # no worker has opened it yet
            continue
        groups = sorted(value.groups)
        if not groups and any(
            row and row[0] == VALUE for _, row in reading.between(value, 0, MAX, 1)
        ):
            groups = [USUAL.encode()]
        found += [(name, shown(group)) for group in groups]
    return sorted(set(found))
