"""The slow log: the latest slow commands, in memory. Also redacts secret arguments for all logs.

Entries are truncated as in Redis: 32 arguments, 128 bytes of each (spec 16.2; Redis 7.0, slowlog.c). Of a
transaction, its commands are logged, and its EXEC is not.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final, NamedTuple

SLOWER_THAN_US: Final = 10_000
ENTRIES_MAX: Final = 128
ARGUMENTS_MAX: Final = 32
ARGUMENT_BYTES_MAX: Final = 128
REDACTED: Final = b"(redacted)"

# Options whose value in a CONFIG SET is a secret.
_SECRETS = frozenset((b"requirepass", b"masterauth", b"masteruser", b"tls-key-file-pass"))
# Commands that may contain secrets.
_WITH_SECRETS = frozenset((b"auth", b"hello", b"acl", b"config"))


class Slow(NamedTuple):
    """One entry: unique number, unix seconds, microseconds, truncated arguments, client address and name."""

    id: int
    time: int
    us: int
    args: list[bytes]
    addr: bytes
    name: bytes


class SlowLog:
    """The ring buffer. Commands that take `slower_than_us` or longer are kept; 0 = all, -1 = none."""

    __slots__ = ("slower_than_us", "_entries", "_next")

    def __init__(self) -> None:
        self.slower_than_us = SLOWER_THAN_US
        self._entries: deque[Slow] = deque(maxlen=ENTRIES_MAX)
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def set_max(self, entries_max: int) -> None:
        """Keep only the latest `entries_max` entries."""
        self._entries = deque(self._entries, entries_max)

    def add(self, args: list[bytes], ns: int, addr: str, name: bytes) -> None:
        """Add a command that took `ns` nanoseconds, if it was slow enough. addr, name: the client's."""
        us = ns // 1000
        if not 0 <= self.slower_than_us <= us:
            return
        shown = cut(redacted(args))
        self._entries.append(
            Slow(
                self._next, int(time.time()), us, shown, addr.encode(errors="surrogateescape"), name
            )
        )
        self._next += 1

    def latest(self, count: int) -> list[Slow]:
        """Return at most `count` entries, newest first."""
        return [entry for entry, _ in zip(reversed(self._entries), range(count), strict=False)]

    def clear(self) -> None:
        """Remove all entries. Numbering goes on."""
        self._entries.clear()


def cut(args: list[bytes]) -> list[bytes]:
    """Truncate a command's arguments for an entry."""
    kept = args
    if len(args) > ARGUMENTS_MAX:
        kept = args[: ARGUMENTS_MAX - 1]
    short = [
        arg
        if len(arg) <= ARGUMENT_BYTES_MAX
        else b"%b... (%d more bytes)" % (arg[:ARGUMENT_BYTES_MAX], len(arg) - ARGUMENT_BYTES_MAX)
        for arg in kept
    ]
    if kept is not args:
        short.append(b"... (%d more arguments)" % (len(args) - len(kept)))
    return short


def redacted(args: list[bytes]) -> list[bytes]:
    """Redact secrets for logs and MONITOR: passwords in AUTH, HELLO, ACL SETUSER and CONFIG SET."""
    name = args[0].lower()
    if name not in _WITH_SECRETS or len(args) < 2:
        return args
    shown = list(args)
    sub = args[1].lower()
    if name == b"auth":
        shown[1:] = [REDACTED] * (len(args) - 1)
    elif name == b"hello":
        at = 2
        while at < len(args):
            option = args[at].lower()
            if option == b"auth":
                shown[at + 1 : at + 3] = [REDACTED] * len(args[at + 1 : at + 3])
            at += {b"auth": 3, b"setname": 2}.get(option, 1)
    elif name == b"acl" and sub == b"setuser":
        shown[2:] = [REDACTED] * (len(args) - 2)
    elif name == b"config" and sub == b"set":
        for at in range(2, len(args) - 1, 2):
            if args[at].lower() in _SECRETS:
                shown[at + 1] = REDACTED
    return shown
