"""AsyncClearing: the ends of a pipeline for asyncio, of an open store or a shared one."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class AsyncClearing:
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._clear()
