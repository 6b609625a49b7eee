"""KEY row: a checkpoint's row of one key, msgpack [key, expire_at, kind, payload]."""

from __future__ import annotations

from typing import Any, Final

import msgpack

from tidelog.engine.errors import CorruptBlock, echo
from tidelog.engine.keys.values import RawString
from tidelog.engine.rowkeys import KIND_RAW_STRING, KIND_STREAM, KIND_STRING

NO_EXPIRY: Final = -1

# (expire_at, kind, payload). expire_at is unix ms or NO_EXPIRY, kind is a KIND_ constant, payload is the stream's
# number or the string.
KeyRow = tuple[int, int, Any]


def pack(key: bytes, expire_at: int, held: int | bytes) -> bytes:
    """The row of a key. held: its string, or the number of its stream."""
    if isinstance(held, int):
        kind = KIND_STREAM
    else:
        kind = KIND_RAW_STRING if isinstance(held, RawString) else KIND_STRING
    packed: bytes = msgpack.packb((key, expire_at, kind, held))
    return packed


def unpack(row: bytes) -> tuple[bytes, KeyRow]:
    """The key of a row, and its other fields. Raises CorruptBlock."""
    try:
        key, expire_at, kind, held = msgpack.unpackb(row, use_list=False)
    except ValueError as error:
        raise CorruptBlock(f"the row of a key cannot be read: {error}") from error
    return key, (expire_at, kind, RawString(held) if kind == KIND_RAW_STRING else held)


def unpack_of(row: bytes, key: bytes) -> KeyRow:
    """The fields of the row of this key. Raises CorruptBlock, also if the row is another key's."""
    found, said = unpack(row)
    if found != key:
        raise CorruptBlock(f"the row of key {echo(key)!r} holds key {echo(found)!r}")
    return said
