"""String commands, for tokens and positions that clients keep beside their streams (spec 14).

Every command that writes a string, except APPEND, logs SETs.
"""

from __future__ import annotations

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import APPEND, DEL, PERSIST, PEXPIREAT, SET
from tidelog.engine.errors import SYNTAX, WRONGTYPE, CommandError
from tidelog.engine.integers import INT64_MAX, INT64_MIN, int64
from tidelog.engine.reply import OK, Reply

STRING_BYTES_MAX = 512 << 20  # Redis's proto-max-bulk-len

# Options that set an expiry: name -> (whether the time is relative to now, milliseconds per unit).
_EXPIRY_UNITS = {b"ex": (True, 1000), b"px": (True, 1), b"exat": (False, 1000), b"pxat": (False, 1)}


def string(ctx: Context, key: bytes) -> bytes | None:
    """The string of a key, or None. Raises CommandError(WRONGTYPE) for another type."""
    value = ctx.lookup(key)
    if value is None or isinstance(value, bytes):
        return value
    raise CommandError(WRONGTYPE)


def expire_at_of(ctx: Context, key: bytes) -> int:
    """The expiry of an existing key, unix ms; -1 if it has none."""
    return ctx.database.expires.get(key, -1)


class _Options:
    """The options of SET (after the value) or of GETEX (after the key)."""

    __slots__ = ("words", "expiry", "amount", "other")

    def __init__(self) -> None:
        self.words: set[bytes] = set()
        self.expiry = b""  # ex, px, exat or pxat; b"" if not given
        self.amount = b""  # its argument
        self.other = b""  # the value that IFEQ or IFNE compares with


def _parse(args: list[bytes], first: int, words: dict[bytes, frozenset[bytes]]) -> _Options:
    """Parse the options from args[first] on. Raises CommandError.

    words: each allowed option, with the options that exclude it. `_TIME` stands for EX, PX, EXAT and PXAT.
    """
    options = _Options()
    at = first
    while at < len(args):
        word = args[at].lower()
        at += 1
        if word in _EXPIRY_UNITS:
            if at == len(args) or options.expiry not in (b"", word) or options.words & words[_TIME]:
                raise CommandError(SYNTAX)
            options.expiry, options.amount = word, args[at]
            at += 1
            continue
        if word not in words or options.words & words[word]:
            raise CommandError(SYNTAX)
        if options.expiry and word in words[_TIME]:
            raise CommandError(SYNTAX)
        if word in _COMPARISONS:
            if at == len(args):
                raise CommandError(SYNTAX)
            options.other = args[at]
            at += 1
        options.words.add(word)
    return options


# Stands for EX, PX, EXAT and PXAT in the tables below. Options are looked up in lower case, so no option equals this
# upper-case word.
_TIME = b"TIME"

# Conditions that take a value. A command may give each of them once.
_COMPARISONS = frozenset((b"ifeq", b"ifne"))

# fmt: off
_SET_WORDS = {
    b"nx":      frozenset((b"xx", b"ifeq", b"ifne")),
    b"xx":      frozenset((b"nx", b"ifeq", b"ifne")),
    b"ifeq":    frozenset((b"nx", b"xx", b"ifeq", b"ifne")),
    b"ifne":    frozenset((b"nx", b"xx", b"ifeq", b"ifne")),
    b"get":     frozenset(()),
    b"keepttl": frozenset(()),
    _TIME:      frozenset((b"keepttl",)),
}
_GETEX_WORDS = {
    b"persist": frozenset(()),
    _TIME:      frozenset((b"persist",)),
}
# fmt: on


def _expire_at(ctx: Context, option: bytes, amount: bytes, name: bytes) -> int:
    """The expiry that an option of the command `name` sets, unix ms. Raises CommandError."""
    relative, unit_ms = _EXPIRY_UNITS[option]
    value = int64(amount)
    if 0 < value <= INT64_MAX // unit_ms:
        value *= unit_ms
        if not relative:
            return value
        if value <= INT64_MAX - ctx.now:
            return value + ctx.now
    raise CommandError(b"ERR invalid expire time in '%b' command" % name)


@command("set", -3, "write denyoom")
def set_(ctx: Context, args: list[bytes]) -> Reply:
    _, key, value, *_ = args
    if len(args) == 3:
        ctx.drops(key)
        ctx.effects.append((SET, ctx.db, key, value, -1))
        return OK
    options = _parse(args, 3, _SET_WORDS)
    expire_at = -1
    if options.expiry:
        expire_at = _expire_at(ctx, options.expiry, options.amount, b"set")
    words = options.words
    old: bytes | None = None
    if b"get" in words or words & _COMPARISONS:
        old = string(ctx, key)
    found = ctx.drops(key)
    if words & _COMPARISONS:
        refused = (old == options.other) is (b"ifne" in words)
    else:
        refused = (b"nx" if found else b"xx") in words
    if not refused:
        if b"keepttl" in words and found:
            expire_at = expire_at_of(ctx, key)
        ctx.effects.append((SET, ctx.db, key, value, expire_at))
    if b"get" in words:
        return old
    return None if refused else OK


