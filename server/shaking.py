"""Shaking: the handshakes of followers that are under way, of which there are never many.

Each handshake costs a thread that reads the log, and each accepted one gets frames or a snapshot, whether its other
side reads them or not. Thousands at once, which begin and go no further, would hold up the loop for seconds. So

    few are answered at a time; the others wait in order, and none of them costs a thread
    a bounded number waits; a further one is refused, and asks again in a second, as every follower does
    of those that were accepted, and have said nothing since, only the newest stay

A follower acknowledges as soon as it is accepted, so it is among the newest until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from tidelog.replication.errors import LinkError

ANSWERED_MAX: Final = 4  # at a time
WAITING_MAX: Final = 128
SILENT_MAX: Final = 128
SAID_S: Final = 10.0  # least time between two warnings

_logger = logging.getLogger("tidelog.replication")


class Shaking:
    """See the module docstring. Only the loop's thread uses it.

    waiting   handshakes that are answered, or wait for that
    """

    def __init__(self) -> None:
        self.waiting = 0
        self._loop = asyncio.get_running_loop()
        self._answering = asyncio.Semaphore(ANSWERED_MAX)
        self._holding = asyncio.Semaphore(ANSWERED_MAX)
        self._silent: dict[object, Callable[[str], object]] = {}  # in order of their acceptance
        self._say_at = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for the turn of a handshake that asks for an answer. Raises LinkError if too many wait."""
        if self.waiting >= WAITING_MAX:
            self._say(f"{WAITING_MAX} handshakes of followers are under way: more are refused")
            raise LinkError(f"{WAITING_MAX} other handshakes are under way here; ask again")
        self.waiting += 1
        try:
            async with self._answering:
                yield
        finally:
            self.waiting -= 1

    @asynccontextmanager
    async def snapshot_turn(self) -> AsyncIterator[None]:
        """Wait for the turn of a link that needs a snapshot: making one may take minutes."""
        async with self._holding:
            yield

    def accepted(self, link: object, drop: Callable[[str], object]) -> None:
        """A link begins, whose other side has said nothing since its request. `drop` ends it, for a reason."""
        if len(self._silent) >= SILENT_MAX:
            self._say(
                f"{SILENT_MAX} accepted followers have said nothing yet: the oldest are closed"
            )
            oldest = next(iter(self._silent))
            self._silent.pop(oldest)("it has said nothing yet, and makes room for others")
        self._silent[link] = drop

    def heard(self, link: object) -> None:
        """The other side of a link has said something, or is gone."""
        self._silent.pop(link, None)

    def _say(self, line: str) -> None:
        now = self._loop.time()
        if now >= self._say_at:
            self._say_at = now + SAID_S
            _logger.warning("%s", line)
