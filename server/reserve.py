"""Reserve: seats beyond maxclients, so that an operator can always connect and see what fills the server.

A connection that comes while maxclients are connected gets one of SEATS on trial, for TRIAL_S. There it may sign in
and administer the server: PING, INFO, CLIENT LIST, CLIENT KILL, CONFIG SET. Any other command gets the error that
there are too many clients, and the connection is closed, so an ordinary client learns it with its first command. A
client that has run a command of the category `@admin`, which its user must be allowed to, is an operator, and stays.
When all seats are taken, a new connection gets the seat of the one that has been on trial for longest, or, if all are
operators, of the one that has done nothing for longest. When there is room, a client becomes an ordinary one with its
next command.

Processes that share the store through its directory get no seat (`Connection.operates`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from tidelog.engine.api import Command
from tidelog.engine.errors import CommandError
from tidelog.server import errors
from tidelog.server.monitoring.logs import VERBOSE
from tidelog.server.monitoring.stats import Stats
from tidelog.server.session import Session
from tidelog.server.table import Commands

SEATS: Final = 8
TRIAL_S: Final = 3.0
_OPERATE: Final = frozenset(("admin", "dangerous", "connection"))
_DATA: Final = frozenset(("write", "readonly", "blocking", "pubsub"))

_logger = logging.getLogger("tidelog.server")


class _Server(Protocol):
    """The server, as far as the reserve needs it. `full`: whether maxclients are connected."""

    loop: asyncio.AbstractEventLoop
    stats: Stats
    commands: Commands[Session]
    sessions: dict[int, Session]

    @property
    def full(self) -> bool: ...


class Reserve:
    """The seats of one server. Only the loop's thread uses it."""

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._trials: dict[Session, asyncio.TimerHandle] = {}  # the oldest first
        self._operators: dict[Session, None] = {}  # in the order of their last command

    def __len__(self) -> int:
        return len(self._trials) + len(self._operators)

    def seat(self, session: Session) -> None:
        """Give a new session a seat."""
        if len(self) >= SEATS:
            self.refuse(next(iter(self._trials or self._operators)))
        self._trials[session] = self._server.loop.call_later(TRIAL_S, self.refuse, session)
        session.reserve = self
        session.settle()

    def leave(self, session: Session) -> None:
        """The session is gone, or is an ordinary one from now on."""
        session.reserve = None
        self._operators.pop(session, None)
        trial = self._trials.pop(session, None)
        if trial is not None:
            trial.cancel()

    def refuse(self, session: Session) -> None:
        """Tell a session that there are too many clients, and close it."""
        self.leave(session)
        server = self._server
        del server.sessions[session.id]
        server.stats.rejected_connections += 1
        line, addr = errors.MAX_CLIENTS, session.connection.addr
        _logger.log(VERBOSE, "refused %s: %s", addr, line.decode())
        session.push(CommandError(line))
        session.close_soon()

    def admits(self, session: Session, command: Command) -> bool:
        """Whether a session on a seat may run the command, which its user is allowed to. If not, it was refused."""
        server = self._server
        if not server.full:
            self.leave(session)
            session.settle()
            return True
        about = command.flags | server.commands.categories.get(command.name, frozenset())
        if about & _DATA or not (about & _OPERATE or session in self._operators):
            self.refuse(session)
            return False
        if "admin" in about and session.authenticated:
            trial = self._trials.pop(session, None)
            if trial is not None:
                trial.cancel()
                addr = session.connection.addr
                _logger.log(VERBOSE, "client %d connected from %s, as operator", session.id, addr)
            self._operators.pop(session, None)
            self._operators[session] = None
        return True
