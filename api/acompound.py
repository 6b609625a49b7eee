"""AsyncCompound: the methods, for asyncio, that a store and a shared store have in common besides the commands."""

from __future__ import annotations

import asyncio  # asyncio
import inspect  # asyncio
from collections.abc import AsyncIterator, Callable

# threads: from time import sleep
from typing import Any, Generic, TypeVar

from tidelog.api import shapes
from tidelog.api.async_methods import AsyncMethods
from tidelog.api.types import KeyT, PatternT, TextT
from tidelog.store.errors import WatchError

P = TypeVar("P")


class AsyncCompound(AsyncMethods[TextT], Generic[P, TextT]):
    """Methods that other methods make up, for asyncio. P: the class of the store's pipelines."""

    async def scan_iter(
        self,
        match: PatternT | None = None,
        count: int | None = None,
        _type: str | None = None,
    ) -> AsyncIterator[TextT]:
        """Iterate over the names of all keys with `scan`, a few at a time.

        A key that exists during the whole iteration is found; a name may come twice if keys change meanwhile.

        Args:
            match: Only names that match this glob pattern.
            count: Hint for the size of one step.
            _type: Only keys of this type, `stream` or `string`.

        Raises:
            ResponseError: `count` or the type is invalid.
        """
        cursor = -1
        while cursor:
            cursor, names = await self.scan(max(cursor, 0), match, count, _type)
            for name in names:
                yield name

    async def time(self) -> tuple[int, int]:
        """The store's clock: `(Unix seconds, microseconds of the second)`."""
        return await self._call(shapes.clock, [b"TIME"])

    # threads: def __contains__(self, name: KeyT) -> bool:
    # threads:     return bool(self.exists(name))

    # threads: def __getitem__(self, name: KeyT) -> TextT:
    # threads:     value = self.get(name)
    # threads:     if value is None:
    # threads:         raise KeyError(name)
    # threads:     return value

    # threads: def __setitem__(self, name: KeyT, value: Any) -> None:
    # threads:     self.set(name, value)

    # threads: def __delitem__(self, name: KeyT) -> None:
    # threads:     self.delete(name)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> P:
        """A pipeline of this store."""
        raise NotImplementedError

    async def transaction(
        self,
        func: Callable[[P], Any],
        *watches: KeyT,
        shard_hint: str | None = None,
        value_from_callable: bool = False,
        watch_delay: float | None = None,
    ) -> Any:
        """Run a transaction that depends on what it reads; repeat it until no watched key changed in between.

        An error of `func` ends it, and propagates.

        Args:
            func: Called with a pipeline that watches the keys. It reads, calls `pipe.multi()` and queues commands. With
                asyncio it may be a coroutine function.
            *watches: The keys to watch.
            shard_hint: Ignored; redis-py has it.
            value_from_callable: Return what `func` returned.
            watch_delay: Seconds to pause before a repeat.

        Returns:
            The results of the queued commands, or what `func` returned.

        Raises:
            ResponseError: A queued command was refused.
        """
        pipe: Any = self.pipeline(True)
        async with pipe:
            while True:
                try:
                    if watches:
                        await pipe.watch(*watches)
                    value = func(pipe)
                    if inspect.isawaitable(value):  # asyncio
                        value = await value  # asyncio
                    results = await pipe.execute()
                    return value if value_from_callable else results
                except WatchError:
                    if watch_delay:
                        await asyncio.sleep(watch_delay)  # asyncio
                        # threads: sleep(watch_delay)
