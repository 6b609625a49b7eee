"""DUMP and RESTORE: a value as a payload of Redis's dump format, and back (spec 14)."""

from __future__ import annotations

from typing import Final

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.keys.strings import STRING_BYTES_MAX
from tidelog.engine.commands.rewrite import Lost
from tidelog.engine.commands.table import command
from tidelog.engine.effects.effect import DEL, RESTORE
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.integers import INT64_MAX, int64
from tidelog.engine.rdb.errors import RdbError
from tidelog.engine.rdb.file import is_payload, value_in
from tidelog.engine.rdb.restore import restored
from tidelog.engine.rdb.skip import STRING, is_type, type_name
from tidelog.engine.rdb.stream import KINDS
from tidelog.engine.rdb.write import dump, oldest
from tidelog.engine.reply import OK, Reply

_FREQ_MAX: Final = 255
_BAD_FORMAT: Final = b"ERR Bad data format"


@command("dump", 2, "readonly")
def dump_(ctx: Context, args: list[bytes]) -> Reply:
    key = args[1]
    value = ctx.lookup(key)
    return None if value is None else dump(key, value, oldest(value), Lost(), ctx.db)


@command("restore", -4, "write denyoom")
def restore(ctx: Context, args: list[bytes]) -> Reply:
    _, key, raw_ttl, payload, *_ = args
    replace, absolute, idle = _options(args)
    if replace:
        found = ctx.drops(key)
    elif ctx.drops(key):
        raise CommandError(b"BUSYKEY Target key name already exists.")
    else:
        found = False
    ttl = int64(raw_ttl)
    if ttl < 0:
        raise CommandError(b"ERR Invalid TTL value, must be >= 0")
    kind, data = _value(payload)
    expire_at = -1
    if ttl:
        expire_at = ttl if absolute else ttl + ctx.now
        # In Redis a time behind the last one that a number can hold is one in the past.
        if expire_at <= ctx.now or expire_at > INT64_MAX:
            if found:
                ctx.effects.append((DEL, ctx.db, (key,)))
            return OK
    ctx.effects.append((RESTORE, ctx.db, key, kind, data, expire_at))
    if idle is not None:
        ctx.database.keys.accessed[key] = ctx.now - 1000 * idle
    return OK


def _options(args: list[bytes]) -> tuple[bool, bool, int | None]:
    """REPLACE, ABSTTL, and the seconds of IDLETIME. FREQ is checked, and has no use here."""
    replace = absolute = False
    idle: int | None = None
    freq = False
    words = iter(args[4:])
    for word in words:
        match word.lower():
            case b"replace":
                replace = True
            case b"absttl":
                absolute = True
            case b"idletime" if not freq and (amount := next(words, None)) is not None:
                idle = int64(amount)
                if idle < 0:
                    raise CommandError(b"ERR Invalid IDLETIME value, must be >= 0")
            case b"freq" if idle is None and (amount := next(words, None)) is not None:
                if not 0 <= int64(amount) <= _FREQ_MAX:
                    raise CommandError(b"ERR Invalid FREQ value, must be >= 0 and <= 255")
                freq = True
            case _:
                raise CommandError(SYNTAX)
    return replace, absolute, idle


def _value(payload: bytes) -> tuple[int, bytes]:
    """The type and the bytes of the value in a payload, which was built once: so an effect can be applied.

    Bytes behind the value are left out: Redis does not look at them. Raises CommandError.
    """
    if not is_payload(payload):
        raise CommandError(b"ERR DUMP payload version or checksum are wrong")
    inside = value_in(payload)
    if inside is None:
        raise CommandError(_BAD_FORMAT)
    kind, data = inside
    if kind != STRING and kind not in KINDS:
        if not is_type(kind):
            raise CommandError(_BAD_FORMAT)
        raise CommandError(
            _BAD_FORMAT
            + b": the payload holds a value of the type %b; tidelog stores streams and strings"
            % type_name(kind).encode()
        )
    try:
        value, nbytes = restored(kind, data, 0)
    except RdbError:
        raise CommandError(_BAD_FORMAT) from None
    if isinstance(value, bytes) and len(value) > STRING_BYTES_MAX:
        raise CommandError(b"ERR string exceeds maximum allowed size (proto-max-bulk-len)")
    return kind, data[:nbytes]
