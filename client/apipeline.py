"""AsyncSharedPipeline: commands that a shared store runs together, for asyncio. Its calls run in threads."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from tidelog.api.aclearing import AsyncClearing
from tidelog.api.missing import answers_missing
from tidelog.api.pipeline_methods import PipelineMethods
from tidelog.api.shapes import Shape
from tidelog.api.types import KeyT
from tidelog.client.pipeline import SharedPipeline
from tidelog.client.threaded import threaded

T = TypeVar("T")


@answers_missing
class AsyncSharedPipeline(PipelineMethods, AsyncClearing):
    """A pipeline of an `AsyncSharedStore`. `AsyncSharedStore.pipeline` makes it; one task at a time may use it.

    As `SharedPipeline`. Methods that queue are not awaited; `watch`, `unwatch`, `execute`, `reset` and, between `watch`
    and `multi`, commands are.
    """

    def __init__(self, pipe: SharedPipeline) -> None:
        self._pipe = pipe
        self.transaction = pipe.transaction
        """Whether `execute` runs the commands as one unit."""

    def __len__(self) -> int:
        return len(self._pipe)

    def __bool__(self) -> bool:
        return True

    def __reduce__(self) -> Any:
        return self._pipe.__reduce__()  # raises

    @property
    def watching(self) -> bool:
        """Whether a key is watched."""
        return self._pipe.watching

    def _call(self, shape: Shape[T], words: list[Any]) -> Any:
        pipe = self._pipe
        if pipe._at_once:
            return self._now(shape, words)
        pipe._call(shape, words)
        return self

    async def _now(self, shape: Shape[Any], words: list[Any]) -> Any:
        return await threaded(partial(self._pipe._call, shape, words))

    def _add(self, name: KeyT, fields: Mapping[Any, Any]) -> Any:
        return self._call(*self._pipe._adding(name, fields))

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Queue any command, given as words. As `SharedPipeline.execute_command`."""
        return self._call(*self._pipe._given(args, options))

    def multi(self) -> None:
        """After `watch`: queue commands again, until `execute`. As `SharedPipeline.multi`."""
        self._pipe.multi()

    async def watch(self, *names: KeyT) -> bool:
        """Watch keys. As `SharedPipeline.watch`."""
        return await threaded(partial(self._pipe.watch, *names))

    async def unwatch(self) -> bool:
        """Stop watching all keys. Returns True."""
        return self._pipe.unwatch()

    async def execute(self, raise_on_error: bool = True) -> list[Any]:
        """Run the queued commands, and empty the pipeline. As `SharedPipeline.execute`."""
        return await threaded(partial(self._pipe.execute, raise_on_error))

    def _clear(self) -> None:
        self._pipe._clear()
