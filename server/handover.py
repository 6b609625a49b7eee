"""Handover: an owner that clients started gives the store to `tidelog serve`, without an error for its clients.

`serve` asks for it on the socket in the store's directory, with TIDELOG HANDOVER, and gets that socket. From then on
new clients wait in its queue, until `serve` has opened the store. The owner ends what its clients wait for, answers
what is under way, closes the connections and the store, and exits. It removes nothing: if `serve` ends midway, the
socket is stale, and the next client starts an owner as ever.

A client that has said TIDELOG HANDOVER KNOWN gets one more line before its connection ends: nothing that it has sent
and that has no reply was run. So it can repeat every call on a new connection, also one that must not run twice. For
others the connection is closed as at a shutdown, and a blocked read ends as if it was late.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from tidelog.engine.errors import CommandError
from tidelog.server.host import Host
from tidelog.server.session import Session

LOOK_S: Final = 0.005  # pause between two looks at the commands that are under way
LINE: Final = (
    b"HANDOVER another process serves this store from now on; nothing that has no reply was run"
)
# Commands whose reply tells how far the writes of their own connection have come. No other connection can tell that.
_OF_CONNECTION: Final = frozenset((b"wait", b"waitaof"))

_logger = logging.getLogger("tidelog.server")


class Handover:
    """See the module docstring. Only the event loop's thread uses it.

    knowing    the IDs of the sessions that know the line
    """

    def __init__(self, server: Host[Session]) -> None:
        self.knowing: set[int] = set()
        self._server = server
        self._dismissed: set[int] = set()
        self._task: asyncio.Task[None] | None = None  # keeps it alive

    def begin(self) -> None:
        """The socket was passed on: end. A second call does nothing."""
        if self._task is None:
            _logger.info("handing over to another process, and stopping")
            self._task = self._server.loop.create_task(self._run())

    async def _run(self) -> None:
        server = self._server
        server.listeners.stop(keep_share=True)
        until = server.loop.time() + server.config["shutdown-timeout"]
        while self._dismiss() and server.loop.time() < until:
            await asyncio.sleep(LOOK_S)
        server.stop()

    def _dismiss(self) -> int:
        """End all connections that have nothing under way. Returns how many are left."""
        self._server.turns.run_all()  # what has arrived comes before the line
        left = 0
        for session in list(self._server.sessions.values()):
            if session.id in self._dismissed or session.closed or session.follower is not None:
                continue
            knows = session.id in self.knowing
            if session.waits and session.waits_in not in _OF_CONNECTION:
                session.unblock(LINE if knows else None)
            if session.busy:
                left += 1
                continue
            self._dismissed.add(session.id)
            if knows:
                session.last_reply(CommandError(LINE))
            else:
                session.close_soon()
        return left
