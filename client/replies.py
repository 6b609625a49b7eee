"""Replies: a reply of the wire in the form in which the engine returns it, so that one shape fits both."""

from __future__ import annotations

from typing import Any

from tidelog.engine import ids
from tidelog.engine.api import ClaimedEntries, Entries, EntryRow, RowsPart
from tidelog.engine.reply import NULL_ARRAY, Reply

_RANGES = (b"XRANGE", b"XREVRANGE")
_READS = (b"XREAD", b"XREADGROUP")


def as_engine(words: list[bytes], reply: Reply) -> Reply:
    """The reply of the command `words`."""
    name = words[0].upper()
    if name in _RANGES:
        return NULL_ARRAY if reply is None else _entries(reply)
    if name in _READS:
        return NULL_ARRAY if reply is None else [[key, _entries(found)] for key, found in reply]
    if name == b"XCLAIM":
        return reply if _just_ids(words) else _entries(reply)
    if name == b"XAUTOCLAIM":
        return reply if _just_ids(words) else [reply[0], _entries(reply[1]), *reply[2:]]
    if name == b"XINFO" and any(word.upper() == b"FULL" for word in words[3:4]):
        full = list(reply)
        at = full.index(b"entries") + 1
        full[at] = _entries(full[at])
        return full
    return reply


def _just_ids(words: list[bytes]) -> bool:
    return any(word.upper() == b"JUSTID" for word in words[5:])


def _entries(found: list[Any]) -> Entries:
    numbers = [ids.parse(item[0]) for item in found]
    rows: list[EntryRow | None] = [None if item[1] is None else tuple(item[1]) for item in found]
    if found and len(found[0]) == 4:  # with CLAIM
        part = RowsPart(numbers, rows)
        idle, deliveries = [item[2] for item in found], [item[3] for item in found]
        return ClaimedEntries((part,), len(found), idle, deliveries)
    return Entries.of(list(zip(numbers, rows, strict=True)))
