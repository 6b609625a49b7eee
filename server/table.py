"""The server's commands: those of the engine, and those that need a connection.

A module under server/commands/ registers handlers with the decorator; `server.commands` imports them all. A handler
runs in the event loop's thread and without the store's lock, and returns a reply or raises CommandError. One that is
a coroutine function keeps its session busy until it returns; whatever waits for a disk is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tidelog.engine.execute  # noqa: F401  # registers the engine's commands
from tidelog.engine.reply import Reply
from tidelog.engine.table import TABLE as ENGINE
from tidelog.engine.table import Command, Table

if TYPE_CHECKING:
    from tidelog.server.session import Session

# A reply, or a coroutine that will have one.
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
    """Register the handler below it as `name` ("ping", "client|list"); `categories` as ACL CAT names them."""

    def register(handler: Handler) -> Handler:
        raw = name.encode()
        HANDLERS[raw] = handler
        CATEGORIES[raw] = frozenset(categories.split())
        TABLE.add(Command(raw, arity, frozenset(flags.split()), *keys, handler))
        return handler

    return register
