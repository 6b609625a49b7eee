"""The schedules of a shared store: `SharedStore.schedules`, and `SharedStore.schedule`, which adds one."""

from __future__ import annotations

from typing import Any

from tidelog.api.queue.schedules import Schedules
from tidelog.client.base import Base
from tidelog.jobs.verbs.schedule import ChangeSchedule
from tidelog.jobs.verbs.verb import OfDatabase
from tidelog.store.errors import DataError, ResponseError, TidelogError


class SharedSchedules(Schedules):
    """The schedules of a database of a shared store. It has the methods of `Schedules`.

    Any method may raise ResponseError if the key `tidelog:schedules` holds no stream, and the errors that `SharedQueue`
    lists.
    """

    def __init__(self, store: Base) -> None:
        self._store = store

    def _ask(self, verb: OfDatabase) -> Any:
        store = self._store
        words = [b"QUEUE", verb.name, *verb.words()]
        try:
            return verb.result(store._link.call(words, verb.safe, store._db))
        except ResponseError as error:
            raise _meant(verb, error) from None


def _meant(verb: OfDatabase, error: ResponseError) -> TidelogError:
    """The error that a reply means. The server checks the expression and the zone of a schedule."""
    if error.code == "ERR" and isinstance(verb, ChangeSchedule):
        return DataError(str(error).removeprefix("ERR "))
    return error
