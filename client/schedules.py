"""The schedules of a shared store: `SharedStore.schedules`, and `SharedStore.schedule`, which adds one."""

from __future__ import annotations

from typing import Any

from tidelog.client.base import Base
from tidelog.jobs import rows
from tidelog.jobs.options import make_options, named, ranked
from tidelog.jobs.scheduling import Schedule
from tidelog.jobs.verbs.verb import Safe
from tidelog.store.durations import Duration, seconds
from tidelog.store.errors import DataError, ResponseError


class SharedSchedules:
    """The schedules of a database of a shared store. It has the methods of `Schedules`.

    Any method may raise ResponseError if the key `tidelog:schedules` holds no stream, and the errors that `SharedQueue`
    lists.
    """

    def __init__(self, store: Base) -> None:
        self._store = store

    def list(self) -> list[Schedule]:
        """All schedules, by name."""
        found = self._store._link.call([b"QUEUE", b"SCHEDULES"], Safe.READ, self._store._db)
        return list(map(_schedule, found))

    def pause(self, name: str) -> bool:
        """Stop the ticks of a schedule. As `Schedules.pause`.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return bool(self._ask(Safe.READ, b"SCHEDULE", b"PAUSE", named("name", name)))

    def resume(self, name: str) -> bool:
        """End a pause. As `Schedules.resume`.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name, or the next tick cannot be computed where the store is served.
        """
        return bool(self._ask(Safe.READ, b"SCHEDULE", b"RESUME", named("name", name)))

    def remove(self, name: str) -> bool:
        """Delete a schedule. As `Schedules.remove`.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return bool(self._ask(Safe.ONCE, b"SCHEDULE", b"REMOVE", named("name", name)))

    def _make(
        self,
        name: Any,
        cron: Any,
        every: Duration | None,
        queue: Any,
        value: Any,
        tz: Any,
        catch_up: Any,
        codec: Any,
        priority: Any,
    ) -> Schedule:
        """`SharedStore.schedule`, which documents the arguments."""
        options = make_options(queue, codec=codec)
        words = [named("name", name), options.key, rows.encode_value(options, value)]
        for option, text in ((b"CRON", cron), (b"TZ", tz), (b"CATCHUP", catch_up)):
            if text is not None:
                words += (option, named(option.decode().lower(), text))
        if every is not None:
            words += (b"EVERY", b"%d" % round(seconds("every", every) * 1000))
        if ranked(priority):
            words += (b"PRIORITY", b"%d" % priority)
        # Repeating it is safe: the same schedule again changes nothing.
        return _schedule(self._ask(Safe.READ, b"SCHEDULE", b"ADD", *words))

    def _ask(self, safe: Safe, *words: bytes) -> Any:
        store = self._store
        try:
            return store._link.call([b"QUEUE", *words], safe, store._db)
        except ResponseError as error:
            if error.code == "ERR":  # the server checks the expression, the zone and the rest
                raise DataError(str(error).removeprefix("ERR ")) from None
            raise


def _schedule(pairs: list[Any]) -> Schedule:
    found = {key.decode(): value for key, value in zip(pairs[::2], pairs[1::2], strict=True)}
    every, next_ms = found["every_ms"], found["next_ms"]
    return Schedule(
        found["name"].decode(),
        found["queue"].decode(),
        None if found["cron"] is None else found["cron"].decode(),
        None if found["tz"] is None else found["tz"].decode(),
        None if every is None else every / 1000,
        found["catch_up"].decode(),
        found["value"],
        None if next_ms is None else rows.moment(next_ms),
        bool(found["paused"]),
        found["ticks"],
        found["priority"],
    )
