"""Lists: KEYS, SCAN and RANDOMKEY as a client sees them, with the keys for which its user has a right of any kind.

The server's own keys (reserved.py) are never among them. The engine decides these commands for all keys. Here the names
that the client may not see are taken out, also within EXEC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidelog.engine.api import SERIES, Context
from tidelog.engine.errors import CommandError
from tidelog.engine.reply import Reply
from tidelog.store.commit.core import Core

LISTS: Final = frozenset((b"keys", b"scan", b"randomkey"))
Sees = Callable[[bytes], bool]


def ordinary(key: bytes) -> bool:
    """Whether it is none of the server's own keys."""
    return not key.startswith(SERIES)


def decide(core: Core, ctx: Context, name: bytes, words: list[bytes], sees: Sees) -> Reply:
    """[lock] Decide the command of `LISTS` with this name. `sees` says which keys the client may see.

    As `Core.decide`: an error of the command is its reply.
    """
    reply = core.decide(ctx, words)
    if reply is None or isinstance(reply, CommandError):
        return reply
    if name == b"keys":
        return list(filter(sees, reply))
    if name == b"scan":
        cursor, keys = reply
        return [cursor, list(filter(sees, keys))]
    if sees(reply):
        return reply
    others = ctx.database.keys.spread(ctx.now)
    return next((key for key in others if sees(key) and not ctx.passed(key)), None)
