"""Describe a row in words, from its key alone: for errors and findings."""

from __future__ import annotations

from tidelog.engine import ids, rowkeys


def row_name(key: bytes) -> str:
    """The row with this key in words, such as "stream 7, page of nodes from 12-0"."""
    kind, rest = key[:1], key[1:]
    number = int.from_bytes(rest[:8], "big")
    if kind == rowkeys.META and not rest:
        return "the row that describes the checkpoint"
    if kind == rowkeys.KEY and len(rest) == 28:
        return f"table {int.from_bytes(rest[:4], 'big')}, the key with the hash {rest[4:].hex()}"
    if kind == rowkeys.EXPIRY and len(rest) == 36:
        table, ms = int.from_bytes(rest[:4], "big"), int.from_bytes(rest[4:12], "big")
        return f"table {table}, the key that expires at {ms} with the hash {rest[12:].hex()}"
    if kind == rowkeys.STREAM and len(rest) == 8:
        return f"stream {number}"
    if kind in (rowkeys.PAGE, rowkeys.DATA) and len(rest) == 24:
        first = ids.text(int.from_bytes(rest[8:], "big")).decode()
        what = "page of nodes" if kind == rowkeys.PAGE else "entries of the page"
        return f"stream {number}, {what} from {first}"
    if kind == rowkeys.GROUP and len(rest) == 12:
        return f"stream {number}, group {int.from_bytes(rest[8:], 'big')}"
    if kind == rowkeys.CHUNK and len(rest) == 20:
        group, serial = int.from_bytes(rest[8:12], "big"), int.from_bytes(rest[12:], "big")
        return f"stream {number}, group {group}, chunk {serial} of pending entries"
    return f"the row {key.hex()}"
