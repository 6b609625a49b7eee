"""Leaving: before a server stops, its followers get what they still lack.

SHUTDOWN, SIGTERM and the owner's `Serving.close` delay the writes of clients, and wait until each connected follower
has written and applied the newest record, for at most `shutdown-timeout` seconds. Reads go on. A follower that gets a
copy of the data is not waited for: it has nothing yet that could be promoted. As in Redis 7.0 (server.c,
prepareForShutdown).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog.replication.feeds import Downstream
from tidelog.server.handover import Handover
from tidelog.server.host import Host
from tidelog.server.session import Session

LOOK_S: Final = 0.005  # pause between two looks at the followers

_logger = logging.getLogger("tidelog.server")


class Leaving:
    """See the module docstring. Only the event loop's thread uses it.

    insisted    somebody does not want to wait: SHUTDOWN NOW, or a second signal
    handover    what an owner does when `tidelog serve` takes over
    """

    def __init__(self, server: Host[Session]) -> None:
        self.insisted = False
        self.handover = Handover(server)
        self._server = server

    async def followers(self, abort: asyncio.Future[None]) -> None:
        """Wait for the followers, until `abort` is done. Then the writes go on."""
        server, core = self._server, self._server.core
        seconds = server.config["shutdown-timeout"]
        feeding = server.replicating.feeding
        if self.insisted or not seconds or not len(feeding.feeds):
            return
        # Also if no follower lacks anything now: clients would write, and be answered, until they are disconnected.
        server.delay_writes(abort, True)
        # Writes of the owner's threads go on. So the newest record of this moment is what counts.
        lsn = core.log.next_lsn - 1
        if self._lagging(lsn):
            _logger.info("waiting up to %d s for followers before stopping", seconds)
        for link in self._lagging(lsn):
            link.feed.ask()
        feeding.pump_soon()
        deadline = server.loop.time() + seconds
        while (
            (lagging := self._lagging(lsn))
            and not (self.insisted or abort.done() or core.ended)
            and server.loop.time() < deadline
        ):
            await asyncio.wait((abort,), timeout=LOOK_S)
        if abort.done():
            server.delay_writes(abort, False)
            return
        for link in lagging:
            _logger.warning(
                "stopping although the follower %s lacks the last %d records; it was heard of %.1f s ago",
                *(link, lsn - link.feed.acked_lsn, server.loop.time() - link.feed.heard_at),
            )

    def _lagging(self, lsn: int) -> list[Downstream]:
        """The followers that will still get records and lack some of those through `lsn`."""
        core = self._server.core
        if core.ended or core.log.failure is not None:
            return []
        return [
            link for link in self._server.replicating.feeding.feeds if link.feed.acked_lsn < lsn
        ]
