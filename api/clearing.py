"""Clearing: the ends of a pipeline for threads, of an open store or a shared one.

Generated from aclearing.py by tools/dev/make_sync.py: change that file.
"""

from __future__ import annotations

from tidelog.api.closing import Closing


class Clearing(Closing):
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
