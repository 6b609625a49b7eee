"""The schedules of a shared store: `SharedStore.schedules`, and `SharedStore.schedule`, which adds one."""

from __future__ import annotations

from tidelog.api.queue.schedules import Schedules


class SharedSchedules(Schedules):
    """The schedules of a database of a shared store. It has the methods of `Schedules`.

    Any method may raise ResponseError if the key `tidelog:schedules` holds no stream, and the errors that `SharedQueue`
    lists.
    """
