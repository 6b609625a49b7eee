"""The table of all commands: the engine's, and the server's own, which need a connection.

The modules under server/commands/ register their handlers with the decorator; `server.commands` imports them all. A
handler runs in the event loop's thread without the store's lock, and returns a reply or raises CommandError. A handler
that is a coroutine function keeps its session busy until it returns; all handlers that wait for a disk are coroutines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tidelog.engine.commands.execute  # noqa: F401  # registers the engine's commands
from tidelog.engine.commands.table import TABLE as ENGINE
from tidelog.engine.commands.table import Command, Table
from tidelog.engine.reply import Reply

if TYPE_CHECKING:
    from tidelog.server.session import Session

# Returns a reply, or a coroutine that returns one.
Handler = Callable[["Session", list[bytes]], Reply]

TABLE = Table(ENGINE)
HANDLERS: dict[bytes, Handler] = {}  # of the server's own commands, by full name
CATEGORIES: dict[bytes, frozenset[str]] = {}  # ACL categories that flags do not imply


def command(
    name: str,
    arity: int,
    flags: str,
    keys: tuple[int, int, int] = (0, 0, 0),
    *,
    categories: str = "",
) -> Callable[[Any], Any]:
    """Decorator: register a handler as `name` ("ping", "client|list"); `categories` as ACL CAT names them."""

    def register(handler: Handler) -> Handler:
        raw = name.encode()
        HANDLERS[raw] = handler
        CATEGORIES[raw] = frozenset(categories.split())
        TABLE.add(Command(raw, arity, frozenset(flags.split()), *keys, handler))
        return handler

    return register
