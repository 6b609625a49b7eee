"""The commands of a server: the engine's, and the server's own, which need a connection.

`server.commands.COMMANDS` lists the server's own. A handler runs in the event loop's thread without the store's lock,
and returns a reply or raises CommandError. A handler that is a coroutine function keeps its session busy until it
returns; all handlers that wait for a disk are coroutines. One that waits for followers or records returns a
`BlockedCall` (server/blocked.py).

This module knows no session: `S` stands for the type that the handlers take.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from tidelog.engine.api import TABLE as ENGINE
from tidelog.engine.api import Command, Table
from tidelog.engine.reply import Reply

S = TypeVar("S")
# Returns a reply, a coroutine that returns one, or a BlockedCall.
Handler = Callable[[S, list[bytes]], Reply]
# A command, its least and greatest number of arguments, and the server's handler; None stands for an engine command.
Way = tuple[Command, int, int, Handler[S] | None]


# Each runs one of the scripts that are built in (server/scripts.py).
SCRIPTS: Final = frozenset((b"eval", b"evalsha"))


def may_write(command: Command) -> bool:
    """Whether the command writes, or runs a script that does."""
    return "write" in command.flags or command.name in SCRIPTS


class Own(NamedTuple, Generic[S]):
    """One of the server's own commands, by its full name ("ping", "client|list").

    arity, flags, keys    as in engine.commands.table.Command
    categories            ACL categories that the flags do not imply, as ACL CAT names them
    """

    name: str
    arity: int
    flags: str
    handler: Handler[S]
    categories: str = ""
    keys: tuple[int, int, int] = (0, 0, 0)


class Commands(Generic[S]):
    """All commands.

    table         all of them, by name
    handlers      of the server's own, by full name
    categories    the ACL categories that they were listed with
    ways          cache of `resolve`: each spelling in `table.spellings` that was called
    """

    __slots__ = ("table", "handlers", "categories", "ways", "_below")

    def __init__(self, own: Iterable[Own[S]]) -> None:
        self.table = Table(ENGINE)
        self.handlers: dict[bytes, Handler[S]] = {}
        self.categories: dict[bytes, frozenset[str]] = {}
        self.ways: dict[bytes, Way[S]] = {}
        self._below: dict[tuple[bytes, bytes], Way[S]] = {}  # the same for subcommands
        for name, arity, flags, handler, categories, keys in own:
            raw = name.encode()
            self.handlers[raw] = handler
            self.categories[raw] = frozenset(categories.split())
            self.table.add(Command(raw, arity, frozenset(flags.split()), *keys, handler))

    def resolve(self, args: list[bytes]) -> tuple[Command, Handler[S] | None]:
        """Return the command that `args` name, and its handler or None. Raises CommandError."""
        words = (args[0], args[1]) if len(args) > 1 else (args[0], b"")
        way = self._below.get(words)
        if way is not None and way[1] <= len(args) <= way[2]:
            return way[0], way[3]
        table = self.table
        command = table.resolve(args)
        handler = self.handlers.get(command.name)
        spelling = args[0]
        if b"|" in command.name and words in _spelled(command.name):
            self._below[words] = command, *_numbers(command.arity), handler
        # Cache the result only for the spellings in `spellings`. There are few of them, so the cache stays small, and
        # none of their commands has subcommands, so the first word decides.
        if spelling in table.spellings:
            self.ways[spelling] = command, *_numbers(command.arity), handler
        return command, handler


def _numbers(arity: int) -> tuple[int, int]:
    """The least and the greatest number of words."""
    return (arity, arity) if arity >= 0 else (-arity, sys.maxsize)


def _spelled(name: bytes) -> tuple[tuple[bytes, ...], ...]:
    """The usual spellings of a subcommand, few enough to be cached."""
    lower = tuple(name.split(b"|"))
    return lower, tuple(map(bytes.upper, lower))
