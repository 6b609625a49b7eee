"""FUNCTION and SCRIPT, with the replies of a server that has neither functions nor scripts, except three.

Test suites and frameworks call FUNCTION FLUSH, FUNCTION LIST and SCRIPT FLUSH when they start. Every script that is not
built in (server/scripts.py) is refused with a sentence, so that no client takes it for stored.
"""

from __future__ import annotations

from functools import partial

from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError, echo
from tidelog.engine.reply import OK, Map, Reply, Status
from tidelog.server import scripts
from tidelog.server.session import Session
from tidelog.store.commit.core import Core

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
    return [int(scripts.is_known(sha.lower())) for sha in args[2:]]


def script_load(session: Session, args: list[bytes]) -> Reply:
    """SCRIPT LOAD script"""
    sha = scripts.sha_of(args[2])
    if not scripts.is_known(sha):
        raise CommandError(scripts.NO_LUA)
    return sha


def eval_(session: Session, args: list[bytes]) -> Reply:
    """EVAL script numkeys key [arg ...], and EVALSHA with a SHA1: one of the scripts that are built in, as one unit."""
    core = session.core
    reply, promise = core.run(session.db, partial(_decide, core, args), None, False)
    session.rest_on(promise)
    return reply


def _decide(core: Core, args: list[bytes], ctx: Context) -> int:
    return scripts.decide(core, ctx, args)


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
    b"    Print this help.",
)
_SCRIPT_HELP = (
    b"SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"EXISTS <sha1> [<sha1> ...]",
    b"    Return 1 for each script of redis-py's Lock, and 0 for all others.",
    b"FLUSH [ASYNC|SYNC]",
    b"    Does nothing: the scripts of redis-py's Lock are built in, and there are no others.",
    b"KILL",
    b"    Always an error: no script runs.",
    b"LOAD <script>",
    b"    Return the SHA1 of a script of redis-py's Lock; an error for all others.",
    b"HELP",
    b"    Print this help.",
)
