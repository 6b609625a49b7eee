"""Commands on keys of any type (spec 14)."""

from __future__ import annotations

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import (
    COPY,
    DEL,
    FLUSHALL,
    FLUSHDB,
    MOVE,
    RENAME,
    SWAPDB,
    Effect,
)
from tidelog.engine.errors import NO_SUCH_KEY, SYNTAX, CommandError
from tidelog.engine.glob import matcher
from tidelog.engine.integers import int32, int64
from tidelog.engine.keys.series import series
from tidelog.engine.keys.state import DATABASES
from tidelog.engine.keys.values import encoding_name, memory_bytes, type_name
from tidelog.engine.reply import OK, Reply, Status
from tidelog.engine.streams.stream import Stream

_NO_KEYS = (0, 0, 0)
_DB_OUT_OF_RANGE = b"ERR DB index is out of range"
_SAME_OBJECT = b"ERR source and destination objects are the same"


@command("del", -2, "write", (1, -1, 1))
def del_(ctx: Context, args: list[bytes]) -> Reply:
    keys = ctx.present(dict.fromkeys(args[1:]), ctx.drops)
    if keys:
        ctx.effects.append((DEL, ctx.db, tuple(keys)))
    return len(keys)


command("unlink", -2, "write fast", (1, -1, 1))(del_)


@command("exists", -2, "readonly fast", (1, -1, 1))
def exists(ctx: Context, args: list[bytes]) -> Reply:
    return len(ctx.present(args[1:]))


@command("touch", -2, "readonly fast", (1, -1, 1))
def touch(ctx: Context, args: list[bytes]) -> Reply:
    found = ctx.present(args[1:])
    if not ctx.quiet:
        ctx.database.keys.accessed.update(dict.fromkeys(found, ctx.now))
    return len(found)


@command("type", 2, "readonly fast")
def type_(ctx: Context, args: list[bytes]) -> Reply:
    value = ctx.peek(args[1])
    return Status(b"none" if value is None else type_name(value))


@command("rename", 3, "write", (1, 2, 1))
def rename(ctx: Context, args: list[bytes]) -> Reply:
    _, source, target = args
    _must_exist(ctx, source)
    if source != target:
        ctx.drops(target)
        ctx.effects.append((RENAME, ctx.db, source, target))
    return OK


@command("renamenx", 3, "write fast", (1, 2, 1))
def renamenx(ctx: Context, args: list[bytes]) -> Reply:
    _, source, target = args
    _must_exist(ctx, source)
    if ctx.drops(target):
        return 0
    ctx.effects.append((RENAME, ctx.db, source, target))
    return 1


def _must_exist(ctx: Context, key: bytes) -> None:
    if ctx.lookup(key) is None:
        raise CommandError(NO_SUCH_KEY)


@command("copy", -3, "write denyoom", (1, 2, 1))
def copy(ctx: Context, args: list[bytes]) -> Reply:
    _, source, target, *options = args
    target_db, replace = ctx.db, False
    words = iter(options)
    for word in words:
        match word.lower():
            case b"replace":
                replace = True
            case b"db":
                index = next(words, None)
                if index is None:
                    raise CommandError(SYNTAX)
                target_db = _database(index)
            case _:
                raise CommandError(SYNTAX)
    if target_db == ctx.db and source == target:
        raise CommandError(_SAME_OBJECT)
    value = ctx.lookup(source)
    if value is None or (_exists(ctx, target_db, target) and not replace):
        return 0
    if isinstance(value, Stream):  # load it now, since apply must not read
        value.load_all()
        for group in value.groups.values():
            group.pending.orders.load_all()
    ctx.effects.append((COPY, ctx.db, source, target_db, target))
    return 1


@command("move", 3, "write fast")
def move(ctx: Context, args: list[bytes]) -> Reply:
    _, key, index = args
    target_db = _database(index)
    if target_db == ctx.db:
        raise CommandError(_SAME_OBJECT)
    if ctx.lookup(key) is None or _exists(ctx, target_db, key):
        return 0
    ctx.effects.append((MOVE, ctx.db, key, target_db))
    return 1


def _database(raw: bytes) -> int:
    db = int32(raw)
    if not 0 <= db < DATABASES:
        raise CommandError(_DB_OUT_OF_RANGE)
    return db


def _exists(ctx: Context, db: int, key: bytes) -> bool:
    """`ctx.drops` in database `db`."""
    home, ctx.db = ctx.db, db
    try:
        return ctx.drops(key)
    finally:
        ctx.db = home


@command("swapdb", 3, "write fast", _NO_KEYS)
def swapdb(ctx: Context, args: list[bytes]) -> Reply:
    a = int32(args[1], b"ERR invalid first DB index")
    b = int32(args[2], b"ERR invalid second DB index")
    if not (0 <= a < DATABASES and 0 <= b < DATABASES):
        raise CommandError(_DB_OUT_OF_RANGE)
    if a != b:
        here, there = _series(ctx, a), _series(ctx, b)
        ctx.effects.append((SWAPDB, a, b))
        for db, moved, own in ((b, here, there), (a, there, here)):
            gone = tuple(moved.keys() - own.keys())
            if gone:
                ctx.effects.append((DEL, db, tuple(sorted(gone))))
        ctx.effects += (*here.values(), *there.values())
    return OK


