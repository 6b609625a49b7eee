"""The connection and server commands that the engine itself can answer (spec 16.1, 16.2)."""

from __future__ import annotations

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.errors import CommandError
from tidelog.engine.integers import int32
from tidelog.engine.keys.state import DATABASES
from tidelog.engine.reply import OK, Reply, Status

_NO_KEYS = (0, 0, 0)


@command("ping", -1, "fast", _NO_KEYS)
def ping(ctx: Context, args: list[bytes]) -> Reply:
    if len(args) > 2:
        raise CommandError(b"ERR wrong number of arguments for 'ping' command")
    return args[1] if len(args) == 2 else Status(b"PONG")


@command("echo", 2, "loading stale fast", _NO_KEYS)
def echo(ctx: Context, args: list[bytes]) -> Reply:
    return args[1]


@command("select", 2, "loading stale fast", _NO_KEYS)
def select(ctx: Context, args: list[bytes]) -> Reply:
    """Sets `ctx.db`. The session takes it over."""
    db = int32(args[1])
    if not 0 <= db < DATABASES:
        raise CommandError(b"ERR DB index is out of range")
    ctx.db = db
    return OK


@command("time", 1, "loading stale fast", _NO_KEYS)
def time(ctx: Context, args: list[bytes]) -> Reply:
    seconds, ms = divmod(ctx.now, 1000)
    return [b"%d" % seconds, b"%d" % (ms * 1000)]


# A session runs these commands itself (engine.commands.transaction). The table lists them because their arity must be
# checked. Without a session there is no transaction, so the functions below raise Redis's errors for that case.


@command("multi", 1, "noscript loading stale fast", _NO_KEYS)
def multi(ctx: Context, args: list[bytes]) -> Reply:
    raise CommandError(b"ERR MULTI needs a session")


@command("exec", 1, "noscript loading stale skip_slowlog", _NO_KEYS)
def exec_(ctx: Context, args: list[bytes]) -> Reply:
    raise CommandError(b"ERR EXEC without MULTI")


@command("discard", 1, "noscript loading stale fast", _NO_KEYS)
def discard(ctx: Context, args: list[bytes]) -> Reply:
    raise CommandError(b"ERR DISCARD without MULTI")


@command("watch", -2, "noscript loading stale fast", (1, -1, 1))
def watch(ctx: Context, args: list[bytes]) -> Reply:
    raise CommandError(b"ERR WATCH needs a session")


@command("unwatch", 1, "noscript loading stale fast", _NO_KEYS)
def unwatch(ctx: Context, args: list[bytes]) -> Reply:
    """Also decides a queued UNWATCH: EXEC has already dropped all watches."""
    return OK
