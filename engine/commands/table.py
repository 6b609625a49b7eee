"""The command table: name -> arity, flags, keys, and the function that decides the command.

Each module in engine/commands/ registers its commands with the decorator; `engine.commands.execute` imports all of
them. The server's own table extends this one. Arity includes the command name; negative means at least (spec 17).

Errors of a lookup have Redis's texts (spec 4, 16.1). They echo the client's words as C strings: up to the first NUL, at
most 128 bytes, line ends as blanks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tidelog.engine.commands.context import Context
from tidelog.engine.errors import CommandError, echo
from tidelog.engine.reply import Reply

Decide = Callable[[Context, list[bytes]], Reply]

_ECHO_BYTES_MAX = 128
# Limit of the `spellings` cache. A client may mix upper and lower case, so a name has 2 ** len(name) spellings.
SPELLINGS_MAX = 1024


class Command(NamedTuple):
    """One command. `args[0]` is the name as typed; a subcommand's name is `container|sub`."""

    name: bytes
    arity: int
    flags: frozenset[str]  # as in the reply of COMMAND: write readonly denyoom fast blocking ...
    first_key: int  # 0 = no keys
    last_key: int
    key_step: int
    decide: Any  # a `Decide` in the engine's table


class Table:
    """Commands by name.

    commands     lower-case name -> command; subcommands as b"xgroup|create"
    containers   names that have subcommands
    spellings    cache: name as typed -> command, so that the usual spelling costs one lookup; no containers
    """

    __slots__ = ("commands", "containers", "spellings")

    def __init__(self, over: Table | None = None) -> None:
        self.commands: dict[bytes, Command] = {} if over is None else dict(over.commands)
        self.containers: set[bytes] = set() if over is None else set(over.containers)
        self.spellings: dict[bytes, Command] = {}

    def add(self, command: Command) -> None:
        """Add a command, or replace the one of the same name."""
        self.commands[command.name] = command
        self.spellings.clear()
        if b"|" in command.name:
            self.containers.add(command.name.partition(b"|")[0])

    def resolve(self, args: list[bytes]) -> Command:
        """Find the command that `args` names, and check its arity. Raises CommandError with Redis's text."""
        found = self.spellings.get(args[0])
        if found is None:
            found = self._find(args)
        arity = found.arity
        if len(args) != arity and (arity >= 0 or len(args) < -arity):
            raise wrong_arity(found.name)
        return found

    def _find(self, args: list[bytes]) -> Command:
        name = args[0].lower()
        # COMMAND without arguments is a command; with a subcommand it is a container.
        if name in self.containers and (len(args) > 1 or name not in self.commands):
            if len(args) == 1:
                raise wrong_arity(name)
            command = self.commands.get(name + b"|" + args[1].lower())
            if command is None:
                raise CommandError(
                    b"ERR unknown subcommand '%b'. Try %b HELP." % (echo(args[1]), name.upper())
                )
            return command
        command = None if b"|" in name else self.commands.get(name)
        if command is None:
            raise _unknown_command(args)
        if name not in self.containers and len(self.spellings) < SPELLINGS_MAX:
            self.spellings[bytes(args[0])] = command
        return command


TABLE = Table()
COMMANDS = TABLE.commands


def command(
    name: str, arity: int, flags: str, keys: tuple[int, int, int] = (1, 1, 1)
) -> Callable[[Decide], Decide]:
    """Register the decorated function as `name` ("xadd", "xgroup|create"). keys: first, last, step."""

    def register(decide: Decide) -> Decide:
        TABLE.add(Command(name.encode(), arity, frozenset(flags.split()), *keys, decide))
        return decide

    return register


def wrong_arity(name: bytes) -> CommandError:
    """The error for a command with too few or too many arguments."""
    return CommandError(b"ERR wrong number of arguments for '%b' command" % name)


def _unknown_command(args: list[bytes]) -> CommandError:
    shown = b""
    for arg in args[1:]:
        if len(shown) >= _ECHO_BYTES_MAX:
            break
        shown += b"'%b' " % echo(arg, _ECHO_BYTES_MAX - len(shown))
    return CommandError(
        b"ERR unknown command '%b', with args beginning with: %b" % (echo(args[0]), shown)
    )
