"""FUNCTION and SCRIPT, with the replies of a server that has neither functions nor scripts, except three.

Test suites and frameworks call FUNCTION FLUSH, FUNCTION LIST and SCRIPT FLUSH when they start. There is no engine for
Lua. But redis-py's Lock releases, extends and reacquires by a script each, whose texts have not changed for years. So
these three are built in: they are known by their SHA1, and always loaded. Every other script is refused with a
sentence, so that no client takes it for stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Final

from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError, echo
from tidelog.engine.integers import int64
from tidelog.engine.reply import OK, Map, Reply, Status
from tidelog.server.session import Session
from tidelog.store.commit.core import Core

_MODES = (b"sync", b"async")
_NOT_BUSY = b"NOTBUSY No scripts in execution right now."
_ECHO = 1 << 16  # what Redis prints with a bare %s
_NO_SCRIPT = b"NOSCRIPT No matching script. Please use EVAL."
_NO_LUA = (
    b"ERR this server runs no scripts, except the three of redis-py's Lock; use a transaction with WATCH, or the "
    b"embedded store"
)
_LOCK_ARGUMENTS = b"ERR wrong number of keys or arguments for a script of redis-py's Lock"

# Decides a script: (core, context, key, token, further arguments) -> its reply.
_Script = Callable[[Core, Context, bytes, bytes, list[bytes]], int]


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
    return [int(sha.lower() in _LOCK) for sha in args[2:]]


def script_load(session: Session, args: list[bytes]) -> Reply:
    """SCRIPT LOAD script"""
    sha = _sha(args[2])
    if sha not in _LOCK:
        raise CommandError(_NO_LUA)
    return sha


def eval_(session: Session, args: list[bytes]) -> Reply:
    """EVAL script numkeys key [arg ...]"""
    sha = _sha(args[1])
    if sha not in _LOCK:
        raise CommandError(_NO_LUA)
    return _run(session, sha, args[2:])


def evalsha(session: Session, args: list[bytes]) -> Reply:
    """EVALSHA sha1 numkeys key [arg ...]"""
    sha = args[1].lower()
    if sha not in _LOCK:
        raise CommandError(_NO_SCRIPT)
    return _run(session, sha, args[2:])


def _sha(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def _run(session: Session, sha: bytes, args: list[bytes]) -> Reply:
    """Run a script of the Lock as one unit. `args` are the number of keys, the key, the token and the rest."""
    script, more = _LOCK[sha]
    if int64(args[0]) != 1 or len(args) != 3 + more:
        raise CommandError(_LOCK_ARGUMENTS)
    _, key, token, *rest = args
    core = session.core
    work = partial(_locked, core, script, key, token, rest)
    reply, promise = core.run(session.db, work, None, False)
    session.rest_on(promise)
    return reply


def _locked(
    core: Core, script: _Script, key: bytes, token: bytes, rest: list[bytes], ctx: Context
) -> int:
    """[lock] Decide a script if the key has the token; else 0."""
    if core.decide_words(ctx, [b"GET", key]) != token:
        return 0
    return script(core, ctx, key, token, rest)


def _release(core: Core, ctx: Context, key: bytes, token: bytes, rest: list[bytes]) -> int:
    """Delete the key."""
    core.decide_words(ctx, [b"DEL", key])
    return 1


def _extend(core: Core, ctx: Context, key: bytes, token: bytes, rest: list[bytes]) -> int:
    """Add milliseconds to the time that the key has left, or replace it. A key that never expires stays so: 0."""
    left = core.decide_words(ctx, [b"PTTL", key])
    if left < 0:
        return 0
    more, replace = rest
    length = int64(more) + (left if replace == b"0" else 0)
    core.decide_words(ctx, [b"PEXPIRE", key, b"%d" % length])
    return 1


def _reacquire(core: Core, ctx: Context, key: bytes, token: bytes, rest: list[bytes]) -> int:
    """Set the time that the key has left, in milliseconds."""
    core.decide_words(ctx, [b"PEXPIRE", key, rest[0]])
    return 1


# SHA1 of the text -> (its decision, number of arguments after the token)
_LOCK: Final[dict[bytes, tuple[_Script, int]]] = {
    b"c3f8721cbb97f72bc19e972846bd7aaf91901658": (_release, 0),
    b"a4e8783852e6b949f9ef3a97212805108459a890": (_extend, 2),
    b"1cac51482acf5858da00f6d685d68f886cd6b6b2": (_reacquire, 1),
}


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
