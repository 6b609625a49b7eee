"""SLOWLOG GET, LEN, RESET and HELP (spec 16.2)."""

from __future__ import annotations

from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Reply, Status
from tidelog.server.session import Session

_DEFAULT = 10


def slowlog_get(session: Session, args: list[bytes]) -> Reply:
    log = session.server.stats.slowlog
    if len(args) > 3:
        raise CommandError(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try SLOWLOG HELP."
            % args[1]
        )
    count = _DEFAULT
    if len(args) == 3:
        try:
            count = int64(args[2])
        except CommandError:
            count = -2
        if count < -1:
            raise CommandError(b"ERR count should be greater than or equal to -1")
    return [list(entry) for entry in log.latest(len(log) if count == -1 else count)]


def slowlog_len(session: Session, args: list[bytes]) -> Reply:
    return len(session.server.stats.slowlog)


def slowlog_reset(session: Session, args: list[bytes]) -> Reply:
    session.server.stats.slowlog.clear()
    return OK


def slowlog_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _HELP]


_HELP = (
    b"SLOWLOG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"GET [<count>]",
    b"    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    b"    Entries are made of:",
    b"    id, timestamp, time in microseconds, arguments array, client IP and port,",
    b"    client name",
    b"LEN",
    b"    Return the length of the slowlog.",
    b"RESET",
    b"    Reset the slowlog.",
    b"HELP",
    b"    Print this help.",
)
