"""Replies: what decide answers, before any face renders it.

A reply is one of

    None          null bulk                      int          integer
    NULL_ARRAY    null array                     bytes        bulk string (IDs too, as `ms-seq` text)
    Status        simple string (`OK`)           list         array of replies
    Map           map: a flat list k, v, k, v    Entries      a run of stream entries (engine.entries)
    Streams       list of [key, Entries]: array of pairs in RESP2, map in RESP3
    Park          nothing to serve: wait for one of these keys, then decide again

A face turns it into its own form: RESP bytes, redis-py's Python shapes. Source: spec 1.
"""

from __future__ import annotations

from typing import Any, Final


class Status(bytes):
    """A simple string, such as `OK`."""

    __slots__ = ()


class NullArray:
    """The null array (`*-1` in RESP2). There is one: `NULL_ARRAY`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "NULL_ARRAY"


class Map(list[Any]):
    """A map, as the flat list `k1, v1, k2, v2`: an array in RESP2, a map in RESP3."""

    __slots__ = ()


class Streams(list[Any]):
    """The reply of XREAD and XREADGROUP: `[key, Entries]` pairs; in RESP3 a map from key to entries."""

    __slots__ = ()


Reader = tuple[bytes, bytes, int | None]  # see `Park`


class Park:
    """A blocking read found nothing. Park the caller on `keys` and decide `args` again when one is signalled.

    keys        (database, key) pairs, in argument order, each once
    args        the command to decide again, with every `$` replaced by the ID it meant (spec 10.1)
    timeout_ms  0 = wait for ever
    claim_at    unix ms at which a pending entry becomes claimable (XREADGROUP CLAIM, spec 10.4), or None
    ask_at      when to decide again unasked, on the clock of whoever parks it, or None
    reader      who waits for nothing but new messages of the only key, or None: (group, consumer, at most so many, 0 =
                any number, None = `args` say it)
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

Reply = Any
