"""FUNCTION and SCRIPT, with the replies of a server that has neither functions nor scripts.

Test suites and frameworks call FUNCTION FLUSH, FUNCTION LIST and SCRIPT FLUSH when they start. Commands that run or
store a script are unknown (EVAL, FCALL, SCRIPT LOAD and the like), so that no client takes a script for stored.
"""

from __future__ import annotations

from tidelog.engine.errors import CommandError, echo
from tidelog.engine.reply import OK, Map, Reply, Status
from tidelog.server.session import Session

_MODES = (b"sync", b"async")
_NOT_BUSY = b"NOTBUSY No scripts in execution right now."
_ECHO = 1 << 16  # what Redis prints with a bare %s


def function_flush(session: Session, args: list[bytes]) -> Reply:
    """FUNCTION FLUSH [ASYNC | SYNC]"""
    if len(args) > 3:
        raise CommandError(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try FUNCTION HELP."
            % echo(args[1])
        )
    if len(args) == 3 and args[2].lower() not in _MODES:
        raise CommandError(b"ERR FUNCTION FLUSH only supports SYNC|ASYNC option")
    return OK


def function_list(session: Session, args: list[bytes]) -> Reply:
    """FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE], each at most once."""
    at, left = 2, {b"withcode", b"libraryname"}
    while at < len(args):
        option = args[at].lower()
        if option not in left:
            raise CommandError(b"ERR Unknown argument %b" % echo(args[at], _ECHO))
        left.remove(option)
        at += 1
        if option == b"libraryname":
            if at == len(args):
                raise CommandError(b"ERR library name argument was not given")
            at += 1
    return []


def function_stats(session: Session, args: list[bytes]) -> Reply:
    """FUNCTION STATS: no engines; Redis lists Lua here."""
    return Map([b"running_script", None, b"engines", Map()])


def function_delete(session: Session, args: list[bytes]) -> Reply:
    raise CommandError(b"ERR Library not found")


def function_kill(session: Session, args: list[bytes]) -> Reply:
    raise CommandError(_NOT_BUSY)


def function_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _FUNCTION_HELP]


def script_flush(session: Session, args: list[bytes]) -> Reply:
    """SCRIPT FLUSH [ASYNC | SYNC]"""
    if len(args) > 3 or (len(args) == 3 and args[2].lower() not in _MODES):
        raise CommandError(b"ERR SCRIPT FLUSH only support SYNC|ASYNC option")
    return OK


def script_exists(session: Session, args: list[bytes]) -> Reply:
    """SCRIPT EXISTS sha1 [sha1 ...]"""
    return [0] * (len(args) - 2)


def script_kill(session: Session, args: list[bytes]) -> Reply:
    raise CommandError(_NOT_BUSY)


def script_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(line) for line in _SCRIPT_HELP]


_FUNCTION_HELP = (
    b"FUNCTION <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"DELETE <LIBRARY NAME>",
    b"    Always an error: there are no libraries.",
    b"FLUSH [ASYNC|SYNC]",
    b"    Does nothing: there are no libraries.",
    b"KILL",
    b"    Always an error: no function runs.",
    b"LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    b"    Return an empty list.",
    b"STATS",
    b"    Return that no function runs, and that there are no engines.",
    b"HELP",
    b"    Prints this help.",
)
_SCRIPT_HELP = (
    b"SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"EXISTS <sha1> [<sha1> ...]",
    b"    Return 0 for each: there are no scripts.",
    b"FLUSH [ASYNC|SYNC]",
    b"    Does nothing: there are no scripts.",
    b"KILL",
    b"    Always an error: no script runs.",
    b"HELP",
    b"    Prints this help.",
)
