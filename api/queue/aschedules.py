"""The schedules of a database, for asyncio: `AsyncStore.schedules`. `AsyncStore.schedule` adds one. See jobs/rules.py.

await db.schedule("nightly", "0 3 * * *", queue="mails", value="report", tz="Europe/Berlin")
for schedule in await db.schedules.list():
    print(schedule.name, schedule.next_at)
"""

from __future__ import annotations

from typing import Any

from tidelog.api.queue.abackend import AsyncAsked
from tidelog.jobs.scheduling import Schedule
from tidelog.jobs.verbs.schedule import AddSchedule, PauseSchedule, RemoveSchedule, ResumeSchedule
from tidelog.jobs.verbs.schedules import ListSchedules


class AsyncSchedules:
    """The schedules of a database: `AsyncStore.schedules`. `AsyncStore.schedule` adds one.

    Any method may raise ResponseError if the key `tidelog:schedules` holds no stream, and the errors that `AsyncQueue`
    lists.
    """

    def __init__(self, database: AsyncAsked) -> None:
        self._database = database

    async def list(self) -> list[Schedule]:
        """All schedules, by name."""
        found: list[Schedule] = await self._database.ask(ListSchedules())
        return found

    async def pause(self, name: str) -> bool:
        """Stop the ticks of a schedule. Pausing twice is allowed.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return bool(await self._database.ask(PauseSchedule.of(name)))

    async def resume(self, name: str) -> bool:
        """End a pause. Ticks of the time of the pause are not made up.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name, or the machine that has the store open does not know its time zone.
        """
        return bool(await self._database.ask(ResumeSchedule.of(name)))

    async def remove(self, name: str) -> bool:
        """Delete a schedule. Jobs that it has put stay in their queue.

        Args:
            name: Its name.

        Returns:
            False if there is no schedule of that name.

        Raises:
            DataError: `name` is no name.
        """
        return bool(await self._database.ask(RemoveSchedule.of(name)))

    async def _make(self, *given: Any) -> Schedule:
        """`Store.schedule`, which documents the arguments."""
        found: Schedule = await self._database.ask(AddSchedule.of(*given))
        return found
