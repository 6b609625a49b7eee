"""MONITOR: the line that a monitor sees for each command, with secrets redacted."""

from __future__ import annotations

from tidelog.engine.api import Table
from tidelog.engine.errors import CommandError
from tidelog.server.monitoring.slowlog import redacted

# Redis's escapes in quoted strings.
_ESCAPES = {
    **{byte: b"\\x%02x" % byte for byte in range(256) if not 0x20 <= byte < 0x7F},
    **{
        ord(char): b"\\" + name
        for char, name in zip('\\"\n\r\t\a\b', (b"\\", b'"', b"n", b"r", b"t", b"a", b"b"))
    },
}


def monitor_line(table: Table, args: list[bytes], db: int, addr: str, now_us: int) -> bytes | None:
    """The line for a command in database `db` at `now_us`, unix microseconds. None for admin commands.

    addr    the client's, as `monitor_addr` formats it
    """
    try:
        command = table.resolve(args)
    except CommandError:
        return None
    if "admin" in command.flags:
        return None
    seconds, us = divmod(now_us, 1_000_000)
    shown = b" ".join([quoted(arg) for arg in redacted(args)])
    return b"%d.%06d [%d %b] %b" % (seconds, us, db, addr.encode(errors="surrogateescape"), shown)


def monitor_addr(kind: str, addr: str) -> str:
    """Format the address of a client: `kind` and `addr` of its connection."""
    return "unix:" + addr.removesuffix(":0") if kind == "unix" else addr


def quoted(raw: bytes) -> bytes:
    """Quote bytes as Redis does in its logs: in double quotes, unprintable bytes as \\xhh."""
    if raw.isalnum() and raw.isascii():
        return b'"%b"' % raw
    return b'"%b"' % b"".join([_ESCAPES.get(byte) or bytes((byte,)) for byte in raw])
