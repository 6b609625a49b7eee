"""Expiry: the EXPIRE commands, the TTL commands and PERSIST (spec 14)."""

from __future__ import annotations

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import DEL, PERSIST, PEXPIREAT
from tidelog.engine.errors import CommandError, echo
from tidelog.engine.integers import INT64_MAX, int64
from tidelog.engine.reply import Reply

_CONDITIONS = frozenset((b"nx", b"xx", b"gt", b"lt"))


def _conditions(args: list[bytes]) -> set[bytes]:
    words = set()
    for arg in args[3:]:
        word = arg.lower()
        if word not in _CONDITIONS:
            # The error ends with the option. Redis strips line ends from the end of an error, so strip them from the
            # option.
            shown = echo(arg.partition(b"\0")[0].rstrip(b"\r\n"), len(arg))
            raise CommandError(b"ERR Unsupported option %b" % shown)
        words.add(word)
    if b"nx" in words and len(words) > 1:
        raise CommandError(b"ERR NX and XX, GT or LT options at the same time are not compatible")
    if b"gt" in words and b"lt" in words:
        raise CommandError(b"ERR GT and LT options at the same time are not compatible")
    return words


def _met(words: set[bytes], at: int, current: int | None) -> bool:
    """Whether the conditions allow the expiry `at` (unix ms). current: the key's present expiry, None: it has none."""
    if current is None:
        # Treat a key without an expiry as one that expires later than all others.
        return b"xx" not in words and b"gt" not in words
    return not (
        b"nx" in words or (b"gt" in words and at <= current) or (b"lt" in words and at >= current)
    )


def _register_expire(name: str, relative: bool, unit_ms: int) -> None:
    invalid = b"ERR invalid expire time in '%b' command" % name.encode()

    @command(name, -3, "write fast")
    def decide(ctx: Context, args: list[bytes]) -> Reply:
        key = args[1]
        words = _conditions(args)
        at = int64(args[2]) * unit_ms
        # As in Redis, any int64 is allowed as a number of ms. A number of seconds must lie between -2**63 / 1000 and
        # (2**63 - 1) / 1000, both rounded towards zero as in C.
        if unit_ms > 1 and abs(at) > INT64_MAX:
            raise CommandError(invalid)
        if relative:
            at += ctx.now
        if at > INT64_MAX:
            raise CommandError(invalid)
        if ctx.lookup(key) is None or not _met(words, at, ctx.database.expires.get(key)):
            return 0
        if at <= ctx.now:
            ctx.effects.append((DEL, ctx.db, (key,)))
        else:
            ctx.effects.append((PEXPIREAT, ctx.db, key, at))
        return 1


def _register_ttl(name: str, relative: bool, unit_ms: int) -> None:
    @command(name, 2, "readonly fast")
    def decide(ctx: Context, args: list[bytes]) -> Reply:
        if ctx.peek(args[1]) is None:
            return -2
        at = ctx.database.expires.get(args[1])
        if at is None:
            return -1
        left = max(at - ctx.now, 0) if relative else at
        return left if unit_ms == 1 else (left + unit_ms // 2) // unit_ms


# fmt: off
for _name, _relative, _unit_ms in (
    ("expire",    True,  1000),
    ("pexpire",   True,  1),
    ("expireat",  False, 1000),
    ("pexpireat", False, 1),
):
    _register_expire(_name, _relative, _unit_ms)
for _name, _relative, _unit_ms in (
    ("ttl",         True,  1000),
    ("pttl",        True,  1),
    ("expiretime",  False, 1000),
    ("pexpiretime", False, 1),
):
    _register_ttl(_name, _relative, _unit_ms)
# fmt: on


@command("persist", 2, "write fast")
def persist(ctx: Context, args: list[bytes]) -> Reply:
    key = args[1]
    if ctx.lookup(key) is None or key not in ctx.database.expires:
        return 0
    ctx.effects.append((PERSIST, ctx.db, key))
    return 1
