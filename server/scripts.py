"""The scripts that are built in: those of redis-py's Lock.

There is no engine for Lua. But redis-py's Lock releases, extends and reacquires by a script each, whose texts have not
changed for years. So these three are known by their SHA1, and always loaded. A script is decided like a command of the
engine, so it has its place in a transaction, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final

from tidelog.engine.api import Context
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int64
from tidelog.store.commit.core import Core

NO_LUA: Final = (
    b"ERR this server runs no scripts, except the three of redis-py's Lock; use a transaction with WATCH, or the "
    b"embedded store"
)
_NO_SCRIPT: Final = b"NOSCRIPT No matching script. Please use EVAL."
_LOCK_ARGUMENTS: Final = b"ERR wrong number of keys or arguments for a script of redis-py's Lock"

# Decides a script: (core, context, key, token, further arguments) -> its reply.
_Script = Callable[[Core, Context, bytes, bytes, list[bytes]], int]


def sha_of(text: bytes) -> bytes:
    """The SHA1 of a script, in hex."""
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def is_known(sha: bytes) -> bool:
    """Whether a script is built in. sha: in lower-case hex."""
    return sha in _LOCK


_SHA_BYTES: Final = 40


def decide(core: Core, ctx: Context, args: list[bytes]) -> int:
    """[lock] Decide an EVAL or EVALSHA: name, script or SHA1, number of keys, key, token, ... Raises CommandError."""
    by_sha = args[0].lower() == b"evalsha"
    sha = args[1].lower() if by_sha else sha_of(args[1])
    if by_sha and len(sha) != _SHA_BYTES:
        raise CommandError(_NO_SCRIPT)
    keys = int64(args[2])
    if keys > len(args) - 3:
        raise CommandError(b"ERR Number of keys can't be greater than number of args")
    if keys < 0:
        raise CommandError(b"ERR Number of keys can't be negative")
    if not is_known(sha):
        raise CommandError(_NO_SCRIPT if by_sha else NO_LUA)
    script, more = _LOCK[sha]
    if keys != 1 or len(args) != 5 + more:
        raise CommandError(_LOCK_ARGUMENTS)
    key, token, *rest = args[3:]
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
