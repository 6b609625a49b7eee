"""Closing: an object for threads that its `with` block closes at the end.

Generated from aclosing.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self


class Closing:
    """An object for threads that its `with` block closes at the end, if it was opened for that block."""

    _opened_here = True

    def close(self) -> Any:
        """Close it."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._opened_here:
            self.close()
