"""Execute: find the command an argument list names, and decide it."""

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
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.keyspace import Keyspace
from tidelog.engine.reply import NULL_ARRAY, Park, Reply
from tidelog.engine.table import TABLE, wrong_arity

_spellings = TABLE.spellings
resolve = TABLE.resolve


def decide(ctx: Context, args: list[bytes]) -> Reply:
    """Decide one command: `args` with the name first, at least one element.

    Fills `ctx.effects` and returns the reply. Raises CommandError, with `ctx.effects` emptied: nothing is to
    change then. A read that would block answers Park, or the null array where `ctx.may_block` is False.
    """
    try:
        found = _spellings.get(args[0])
        if found is None:
            found = resolve(args)
        else:
            arity = found.arity
            if len(args) != arity and (arity >= 0 or len(args) < -arity):
                raise wrong_arity(found.name)
        reply: Reply = found.decide(ctx, args)
    except CommandError:
        ctx.effects.clear()
        raise
    if reply.__class__ is Park and not ctx.may_block:
        return NULL_ARRAY
    return reply


def _bring_in(names: Keyspace, key: bytes) -> None:
    """Into memory, since apply is to read nothing; of a stream whose row cannot be read its number is enough."""
    try:
        names.get(key)
    except CorruptBlock:
        if not names.lose(key):
            raise


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
                _bring_in(database.keys, key)
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
