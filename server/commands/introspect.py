"""COMMAND: the list of commands, and the positions of a command's keys (spec 16.2, 17)."""

from __future__ import annotations

from typing import Final

from tidelog.engine.api import Table
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.glob import matcher
from tidelog.engine.reply import Map, Reply, Status
from tidelog.server.commands import docs
from tidelog.server.commands.describe import categories_of, describe, find_keys, keys, names
from tidelog.server.session import Session
from tidelog.server.table import Commands, S
from tidelog.server.wire.replies import SetReply

_NO_KEYS: Final = b"ERR The command has no key arguments"


def _top(commands: Commands[S]) -> list[bytes]:
    return [name for name in names(commands) if b"|" not in name]


def command_(session: Session, args: list[bytes]) -> Reply:
    commands = session.server.commands
    return [describe(name, commands) for name in _top(commands)]


def command_count(session: Session, args: list[bytes]) -> Reply:
    return len(_top(session.server.commands))


def command_info(session: Session, args: list[bytes]) -> Reply:
    commands = session.server.commands
    return [describe(word.lower(), commands) for word in args[2:] or _top(commands)]


def command_docs(session: Session, args: list[bytes]) -> Reply:
    commands = session.server.commands
    reply = Map()
    for name in (word.lower() for word in args[2:] or _top(commands)):
        found = docs.describe(name, commands)
        if found is not None:
            reply += name, found
    return reply


def command_list(session: Session, args: list[bytes]) -> Reply:
    commands = session.server.commands
    if len(args) == 2:
        return names(commands)
    if len(args) != 5 or args[2].lower() != b"filterby":
        raise CommandError(SYNTAX)
    kind, word = args[3].lower(), args[4]
    if kind == b"module":
        return []
    if kind == b"aclcat":
        category = word.lower().decode("latin-1")
        return [name for name in names(commands) if category in categories_of(name, commands)]
    if kind == b"pattern":
        matches = matcher(word.lower())
        return [name for name in names(commands) if matches(name)]
    raise CommandError(SYNTAX)


def _keys(args: list[bytes], table: Table) -> list[tuple[bytes, tuple[str, ...]]]:
    """The keys, and how they are used, of the command that `args` name. Raises CommandError."""
    name = args[0].lower()
    found = None
    if name in table.containers and len(args) == 1:
        raise CommandError(_NO_KEYS)
    if name in table.containers:
        found = table.commands.get(name + b"|" + args[1].lower())
    elif name in table.commands:
        found = table.commands[name]
    if found is None:
        raise CommandError(b"ERR Invalid command specified")
    if all(run.use == ("not_key",) for run in keys(found)):  # shard channels are declared like keys
        raise CommandError(_NO_KEYS)
    if len(args) != found.arity and (found.arity >= 0 or len(args) < -found.arity):
        raise CommandError(b"ERR Invalid number of arguments specified for command")
    result = find_keys(found, args)
    if not result and "no_mandatory_keys" not in found.flags:
        raise CommandError(b"ERR Invalid arguments specified for command")
    return result


def command_getkeys(session: Session, args: list[bytes]) -> Reply:
    return [key for key, _ in _keys(args[2:], session.server.commands.table)]


def command_getkeysandflags(session: Session, args: list[bytes]) -> Reply:
    found = _keys(args[2:], session.server.commands.table)
    return [[key, SetReply(Status(word.encode()) for word in use)] for key, use in found]


def command_help(session: Session, args: list[bytes]) -> Reply:
    return [Status(text) for text in _HELP]


_HELP = (
    b"COMMAND <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"(no subcommand)",
    b"    Return details about all Redis commands.",
    b"COUNT",
    b"    Return the total number of commands in this Redis server.",
    b"LIST",
    b"    Return a list of all commands in this Redis server.",
    b"INFO [<command-name> ...]",
    b"    Return details about multiple Redis commands.",
    b"    If no command names are given, documentation details for all",
    b"    commands are returned.",
    b"DOCS [<command-name> ...]",
    b"    Return documentation details about multiple Redis commands.",
    b"    If no command names are given, documentation details for all",
    b"    commands are returned.",
    b"GETKEYS <full-command>",
    b"    Return the keys from a full Redis command.",
    b"GETKEYSANDFLAGS <full-command>",
    b"    Return the keys and the access flags from a full Redis command.",
    b"HELP",
    b"    Print this help.",
)
