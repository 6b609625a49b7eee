"""AsyncClearing: the ends of a pipeline for asyncio, of an open store or a shared one."""

from __future__ import annotations

from typing import Any, Self

from tidelog.api.aclosing import AsyncClosing


class AsyncClearing(AsyncClosing):
    """A pipeline for asyncio, which `_clear` empties."""

    def _clear(self) -> None:
        raise NotImplementedError

    async def reset(self) -> None:
        """Drop the queued commands and the watches."""
        self._clear()

    async def aclose(self) -> None:
        """Same as `reset`."""
        self._clear()

    async def discard(self) -> None:
        """Same as `reset`."""
        self._clear()

    def __await__(self) -> Any:  # asyncio
        return self._itself().__await__()  # asyncio

    async def _itself(self) -> Self:  # asyncio
        return self  # asyncio
