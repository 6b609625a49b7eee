"""Row keys: under which key a checkpoint keeps each row. All numbers big-endian, so that byte order is their order.

    META    "!"                                       one row
    KEY     "k" table u32, hash 24 B                  what a key holds, and when it expires
    EXPIRY  "e" table u32, ms u64, hash 24 B          the key
    STREAM  "s" number u64                            a stream, all but its stored nodes and its groups
    PAGE    "p" number u64, first ID 16 B             the nodes of a page: where, how many, deleted
    DATA    "d" number u64, first ID 16 B             the sealed blocks of that page
    GROUP   "g" number u64, group u32                 a group, all but its pending entries
    CHUNK   "c" number u64, group u32, serial u64     a chunk of pending entries

Keys are longer than a row's key may be, so a hash of them stands there. It begins with the eight bytes that
`engine.keyspace.place` is made of: rows of cold keys lie in the order of SCAN. The other 16 make it one that nobody
finds a second key for.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Final, Literal

META: Final = b"!"
KEY: Final = b"k"
EXPIRY: Final = b"e"
STREAM: Final = b"s"
PAGE: Final = b"p"
DATA: Final = b"d"
GROUP: Final = b"g"
CHUNK: Final = b"c"

# What becomes of rows, in this order. "rest" changes nothing: what comes next takes milliseconds to make, and whoever
# has to share the interpreter had better do so before.
Operation = (
    tuple[Literal["put"], bytes, bytes]
    | tuple[Literal["delete"], bytes]
    | tuple[Literal["delete_prefix"], bytes]
    | tuple[Literal["delete_range"], bytes, bytes]
    | tuple[Literal["rest"]]
)
REST: Final[Operation] = ("rest",)

PLACE_BYTES: Final = 8
HASH_BYTES: Final = 24
KIND_STREAM: Final = 0  # of a KEY row: its payload is the stream's number
KIND_STRING: Final = 1
KIND_RAW_STRING: Final = 2  # one that APPEND has grown

_TABLE = Struct(">cI").pack
_NUMBER = Struct(">cQ").pack
_MOMENT = Struct(">cIQ").pack
_GROUP = Struct(">cQI").pack
_CHUNK = Struct(">cQIQ").pack
_MS_AT = 5  # of an EXPIRY row's key
_FIRST_AT = 9  # of a PAGE or DATA row's key


def place_hash(key: bytes) -> bytes:
    """The bytes of a key's hash that SCAN goes by."""
    return blake2b(key, digest_size=PLACE_BYTES).digest()


def key_hash(key: bytes) -> bytes:
    """What stands for a key in the key of a row."""
    return place_hash(key) + blake2b(key, digest_size=HASH_BYTES - PLACE_BYTES).digest()


def key_row(table: int, key: bytes) -> bytes:
    """KEY row of a key."""
    return _TABLE(KEY, table) + key_hash(key)


def key_prefix(table: int) -> bytes:
    """KEY rows of a table."""
    return _TABLE(KEY, table)


def expiry_row(table: int, ms: int, key: bytes) -> bytes:
    """EXPIRY row of a key that expires at `ms`, 0 or later."""
    return _MOMENT(EXPIRY, table, ms) + key_hash(key)


def expiry_prefix(table: int) -> bytes:
    """EXPIRY rows of a table, earliest first."""
    return _TABLE(EXPIRY, table)


def expiry_ms(row: bytes) -> int:
    """The moment in the key of an EXPIRY row."""
    return int.from_bytes(row[_MS_AT : _MS_AT + 8], "big")


def stream_row(number: int) -> bytes:
    """STREAM row."""
    return _NUMBER(STREAM, number)


def page_row(number: int, first: int) -> bytes:
    """PAGE row of the page whose first slot has this ID."""
    return _NUMBER(PAGE, number) + first.to_bytes(16, "big")


def page_first(row: bytes) -> int:
    """The first ID in the key of a PAGE or DATA row."""
    return int.from_bytes(row[_FIRST_AT:], "big")


def page_prefix(number: int) -> bytes:
    """PAGE rows of a stream, in the order of their first IDs."""
    return _NUMBER(PAGE, number)


def data_row(number: int, first: int) -> bytes:
    """DATA row of the page whose first slot has this ID."""
    return _NUMBER(DATA, number) + first.to_bytes(16, "big")


def data_prefix(number: int) -> bytes:
    """DATA rows of a stream."""
    return _NUMBER(DATA, number)


def group_row(number: int, group: int) -> bytes:
    """GROUP row."""
    return _GROUP(GROUP, number, group)


def group_prefix(number: int) -> bytes:
    """GROUP rows of a stream."""
    return _NUMBER(GROUP, number)


def chunk_row(number: int, group: int, serial: int) -> bytes:
    """CHUNK row."""
    return _CHUNK(CHUNK, number, group, serial)


def chunk_prefix(number: int, group: int) -> bytes:
    """CHUNK rows of a group."""
    return _GROUP(CHUNK, number, group)


def stream_prefixes(number: int) -> tuple[bytes, ...]:
    """What begins the rows of a stream, each: all of them go when it ends."""
    return tuple(_NUMBER(kind, number) for kind in (STREAM, PAGE, DATA, GROUP, CHUNK))
