"""Calls: the methods of shared stores for asyncio that only run the threads' method in a thread.

Generated from store.py by tools/dev/make_threaded.py: change those files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from tidelog.api.idrange import IdRange
from tidelog.api.types import KeyT, TextT
from tidelog.client.store import FSYNCED, SharedStore
from tidelog.client.threaded import threaded
from tidelog.store.durations import Duration

if TYPE_CHECKING:
    from tidelog.jobs.scheduling import Schedule
    from tidelog.snapshot.portable import Snapshot


class StoreCalls(Generic[TextT]):
    """The calls of a `SharedStore` that wait in a thread."""

    _store: SharedStore[TextT]

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Run any command, given as words. As `Store.execute_command`.

        Raises:
            DataError: There are no words, or the command is SELECT or another one that changes the connection, of which
                calls use several by turns.
            ResponseError: The command is unknown or refused.
        """
        return await threaded(partial(self._store.execute_command, *args, **options))

    async def xadd_many(self, key: KeyT, rows: Iterable[Mapping[Any, Any]]) -> IdRange[TextT]:
        """Append many entries to a stream as one unit: all are stored or none. As `Store.xadd_many`.

        Raises:
            DataError: `rows` is not an iterable of dicts.
            ResponseError: The key holds no stream.
        """
        return await threaded(partial(self._store.xadd_many, key, rows))

    async def ping(self) -> bool:
        """True while a server of the store answers."""
        return await threaded(self._store.ping)

    async def schedule(
        self,
        name: str,
        cron: str | None = None,
        *,
        queue: str,
        every: Duration | None = None,
        value: Any = None,
        tz: str | None = None,
        catch_up: str = "one",
        codec: Any = "json",
        priority: int = 0,
    ) -> Schedule:
        """Put a job into a queue again and again. As `Store.schedule`.

        The process that serves the store computes the ticks, by its clock and its time zones.

        Args:
            name: As in `Store.schedule`, and so are the others.
            cron: A cron expression.
            queue: Name of the queue that gets the jobs.
            every: The interval instead.
            value: The value of each job.
            tz: Name of the time zone of the cron expression.
            catch_up: `one`, `all` or `none` of the ticks that were missed.
            codec: Encodes the value.
            priority: The priority of each job, from 0 to 9.

        Returns:
            The schedule.

        Raises:
            DataError: An argument is invalid, the time zone is unknown, or the expression never fires.
            EncodeError: The codec cannot encode the value, or it is too large (PayloadTooLarge).
        """
        return await threaded(
            partial(
                self._store.schedule,
                name,
                cron,
                queue=queue,
                every=every,
                value=value,
                tz=tz,
                catch_up=catch_up,
                codec=codec,
                priority=priority,
            )
        )

    async def barrier(
        self,
        level: str = FSYNCED,
        *,
        replicas: int = 1,
        fsynced: bool = False,
        timeout: Duration | None = None,
    ) -> None:
        """Wait until everything written so far has reached a level.

        Args:
            level: As in `Store.barrier`.
            replicas: As in `at`.
            fsynced: As in `at`.
            timeout: As in `at`.

        Raises:
            DataError: The level is unknown, or another argument is invalid.
            NotReplicated: Too few followers have confirmed it in time.
        """
        await threaded(
            partial(self._store.barrier, level, replicas=replicas, fsynced=fsynced, timeout=timeout)
        )

    async def info(self, section: str | None = None, *args: str) -> dict[str, Any]:
        """The figures of INFO, as texts.

        Args:
            section: Only this section, and those in `args`.
        """
        return await threaded(partial(self._store.info, section, *args))

    async def config_get(self, pattern: str = "*", *args: str) -> dict[str, str]:
        """The options of the server that match a glob pattern.

        Args:
            pattern: The pattern; further ones in `args`.
        """
        return await threaded(partial(self._store.config_get, pattern, *args))

    async def config_set(self, name: str, value: Any, *args: Any) -> bool:
        """Change options of the server until it ends.

        Args:
            name: Name of an option.
            value: Its new value.
            *args: Further names and values.

        Returns:
            True.

        Raises:
            ResponseError: There is no such option, or the value is invalid.
        """
        return await threaded(partial(self._store.config_set, name, value, *args))

    async def checkpoint(self) -> int:
        """Fold the log into the checkpoint now. Other calls go on meanwhile.

        Returns:
            The last LSN that the checkpoint covers. If another one was made right after it, that one's.

        Raises:
            ResponseError: The checkpoint could not be made; nothing has changed.
        """
        return await threaded(self._store.checkpoint)

    async def snapshot(self) -> Snapshot:
        """Publish a portable copy of the store's current state in its folder snapshots/. As `Store.snapshot`.

        The process that serves the store makes it.

        Returns:
            Its path, on the machine of that process, and its manifest.

        Raises:
            CheckpointFailed: The snapshot could not be made; nothing has changed.
        """
        return await threaded(self._store.snapshot)

    async def promote(self) -> None:
        """Make a follower a leader, which takes writes. As `Store.promote`.

        Raises:
            ResponseError: The role could not be changed.
        """
        await threaded(self._store.promote)

    async def wait_for(self, token: str | bytes, timeout: Duration | None = None) -> None:
        """Wait until the server has applied a write that was made elsewhere. As `Store.wait_for`.

        Args:
            token: As in `Store.wait_for`.
            timeout: As in `Store.wait_for`.

        Raises:
            DataError: The timeout is invalid.
            ResponseError: The token is malformed or another store's.
            TokenLate: It was not applied in time.
            TokenLost: The history of the store shows that the write was given up.
        """
        await threaded(partial(self._store.wait_for, token, timeout))
