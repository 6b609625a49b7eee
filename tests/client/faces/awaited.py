"""The faces for asyncio behind calls that return when they are done, so that tests of threads drive them, too."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self


class Loop:
    """An event loop in a thread, in which the calls of a face for asyncio run."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Any) -> Any:
        """The result of a coroutine."""

        async def awaited() -> Any:
            return await work

        return asyncio.run_coroutine_threadsafe(awaited(), self._loop).result(60)

    def settle(self) -> None:
        """Until the loop has forgotten the call before."""
        self.run(asyncio.sleep(0))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class HereLoop:
    """An event loop that runs in the thread of the test while it waits for a call, and keeps nothing afterwards."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, work: Any) -> Any:
        """The result of a coroutine."""

        async def awaited() -> Any:
            return await work

        return self._loop.run_until_complete(awaited())

    def close(self) -> None:
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()


class Awaited:
    """An object for asyncio whose methods are awaited here, and so are those of the objects that they return."""

    def __init__(self, loop: Loop | HereLoop, it: Any) -> None:
        self._loop, self.it = loop, it

    def _shown(self, found: Any) -> Any:
        is_face = type(found).__name__.startswith("Async") and not isinstance(found, str)
        return Awaited(self._loop, found) if is_face or inspect.isasyncgen(found) else found

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.it, name)
        if not callable(found):
            return self._shown(found)

        def call(*args: Any, **given: Any) -> Any:
            made = found(*args, **given)
            return self._shown(self._loop.run(made) if inspect.isawaitable(made) else made)

        return call

    def __next__(self) -> Any:
        try:
            return self._shown(self._loop.run(self.it.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None

    def __iter__(self) -> Iterator[Any]:
        rows = self.it.__aiter__()
        with suppress(StopAsyncIteration):
            while True:
                yield self._shown(self._loop.run(anext(rows)))

    def __len__(self) -> int:
        depth: int = self._loop.run(self.it.stats()).depth
        return depth

    def __enter__(self) -> Self:
        self._loop.run(self.it.__aenter__())
        return self

    def __exit__(self, *told: Any) -> Any:
        return self._loop.run(self.it.__aexit__(*told))
