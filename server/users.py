"""Sessions and users: signing in, and what a change of users means for those who are connected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.engine.table import Command
from tidelog.server.acl_user import COMMAND
from tidelog.server.clients import line
from tidelog.server.table import TABLE

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

    Sessions of removed users are closed. A session that waits is judged again: a subscriber or a monitor whose user
    may not ask for that any more is closed, and a blocked read gets NOPERM when it is served.
    """
    acl = server.acl
    for session in list(server.sessions.values()):
        user = session.user
        if acl.users.get(user.name) is not user:
            session.forbid(
                (COMMAND, session.last_command)
            )  # it is still parked until the socket is closed
            session.user, session.authenticated = acl.default, False
            if session is not by:  # that one gets its reply first
                session.kill()
        elif not _may_listen(session):
            session.kill()
        else:
            if not session.authenticated and acl.default.open:
                session.authenticated = True
            session.judge()
        session.settle()


def _may_listen(session: Session) -> bool:
    """Whether the session's user may still ask for all that the session listens to."""
    listening: list[list[bytes]] = [
        [b"subscribe", *session.channels],
        [b"psubscribe", *session.patterns],
        [b"ssubscribe", *session.shard_channels],
    ]
    asked = [words for words in listening if len(words) > 1]
    if session.monitor:
        asked.append([b"monitor"])
    return not any(session.user.denies_wait(TABLE.commands[words[0]], words) for words in asked)


def note_denied(session: Session, command: Command, denied: tuple[str, bytes]) -> None:
    """Put a blocked read that its user may not make any more into ACL LOG."""
    _note(session, *denied, session.user.name, command.name)


def _note(session: Session, reason: str, object_: bytes, name: bytes, command: bytes) -> None:
    server = session.server
    context = "multi" if session.transaction.active else "toplevel"
    client = line(session, command).rstrip(b"\n")
    server.acl.log.add(reason, context, object_, name, client, server.loop.time())
