"""AsyncClosing: an object for asyncio that its `async with` block closes at the end."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class AsyncClosing:
    """An object for asyncio that its `async with` block closes at the end, if it was opened for that block."""

    _opened_here = True

    async def aclose(self) -> Any:
        """Close it."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened_here:
            await self.aclose()
