"""Execute: look up the command that an argument list names, and decide it."""

from __future__ import annotations

from tidelog.engine.commands.context import Context

# Importing a module registers its commands.
from tidelog.engine.commands.groups import ack, claim, nack, readgroup, xgroup, xinfo, xpending  # noqa: F401
from tidelog.engine.commands.keys import dump, expire, keys, scan, server, strings  # noqa: F401
from tidelog.engine.commands.streams import add, delete, idempotent, range, read, setid, trim  # noqa: F401
from tidelog.engine.commands.table import TABLE, wrong_arity
from tidelog.engine.effects.effect import DEL, Effect
from tidelog.engine.errors import CommandError, CorruptBlock
from tidelog.engine.keys.keyspace import Keyspace
from tidelog.engine.reply import NULL_ARRAY, Park, Reply

_spellings = TABLE.spellings
resolve = TABLE.resolve


def decide(ctx: Context, args: list[bytes]) -> Reply:
    """Decide one command. args: at least one element, the command's name first.

    Appends to `ctx.effects` and returns the reply. If the command is refused, raises CommandError with `ctx.effects`
    cleared, so nothing changes. A read that would block returns Park, or the null array if `ctx.may_block` is False.
    May raise CorruptBlock.
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
    """Load a key, since apply must read nothing. For a stream whose row cannot be read, its number is enough."""
    try:
        names.get(key)
    except CorruptBlock:
        if not names.lose(key):
            raise


def expire_due(ctx: Context, limit: int) -> list[CorruptBlock]:
    """Append the DELs of up to `limit` expired keys, over all databases, to `ctx.effects`.

    Call it when `ctx.now > state.next_expiry`, and again while that still holds after applying. Returns the damage it
    found, each error once. A key that cannot be read stays and does not delay the others.
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
        # No key was deleted, so `next_expiry` was too early. That can happen while some keys are not in memory, because
        # then it is only a lower bound. The calls of `due` above have raised the bound, so compute `next_expiry` again.
        ctx.state.find_next_expiry()
    return damage
