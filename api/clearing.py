"""Clearing: the ends of a pipeline for threads, of an open store or a shared one.

Generated from aclearing.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Clearing:
    """A pipeline for threads, which `_clear` empties."""

    def _clear(self) -> None:
        raise NotImplementedError

    def reset(self) -> None:
        """Drop the queued commands and the watches."""
        self._clear()

    def close(self) -> None:
        """Same as `reset`."""
        self._clear()

    def discard(self) -> None:
        """Same as `reset`."""
        self._clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._clear()
