"""Replies: the results of decide, before a face (the server, the Python client) renders them.

A reply is one of

    None          null bulk                      int          integer
    NULL_ARRAY    null array                     bytes        bulk string (IDs too, as `ms-seq` text)
    Status        simple string (`OK`)           list         array of replies
    Map           map: a flat list k, v, k, v    Entries      a run of stream entries (engine.streams.entries)
    Streams       list of [key, Entries]: array of pairs in RESP2, map in RESP3
    Park          nothing to return yet: wait for one of these keys, then decide again

A face converts a reply to its own form: RESP bytes, or redis-py's Python types (spec 1).
"""

from __future__ import annotations

from typing import Any, Final


class Status(bytes):
    """A simple string, such as `OK`."""

    __slots__ = ()


class NullArray:
    """The null array (`*-1` in RESP2). `NULL_ARRAY` is its only instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL_ARRAY"


class Map(list[Any]):
    """A map, as the flat list `k1, v1, k2, v2`: an array in RESP2, a map in RESP3."""

    __slots__ = ()


class Streams(list[Any]):
    """The reply of XREAD and XREADGROUP: a list of `[key, Entries]` pairs; in RESP3 a map from key to entries."""

    __slots__ = ()


Reader = tuple[bytes, bytes, int | None]  # see `Park`


class Park:
    """A blocking read found nothing. Park the caller on `keys`, and decide `args` again when one of them is signalled.

    keys        (database, key) pairs, in argument order, without duplicates
    args        the command to decide again, with every `$` replaced by the ID it meant (spec 10.1)
    timeout_ms  0 = wait for ever
    claim_at    unix ms at which a pending entry becomes claimable (XREADGROUP CLAIM, spec 10.4), or None
    ask_at      when to decide again without a signal, on the store's own clock, or None
    reader      (group, consumer, count) if the call waits only for new entries of its one key; else None.
                count: 0 = any number, None = see `args`
    """

    __slots__ = ("keys", "args", "timeout_ms", "claim_at", "ask_at", "reader")

    def __init__(
        self,
        keys: list[tuple[int, bytes]],
        args: list[bytes],
        timeout_ms: int,
        claim_at: int | None,
        ask_at: float | None = None,
        reader: Reader | None = None,
    ) -> None:
        self.keys, self.args, self.timeout_ms, self.claim_at = keys, args, timeout_ms, claim_at
        self.ask_at, self.reader = ask_at, reader


OK: Final = Status(b"OK")
QUEUED: Final = Status(b"QUEUED")
NULL_ARRAY: Final = NullArray()


def status(line: bytes) -> Status:
    """A simple string that a server sent. Most are OK, which exists once."""
    return OK if line == b"OK" else Status(line)


Reply = Any
