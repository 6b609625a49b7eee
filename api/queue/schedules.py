"""The schedules of a database, for threads: `Store.schedules`. `Store.schedule` adds one. See jobs/rules.py.

db.schedule("nightly", "0 3 * * *", queue="mails", value="report", tz="Europe/Berlin")
for schedule in db.schedules.list():
    print(schedule.name, schedule.next_at)

Generated from aschedules.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from typing import Any

from tidelog.api.queue.backend import Asked
from tidelog.jobs.scheduling import Schedule
from tidelog.jobs.verbs.schedule import AddSchedule, PauseSchedule, RemoveSchedule, ResumeSchedule
from tidelog.jobs.verbs.schedules import ListSchedules


class Schedules:
    """The schedules of a database: `Store.schedules`. `Store.schedule` adds one.

    Any method may raise ResponseError if the key `tidelog:schedules` holds no stream, and the errors that `Queue`
    lists.
    """

    def __init__(self, database: Asked) -> None:
        self._database = database

    def list(self) -> list[Schedule]:
        """All schedules, by name."""
        found: list[Schedule] = self._database.ask(ListSchedules())
        return found

    def pause(self, name: str) -> bool:
        """Stop the ticks of a schedule. Pausing twice is allowed.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return bool(self._database.ask(PauseSchedule.of(name)))

    def resume(self, name: str) -> bool:
        """End a pause. Ticks of the time of the pause are not made up.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name, or the machine that has the store open does not know its time zone.
        """
        return bool(self._database.ask(ResumeSchedule.of(name)))

    def remove(self, name: str) -> bool:
        """Delete a schedule. Jobs that it has put stay in their queue.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return bool(self._database.ask(RemoveSchedule.of(name)))

    def _make(self, *given: Any) -> Schedule:
        """`Store.schedule`, which documents the arguments."""
        found: Schedule = self._database.ask(AddSchedule.of(*given))
        return found
