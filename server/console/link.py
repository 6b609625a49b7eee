"""Link: a connection of the console to the server of its own process, signed in as one user.

The console is a client. Its commands pass the same checks as those of any other client: the user's permissions, the
refusals of a follower, MONITOR, statistics, and a reply that leaves only after its data has reached the disk. The
connection is one end of a socket pair, so neither a port nor a password is needed.

A thread of the HTTP server uses a link; the event loop serves its other end.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tidelog.api.closing import Closing
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import status
from tidelog.resp.commands import encoded
from tidelog.resp.replies import UNFINISHED, Replies
from tidelog.server.acl.user import User
from tidelog.server.connection import Connection, ConnectionHost
from tidelog.server.console import entry
from tidelog.server.console.entry import NoAnswer

LINK_S: Final = 10.0  # an event loop that takes longer for one reply is taken for hanging
BATCH: Final = 50  # commands that are sent together
RECEIVE_BYTES: Final = 1 << 20
NAME: Final = b"console"


class _Inner(Connection):
    """The server's end. `peer` is the address of the browser, which CLIENT LIST and ACL LOG show."""

    def __init__(self, server: ConnectionHost, user: User, peer: str) -> None:
        super().__init__(server, "unix")
        self._user, self._peer = user, peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.addr = self.laddr = self._peer
        session = self.session
        session.user, session.authenticated, session.name = self._user, True, NAME
        session.settle()


class Link(entry.Link, Closing):
    """Opens the connection. Raises NoAnswer."""

    def __init__(self, server: ConnectionHost, user: User, peer: str) -> None:
        ours, theirs = socket.socketpair()
        ours.settimeout(LINK_S)
        theirs.setblocking(False)
        self._socket = ours
        self._replies = Replies(status, CommandError)
        made = server.loop.connect_accepted_socket(lambda: _Inner(server, user, peer), theirs)
        try:
            connecting = asyncio.run_coroutine_threadsafe(made, server.loop)
        except RuntimeError as error:  # the loop is closed
            made.close()
            theirs.close()
            self.close()
            raise NoAnswer("the server has stopped") from error
        try:
            connecting.result(LINK_S)
        except (TimeoutError, OSError) as error:
            # The loop may still come to `theirs`. It then finds a client that is gone.
            self.close()
            raise NoAnswer("the server does not answer") from error

    def ask_all(self, commands: Iterable[Sequence[bytes]]) -> list[Any]:
        """The replies of several commands; that of a failed one is a CommandError. Raises NoAnswer."""
        found: list[Any] = []
        every = list(commands)
        try:
            for at in range(0, len(every), BATCH):
                some = every[at : at + BATCH]
                self._socket.sendall(b"".join(map(encoded, some)))
                found += [self._reply() for _ in some]
        except OSError as error:
            raise NoAnswer("the server does not answer") from error
        return found

    def _reply(self) -> Any:
        while (reply := self._replies.take()) is UNFINISHED:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise OSError("the server closed the connection")
            self._replies.feed(data)
        return reply

    def close(self) -> None:
        self._socket.close()
