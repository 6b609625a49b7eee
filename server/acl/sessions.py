"""Sessions and users: authentication, and applying changed users to connected sessions."""

from __future__ import annotations

from tidelog.engine.api import Command
from tidelog.server.acl.user import COMMAND
from tidelog.server.host import Host
from tidelog.server.monitoring.clients import line
from tidelog.server.session import Session


def sign_in(session: Session, name: bytes, password: bytes, command: bytes) -> bool:
    """Make the session the user's if the password is right. Otherwise leave it unchanged and add it to ACL LOG.

    command    the command that carried the password, in lower case
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


def users_changed(server: Host[Session], names: set[bytes], by: Session | None = None) -> None:
    """Apply changed users to their connected sessions. `by`: the session that made the change.

    Sessions of removed users are closed. A subscriber or monitor whose user lost the permission is closed too, and a
    blocked read gets NOPERM when it would be served. Sessions of other users are left alone, as in Redis: one may hold
    a subscription that it made as another user.
    """
    acl = server.acl
    for session in list(server.sessions.values()):
        user = session.user
        if user.name not in names:
            continue
        if acl.users.get(user.name) is not user:
            # If a blocked read is served before its socket is closed, it must get NOPERM and no entries.
            session.forbid((COMMAND, session.last_command))
            session.user, session.authenticated = acl.default, False
            if session is not by:  # `by` gets its reply first
                session.kill()
        elif not _may_listen(session):
            session.kill()
        else:
            if not session.authenticated and acl.default.open:
                session.authenticated = True
            session.judge()
        session.settle()


def _may_listen(session: Session) -> bool:
    """Whether the session's user still has the permission for all its subscriptions, and for MONITOR if active."""
    listening: list[list[bytes]] = [
        [b"subscribe", *session.channels],
        [b"psubscribe", *session.patterns],
        [b"ssubscribe", *session.shard_channels],
    ]
    asked = [words for words in listening if len(words) > 1]
    if session.monitor:
        asked.append([b"monitor"])
    commands = session.server.commands.table.commands
    return not any(session.user.denies_wait(commands[words[0]], words) for words in asked)


def note_denied(session: Session, command: Command, denied: tuple[str, bytes]) -> None:
    """Add a command that the session's user may not run to ACL LOG. `denied`: what `User.denies` returned."""
    _note(session, *denied, session.user.name, command.name)


def _note(session: Session, reason: str, object_: bytes, name: bytes, command: bytes) -> None:
    server = session.server
    context = "multi" if session.transaction.active else "toplevel"
    client = line(session, command).rstrip(b"\n")
    server.acl.log.add(reason, context, object_, name, client, server.loop.time())
