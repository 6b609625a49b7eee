"""TIDELOG TOKEN and TIDELOG WAITFOR: a client reads its own writes from a follower (store/tokens.py)."""

from __future__ import annotations

from tidelog.engine.errors import CommandError
from tidelog.engine.reply import OK, Reply
from tidelog.server.blocked import NOT_YET, BlockedCall
from tidelog.server.commands.wait import parse_timeout
from tidelog.server.session import Session
from tidelog.store import tokens
from tidelog.store.commit.arrivals import Arrival

_CHANGED = (
    b"ERR the history of this store has changed since this connection was served, so what it was shown has no token; "
    b"read again, and ask then"
)


def token(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG TOKEN: the last record that this connection wrote, or that a reply to it could show."""
    found = session.seen.token(session.connection.log, session.wrote_lsn)
    if found is None:
        raise CommandError(_CHANGED)
    return str(found).encode()


def waitfor(session: Session, args: list[bytes]) -> Reply:
    """TIDELOG WAITFOR token timeout: wait until this store has applied it. timeout in ms, 0 = for ever."""
    wanted = tokens.parse(args[2])
    timeout_ms = parse_timeout(session, args[3])
    if tokens.look(session.core, wanted) is tokens.Verdict.HERE:
        return OK
    if session.in_exec:
        raise tokens.late(session.core, wanted)
    return _Waiting(session, wanted, timeout_ms)


class _Waiting(BlockedCall):
    """A call that waits for a token."""

    def __init__(self, session: Session, token: tokens.Token, timeout_ms: int) -> None:
        super().__init__(session.woke, session.deadline(timeout_ms))
        self._core, self._token = session.core, token
        self._arrival = Arrival(token.lsn, self.nudge)
        self.nudge()  # looks once more, with the arrival noted

    def look(self) -> Reply:
        """See `BlockedCall`."""
        self._core.arrivals.add(self._arrival)  # before the look, so that nothing comes between
        here = tokens.look(self._core, self._token) is tokens.Verdict.HERE
        return OK if here else NOT_YET

    def late(self) -> Reply:
        """See `BlockedCall`."""
        raise tokens.late(self._core, self._token)

    def forget(self) -> None:
        """See `BlockedCall`."""
        self._core.arrivals.remove(self._arrival)
