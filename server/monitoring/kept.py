"""Kept: the bytes of the log that followers need, the records that were set aside, and what else keeps log. INFO,
/metrics and /health have them.

All are on the disk, for which INFO does not wait. So a thread looks once a second, as long as the store has followers
or has ever followed, and otherwise every ten seconds, for snapshots and bookmarks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog.aof.errors import AofError
from tidelog.replication.feeds import Feeds
from tidelog.replication.status import Kept, surpluses
from tidelog.server.host import Host
from tidelog.server.saving import in_thread
from tidelog.server.session import Session
from tidelog.store.errors import TidelogError
from tidelog.store.keepers import Keeper, kept_bytes

LOOK_S: Final = 1.0
LOOK_ALONE_S: Final = 10.0

_logger = logging.getLogger("tidelog.replication")


class Looking:
    """See the module docstring. Only the loop's thread calls `tick`.

    now   the newest figures, at most a second or so old
    """

    def __init__(self, server: Host[Session], feeds: Feeds) -> None:
        self.now = Kept()
        self._server, self._core, self._feeds = server, server.core, feeds
        self._next_look = 0.0
        self._looking: asyncio.Future[Kept] | None = None

    def keepers(self) -> list[Keeper]:
        """The followers that need a part of the log."""
        config = self._server.config
        kept = self._feeds.kept(self._server.loop.time(), config["repl-backlog-ttl"])
        return [Keeper("follower", name, lsn, config["repl-backlog-size"]) for name, lsn in kept]

    def tick(self) -> None:
        """Called `hz` times a second."""
        now, roles = self._server.loop.time(), self._core.roles
        if now < self._next_look or self._looking is not None or roles is None or self._core.ended:
            return
        found = self.keepers()
        self._next_look = now + (LOOK_S if found or roles.role.reason else LOOK_ALONE_S)
        self._looking = in_thread(lambda: self._look(found))
        self._looking.add_done_callback(self._looked)

    def _look(self, found: list[Keeper]) -> Kept:
        core, roles, checkpoints = self._core, self._core.roles, self._core.checkpoints
        assert roles is not None and checkpoints is not None
        aside = surpluses(roles.disk, core.root)
        records = sum(each.get("records", 0) for each in aside)
        nbytes = kept_bytes(roles.disk, core.root, found)
        return Kept(nbytes, len(aside), records, tuple(checkpoints.pins()))

    def _looked(self, looking: asyncio.Future[Kept]) -> None:
        self._looking = None
        error = looking.exception()
        if error is None:
            self.now = looking.result()
        elif not isinstance(error, AofError | TidelogError | OSError):
            _logger.error("the log kept for followers could not be measured", exc_info=error)
