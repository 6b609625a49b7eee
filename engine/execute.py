"""Execute: find the command an argument list names, and decide it.

Errors of this step have Redis's texts (spec 4, 16.1). They echo what the caller sent as C strings do: up to
the first NUL, at most 128 bytes, line ends as blanks.
"""

from __future__ import annotations

# Importing a module registers its commands.
from tidelog.engine.commands import (  # noqa: F401
    ack,
    add,
    claim,
    delete,
    expire,
    groups,
    idempotent,
    keys,
    nack,
    range,
    read,
    readgroup,
    scan,
    server,
    setid,
    strings,
    trim,
    xinfo,
    xpending,
)
from tidelog.engine.context import Context
from tidelog.engine.effects import DEL, Effect
from tidelog.engine.errors import CommandError, CorruptBlock, echo
from tidelog.engine.reply import NULL_ARRAY, Park, Reply
from tidelog.engine.table import COMMANDS, CONTAINERS, Command

_ECHO_BYTES_MAX = 128

# Names as callers type them -> command, so that the usual spelling costs one lookup. Bounded, since
# callers choose the spelling: 2 ** len(name) of them.
_SPELLINGS: dict[bytes, Command] = {}
_SPELLINGS_MAX = 1024


def decide(ctx: Context, args: list[bytes]) -> Reply:
    """Decide one command: `args` with the name first, at least one element.

    Fills `ctx.effects` and returns the reply. Raises CommandError, with `ctx.effects` emptied: nothing is to
    change then. A read that would block answers Park, or the null array where `ctx.may_block` is False.
    """
    try:
        found = _SPELLINGS.get(args[0])
        if found is None:
            found = resolve(args)
        else:
            arity = found.arity
            if len(args) != arity and (arity >= 0 or len(args) < -arity):
                raise _wrong_arity(found.name)
        reply = found.decide(ctx, args)
    except CommandError:
        ctx.effects.clear()
        raise
    if reply.__class__ is Park and not ctx.may_block:
        return NULL_ARRAY
    return reply


def resolve(args: list[bytes]) -> Command:
    """The command that `args` names, its arity checked. Raises CommandError with Redis's text."""
    name = args[0].lower()
    command = COMMANDS.get(name)
    if command is not None:
        if len(_SPELLINGS) < _SPELLINGS_MAX:
            _SPELLINGS[bytes(args[0])] = command
    elif name in CONTAINERS:
        if len(args) == 1:
            raise _wrong_arity(name)
        command = COMMANDS.get(name + b"|" + args[1].lower())
        if command is None:
            raise CommandError(
                b"ERR unknown subcommand '%b'. Try %b HELP." % (echo(args[1]), name.upper())
            )
    else:
        raise _unknown_command(args)
    arity = command.arity
    if len(args) != arity and (arity >= 0 or len(args) < -arity):
        raise _wrong_arity(command.name)
    return command


def expire_due(ctx: Context, limit: int) -> list[CorruptBlock]:
    """Log the DEL of up to `limit` keys whose time has passed, all databases together, into `ctx.effects`.

    To be called when `ctx.now > state.next_expiry`; again if that still holds after applying. The damage that was met
    is returned, each once: keys that cannot be read stay, and hold up no other.
    """
    damage: list[CorruptBlock] = []
    for db, database in enumerate(ctx.state.databases):
        expires = database.expires
        try:
            due = expires.due(ctx.now, limit)
        except CorruptBlock as error:
            damage.append(error)
            expires.give_up()
            due = expires.due(ctx.now, limit)
        gone: list[bytes] = []
        for key in due:
            try:
                database.keys.get(key)  # into memory: apply is to read nothing
                gone.append(key)
            except CorruptBlock as error:
                damage.append(error)
                expires.pass_over(key)
        if gone:
            effect: Effect = (DEL, db, tuple(gone))
            ctx.effects.append(effect)
            limit -= len(gone)
            if limit <= 0:
                return damage
    if not ctx.effects:
        # Where keys are not in memory it was only a bound; `due` knows better now.
        ctx.state.find_next_expiry()
    return damage


def _unknown_command(args: list[bytes]) -> CommandError:
    shown = b""
    for arg in args[1:]:
        if len(shown) >= _ECHO_BYTES_MAX:
            break
        shown += b"'%b' " % echo(arg, _ECHO_BYTES_MAX - len(shown))
    return CommandError(
        b"ERR unknown command '%b', with args beginning with: %b" % (echo(args[0]), shown)
    )


def _wrong_arity(name: bytes) -> CommandError:
    return CommandError(b"ERR wrong number of arguments for '%b' command" % name)