@command("setnx", 3, "write denyoom fast")
def setnx(ctx: Context, args: list[bytes]) -> Reply:
    _, key, value = args
    if ctx.drops(key):
        return 0
    ctx.effects.append((SET, ctx.db, key, value, -1))
    return 1


@command("setex", 4, "write denyoom")
def setex(ctx: Context, args: list[bytes]) -> Reply:
    return _set_with_time(ctx, args, b"ex", b"setex")


@command("psetex", 4, "write denyoom")
def psetex(ctx: Context, args: list[bytes]) -> Reply:
    return _set_with_time(ctx, args, b"px", b"psetex")


def _set_with_time(ctx: Context, args: list[bytes], option: bytes, name: bytes) -> Reply:
    _, key, amount, value = args
    expire_at = _expire_at(ctx, option, amount, name)
    ctx.drops(key)
    ctx.effects.append((SET, ctx.db, key, value, expire_at))
    return OK


@command("get", 2, "readonly fast")
def get(ctx: Context, args: list[bytes]) -> Reply:
    return string(ctx, args[1])


@command("getdel", 2, "write fast")
def getdel(ctx: Context, args: list[bytes]) -> Reply:
    value = string(ctx, args[1])
    if value is not None:
        ctx.effects.append((DEL, ctx.db, (args[1],)))
    return value


@command("getset", 3, "write denyoom fast")
def getset(ctx: Context, args: list[bytes]) -> Reply:
    _, key, value = args
    old = string(ctx, key)
    ctx.effects.append((SET, ctx.db, key, value, -1))
    return old


@command("getex", -2, "write fast")
def getex(ctx: Context, args: list[bytes]) -> Reply:
    key = args[1]
    options = _parse(args, 2, _GETEX_WORDS)
    value = string(ctx, key)
    if value is None:
        return None
    if options.expiry:
        at = _expire_at(ctx, options.expiry, options.amount, b"getex")
        if at <= ctx.now:
            ctx.effects.append((DEL, ctx.db, (key,)))
        else:
            ctx.effects.append((PEXPIREAT, ctx.db, key, at))
    elif b"persist" in options.words and key in ctx.database.expires:
        ctx.effects.append((PERSIST, ctx.db, key))
    return value


@command("mget", -2, "readonly fast", (1, -1, 1))
def mget(ctx: Context, args: list[bytes]) -> Reply:
    values = [ctx.lookup(key) for key in args[1:]]
    return [value if isinstance(value, bytes) else None for value in values]


@command("mset", -3, "write denyoom", (1, -1, 2))
def mset(ctx: Context, args: list[bytes]) -> Reply:
    for key, value in _pairs(args, b"mset").items():
        ctx.drops(key)
        ctx.effects.append((SET, ctx.db, key, value, -1))
    return OK


@command("msetnx", -3, "write denyoom", (1, -1, 2))
def msetnx(ctx: Context, args: list[bytes]) -> Reply:
    pairs = _pairs(args, b"msetnx")
    if any(ctx.drops(key) for key in pairs):
        return 0
    ctx.effects.extend((SET, ctx.db, key, value, -1) for key, value in pairs.items())
    return 1


def _pairs(args: list[bytes], name: bytes) -> dict[bytes, bytes]:
    """Key -> value. If a key is repeated, its last value counts. Raises CommandError."""
    if len(args) % 2 == 0:
        raise CommandError(b"ERR wrong number of arguments for '%b' command" % name)
    return dict(zip(args[1::2], args[2::2], strict=True))


@command("incr", 2, "write denyoom fast")
def incr(ctx: Context, args: list[bytes]) -> Reply:
    return _add(ctx, args[1], 1)


@command("decr", 2, "write denyoom fast")
def decr(ctx: Context, args: list[bytes]) -> Reply:
    return _add(ctx, args[1], -1)


@command("incrby", 3, "write denyoom fast")
def incrby(ctx: Context, args: list[bytes]) -> Reply:
    return _add(ctx, args[1], int64(args[2]))


@command("decrby", 3, "write denyoom fast")
def decrby(ctx: Context, args: list[bytes]) -> Reply:
    amount = int64(args[2])
    if amount == INT64_MIN:
        raise CommandError(b"ERR decrement would overflow")
    return _add(ctx, args[1], -amount)


def _add(ctx: Context, key: bytes, amount: int) -> Reply:
    old = string(ctx, key)
    value = amount if old is None else int64(old) + amount
    if not INT64_MIN <= value <= INT64_MAX:
        raise CommandError(b"ERR increment or decrement would overflow")
    expire_at = -1 if old is None else expire_at_of(ctx, key)
    ctx.effects.append((SET, ctx.db, key, b"%d" % value, expire_at))
    return value


@command("append", 3, "write denyoom fast")
def append(ctx: Context, args: list[bytes]) -> Reply:
    _, key, suffix = args
    length = len(string(ctx, key) or b"") + len(suffix)
    if length > STRING_BYTES_MAX:
        raise CommandError(b"ERR string exceeds maximum allowed size (proto-max-bulk-len)")
    ctx.effects.append((APPEND, ctx.db, key, suffix))
    return length


@command("strlen", 2, "readonly fast")
def strlen(ctx: Context, args: list[bytes]) -> Reply:
    return len(string(ctx, args[1]) or b"")
