"""The command table: name -> arity, flags, keys, and the function that decides it.

A module under engine/commands/ registers its commands with the decorator; `engine.execute` imports them all.
Arity counts the command name, negative = at least (spec 17).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.engine.context import Context
from tidelog.engine.reply import Reply

Decide = Callable[[Context, list[bytes]], Reply]


class Command(NamedTuple):
    """One command. `args[0]` is the name as typed; a subcommand's name is `container|sub`."""

    name: bytes
    arity: int
    flags: frozenset[str]  # as COMMAND shows them: write readonly denyoom fast blocking ...
    first_key: int  # 0 = no keys
    last_key: int
    key_step: int
    decide: Decide


COMMANDS: dict[bytes, Command] = {}  # lower-case name; subcommands as b"xgroup|create"
CONTAINERS: set[bytes] = set()  # names that have subcommands


def command(
    name: str, arity: int, flags: str, keys: tuple[int, int, int] = (1, 1, 1)
) -> Callable[[Decide], Decide]:
    """Register the function below it as `name` ("xadd", "xgroup|create")."""

    def register(decide: Decide) -> Decide:
        raw = name.encode()
        COMMANDS[raw] = Command(raw, arity, frozenset(flags.split()), *keys, decide)
        if b"|" in raw:
            CONTAINERS.add(raw.partition(b"|")[0])
        return decide

    return register
