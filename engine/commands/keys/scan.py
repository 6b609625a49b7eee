"""SCAN: the keys of a database, page by page (spec 14). engine.keys.keyspace defines the order."""

from __future__ import annotations

import re

from tidelog.engine.commands.context import Context
from tidelog.engine.commands.table import command
from tidelog.engine.errors import SYNTAX, CommandError
from tidelog.engine.glob import matcher
from tidelog.engine.integers import int64, read_int64
from tidelog.engine.reply import Reply

_COUNT_DEFAULT = 10
# Matches the texts that C's strtoull accepts in full.
_CURSOR = re.compile(rb"[ \t-\r]*([+-]?)0*([0-9]{1,20})")


@command("scan", -2, "readonly", (0, 0, 0))
def scan(ctx: Context, args: list[bytes]) -> Reply:
    cursor = _cursor(args[1])
    count, pattern, wanted = _COUNT_DEFAULT, b"*", b""
    at = 2
    while at < len(args):
        word = args[at].lower()
        if at + 1 == len(args):
            raise CommandError(SYNTAX)
        value = args[at + 1]
        if word == b"count":
            count = int64(value)
            if count < 1:
                raise CommandError(SYNTAX)
        elif word == b"match":
            pattern = value
        elif word == b"type":
            wanted = value.lower()  # of an unknown type there are no keys
        else:
            raise CommandError(SYNTAX)
        at += 2

    following, keys = ctx.database.keys.scan(cursor, count)
    if pattern != b"*":
        keys = list(filter(matcher(pattern), keys))
    if ctx.database.expires.count:
        keys = [key for key in keys if not ctx.passed(key)]
    if wanted:
        is_string = ctx.database.keys.is_string
        keys = [key for key in keys if wanted == (b"string" if is_string(key) else b"stream")]
    return [b"%d" % following, keys]


def _cursor(raw: bytes) -> int:
    text = raw.partition(b"\0")[0]
    match = _CURSOR.fullmatch(text)
    value = 0 if match is None else int(match[2])
    # Redis refuses a negative number only if it is written as Redis itself would write it.
    if match is None or value >= 1 << 64 or (read_int64(text) or 0) < 0:
        raise CommandError(b"ERR invalid cursor")
    return -value % (1 << 64) if match[1] == b"-" else value
