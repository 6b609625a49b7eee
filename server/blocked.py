"""Blocked calls: commands whose reply comes later, but not from the store's queue of waiters (WAIT, QUEUE TAKE).

A handler returns a `BlockedCall`, and its session is busy until the call has a reply. The code that ends the wait calls
`nudge`, from any thread. At the end of that turn of the loop the session asks `look` for the reply. So all calls that
one event ends are answered together, and such a call costs no future and no callback of the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Final

from tidelog.engine.reply import Reply

NOT_YET: Final = object()  # the call goes on waiting


class BlockedCall:
    """One blocked call. Only the loop's thread uses it, except for `nudge`.

    deadline    on the store's monotonic clock; None: it waits for any time
    """

    def __init__(self, woke: Callable[[int], object], deadline: float | None) -> None:
        """`woke` makes the session look at its call soon. Its argument is the thread that calls it."""
        self._woke = woke
        self.deadline = deadline

    def nudge(self) -> None:
        """The wait may be over: look soon. From any thread, perhaps under the store's lock."""
        self._woke(get_ident())

    def next_look(self) -> float | None:
        """When to look without a nudge, on the store's monotonic clock; None = never."""
        return self.deadline

    def look(self) -> Reply:
        """The reply, or NOT_YET. Raises the error to reply with."""
        raise NotImplementedError

    def late(self) -> Reply:
        """The reply of a call whose time is up, or that CLIENT UNBLOCK ends. Raises the error to reply with."""
        raise NotImplementedError

    def forget(self) -> None:
        """The call has its reply, or its client is gone: it waits for nothing any more."""
        raise NotImplementedError