@command("flushdb", -1, "write", _NO_KEYS)
def flushdb(ctx: Context, args: list[bytes]) -> Reply:
    _check_flush_option(args)
    kept = _series(ctx, ctx.db).values()
    ctx.effects += ((FLUSHDB, ctx.db), *kept)
    return OK


@command("flushall", -1, "write", _NO_KEYS)
def flushall(ctx: Context, args: list[bytes]) -> Reply:
    _check_flush_option(args)
    kept = [effect for db in range(DATABASES) for effect in _series(ctx, db).values()]
    ctx.effects += ((FLUSHALL,), *kept)
    return OK


def _series(ctx: Context, db: int) -> dict[bytes, Effect]:
    """The series of a database, each with the effect that sets it again."""
    return {effect[2]: effect for effect in series(ctx.state.databases[db], db, ctx.now)}


def _check_flush_option(args: list[bytes]) -> None:
    if len(args) > 2 or (len(args) == 2 and args[1].lower() not in (b"sync", b"async")):
        raise CommandError(SYNTAX)


@command("keys", 2, "readonly", _NO_KEYS)
def keys(ctx: Context, args: list[bytes]) -> Reply:
    # Redis does not match a bare `*` against each key, so `*` also finds the empty key. Do the same.
    matches = None if args[1] == b"*" else matcher(args[1])
    names = ctx.database.keys
    if ctx.database.expires.count:
        return [
            key for key, at in names.listed() if at >= ctx.now and (not matches or matches(key))
        ]
    return list(filter(matches, names)) if matches else list(names)


@command("randomkey", 1, "readonly", _NO_KEYS)
def randomkey(ctx: Context, args: list[bytes]) -> Reply:
    """One key, chosen by the current time: the engine has no source of randomness."""
    # Multiply the time by the constant of Fibonacci hashing, so that consecutive times choose distant keys.
    names = ctx.database.keys.spread(ctx.now * 0x9E3779B97F4A7C15 >> 16)
    return next((key for key in names if not ctx.passed(key)), None)


@command("dbsize", 1, "readonly fast", _NO_KEYS)
def dbsize(ctx: Context, args: list[bytes]) -> Reply:
    return len(ctx.database.keys)


@command("object|encoding", 3, "readonly", (2, 2, 1))
def object_encoding(ctx: Context, args: list[bytes]) -> Reply:
    value = ctx.peek(args[2])
    return None if value is None else encoding_name(value)


@command("object|refcount", 3, "readonly", (2, 2, 1))
def object_refcount(ctx: Context, args: list[bytes]) -> Reply:
    return None if ctx.peek(args[2]) is None else 1


@command("object|idletime", 3, "readonly", (2, 2, 1))
def object_idletime(ctx: Context, args: list[bytes]) -> Reply:
    """Seconds since a command last named the key; if none did since the store was opened, since the first call."""
    key = args[2]
    if ctx.peek(key) is None:
        return None
    return (ctx.now - ctx.database.keys.accessed.setdefault(key, ctx.now)) // 1000


@command("object|freq", 3, "readonly", (2, 2, 1))
def object_freq(ctx: Context, args: list[bytes]) -> Reply:
    if ctx.peek(args[2]) is None:
        return None
    raise CommandError(
        b"ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that "
        b"when switching between policies at runtime LRU and LFU data will take some time to adjust."
    )


@command("object|help", 2, "loading stale", _NO_KEYS)
def object_help(ctx: Context, args: list[bytes]) -> Reply:
    return [Status(line) for line in _OBJECT_HELP]


@command("memory|usage", -3, "readonly", (2, 2, 1))
def memory_usage(ctx: Context, args: list[bytes]) -> Reply:
    at = 3
    while at < len(args):
        # Only validate SAMPLES. The reply comes from exact counters, so nothing is sampled.
        if args[at].lower() != b"samples" or at + 1 == len(args) or int64(args[at + 1]) < 0:
            raise CommandError(SYNTAX)
        at += 2
    key = args[2]
    value = ctx.peek(key)
    return None if value is None else memory_bytes(key, value)


@command("memory|help", 2, "loading stale", _NO_KEYS)
def memory_help(ctx: Context, args: list[bytes]) -> Reply:
    return [Status(line) for line in _MEMORY_HELP]


_OBJECT_HELP = (
    b"OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"ENCODING <key>",
    b"    Return the kind of internal representation used in order to store the value",
    b"    associated with a <key>.",
    b"FREQ <key>",
    b"    Return the access frequency index of the <key>. The returned integer is",
    b"    proportional to the logarithm of the recent access frequency of the key.",
    b"IDLETIME <key>",
    b"    Return the idle time of the <key>, that is the approximated number of",
    b"    seconds elapsed since the last access to the key.",
    b"REFCOUNT <key>",
    b"    Return the number of references of the value associated with the specified",
    b"    <key>.",
    b"HELP",
    b"    Print this help.",
)
_MEMORY_HELP = (
    b"MEMORY <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    b"USAGE <key> [SAMPLES <count>]",
    b"    Return memory in bytes used by <key> and its value. Nested values are",
    b"    sampled up to <count> times (default: 5, 0 means sample all).",
    b"HELP",
    b"    Print this help.",
)
