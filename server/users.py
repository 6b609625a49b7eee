"""Sessions and users: signing in, and what a change of users means for those who are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.engine.table import Command
from tidelog.server.clients import line

if TYPE_CHECKING:
    from tidelog.server.server import Server
    from tidelog.server.session import Session


def sign_in(session: Session, name: bytes, password: bytes, command: bytes) -> bool:
    """Make the session that user's, if the password is right; otherwise it stays whose it is, and ACL LOG has it.

    command    that it came with, in lower case
    """
    server = session.server
    user = server.acl.authenticate(name, password)
    if user is None:
        _note(session, "auth", command.upper(), name, command)
        return False
    session.user = user
    session.authenticated = True
    session.settle()
    return True


def note_refusal(session: Session, command: Command, args: list[bytes]) -> None:
    """Put a command that its user may not run into ACL LOG."""
    denied = session.user.denies(command, args)
    if denied is not None:
        _note(session, *denied, session.user.name, command.name)


def users_changed(server: Server, by: Session | None = None) -> None:
    """Make what was changed of users hold for all who are connected. `by`: the session that changed it.

    As in Redis: sessions of users that were removed are closed, and those that have subscribed to channels which their
    user may not use any more.
    """
    acl = server.acl
    for session in list(server.sessions.values()):
        user = session.user
        if acl.users.get(user.name) is not user:
            session.user, session.authenticated = acl.default, False
            if session is not by:  # that one gets its reply first
                session.kill()
        elif not _may_listen(session):
            session.kill()
        elif not session.authenticated and acl.default.open:
            session.authenticated = True
        session.settle()


def _may_listen(session: Session) -> bool:
    user = session.user
    return user.all_channels or (
        all(map(user.allows_channel, session.channels | session.shard_channels))
        and all(user.allows_channel(pattern, is_pattern=True) for pattern in session.patterns)
    )


def _note(session: Session, reason: str, object_: bytes, name: bytes, command: bytes) -> None:
    server = session.server
    context = "multi" if session.transaction.active else "toplevel"
    client = line(session, command).rstrip(b"\n")
    server.acl.log.add(reason, context, object_, name, client, server.loop.time())
