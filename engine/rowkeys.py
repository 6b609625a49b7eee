"""Row keys: the key of each row in a checkpoint. All numbers are big-endian, so that byte order is numeric order.

    META    "!"                                       one row
    KEY     "k" table u32, hash 24 B                  a key's value and expiry
    EXPIRY  "e" table u32, ms u64, hash 24 B          the key
    STREAM  "s" number u64                            a stream without its stored nodes and its groups
    PAGE    "p" number u64, first ID 16 B             the nodes of a page: IDs, sizes, deleted slots
    DATA    "d" number u64, first ID 16 B             the sealed blocks of that page
    GROUP   "g" number u64, group u32                 a group without its pending entries
    CHUNK   "c" number u64, group u32, serial u64     a chunk of pending entries

A row's key is limited in length and a user's key is not, so the row's key has a hash of it. The hash begins with the
eight bytes of `engine.keyspace.place`, so that rows of cold keys lie in SCAN's order. The other 16 bytes make
collisions infeasible.
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

# One operation on rows; a checkpoint runs operations in order. "rest" changes nothing. It says that the next operation
# takes milliseconds to compute, so a caller should let other threads run first.
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
KIND_STREAM: Final = 0  # kinds of KEY rows; the payload of a KIND_STREAM row is the stream's number
KIND_STRING: Final = 1
KIND_RAW_STRING: Final = 2  # a string that APPEND has changed

_TABLE = Struct(">cI").pack
_NUMBER = Struct(">cQ").pack
_MOMENT = Struct(">cIQ").pack
_GROUP = Struct(">cQI").pack
_CHUNK = Struct(">cQIQ").pack
_MS_AT = 5  # offset of ms in the key of an EXPIRY row
_FIRST_AT = 9  # offset of the first ID in the key of a PAGE or DATA row


def place_hash(key: bytes) -> bytes:
    """The part of a key's hash that determines SCAN's order: PLACE_BYTES bytes."""
    return blake2b(key, digest_size=PLACE_BYTES).digest()


def key_hash(key: bytes) -> bytes:
    """The hash of a key for a row's key: HASH_BYTES bytes."""
    return place_hash(key) + blake2b(key, digest_size=HASH_BYTES - PLACE_BYTES).digest()


def key_row(table: int, key: bytes) -> bytes:
    """The KEY row of a key."""
    return _TABLE(KEY, table) + key_hash(key)


def key_prefix(table: int) -> bytes:
    """Prefix of the KEY rows of a table."""
    return _TABLE(KEY, table)


def expiry_row(table: int, ms: int, key: bytes) -> bytes:
    """The EXPIRY row of a key that expires at `ms`, unix ms >= 0."""
    return _MOMENT(EXPIRY, table, ms) + key_hash(key)


def expiry_prefix(table: int) -> bytes:
    """Prefix of the EXPIRY rows of a table, which are sorted by time."""
    return _TABLE(EXPIRY, table)


def expiry_ms(row: bytes) -> int:
    """The time in the key of an EXPIRY row, unix ms."""
    return int.from_bytes(row[_MS_AT : _MS_AT + 8], "big")


def stream_row(number: int) -> bytes:
    """The STREAM row of a stream."""
    return _NUMBER(STREAM, number)


def page_row(number: int, first: int) -> bytes:
    """The PAGE row of the page whose first slot has this ID."""
    return _NUMBER(PAGE, number) + first.to_bytes(16, "big")


def page_first(row: bytes) -> int:
    """The first ID in the key of a PAGE or DATA row."""
    return int.from_bytes(row[_FIRST_AT:], "big")


def page_prefix(number: int) -> bytes:
    """Prefix of the PAGE rows of a stream, which are sorted by first ID."""
    return _NUMBER(PAGE, number)


def data_row(number: int, first: int) -> bytes:
    """The DATA row of the page whose first slot has this ID."""
    return _NUMBER(DATA, number) + first.to_bytes(16, "big")


def data_prefix(number: int) -> bytes:
    """Prefix of the DATA rows of a stream."""
    return _NUMBER(DATA, number)


def group_row(number: int, group: int) -> bytes:
    """The GROUP row of a group."""
    return _GROUP(GROUP, number, group)


def group_prefix(number: int) -> bytes:
    """Prefix of the GROUP rows of a stream."""
    return _NUMBER(GROUP, number)


def chunk_row(number: int, group: int, serial: int) -> bytes:
    """The CHUNK row of a chunk."""
    return _CHUNK(CHUNK, number, group, serial)


def chunk_prefix(number: int, group: int) -> bytes:
    """Prefix of the CHUNK rows of a group."""
    return _GROUP(CHUNK, number, group)


def stream_prefixes(number: int) -> tuple[bytes, ...]:
    """The prefixes of all rows of a stream, for their deletion."""
    return tuple(_NUMBER(kind, number) for kind in (STREAM, PAGE, DATA, GROUP, CHUNK))
