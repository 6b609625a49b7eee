"""RDB images as a whole: the header, what stands between the keys, the keys, and the checksum at the end.

    REDIS and four digits, the version | parts | ff | CRC-64 of everything before, little-endian (0: none)

    f3 metadata of modules for the next key     f8 idle time of the next key (length)
    f4 sizes of a slot (three lengths)          f9 frequency of the next key (byte)
    f5 a library of functions (string)          fa a fact about the file (two strings)
    f7 data of a module                         fb sizes of the database (two lengths)
    fc expiry of the next key, ms (8 bytes)     fd the same in seconds (4 bytes)
    fe the number of the database of the next keys (length)
    any other: the type of a key, its name (string), and its value

A payload of DUMP is a type and a value, then the version (2 bytes) and the CRC-64 of all before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.errors import RdbDamaged, RdbUnknown
from tidelog.engine.rdb.skip import skip_module
from tidelog.engine.rdb.source import Source

MAGIC: Final = b"REDIS"
HEADER_BYTES: Final = 9
VERSION_MIN: Final = 6
VERSION_MAX: Final = 15
DATABASES_MAX: Final = 1 << 16
NO_EXPIRY: Final = -1

KEY_META: Final = 0xF3
SLOT_INFO: Final = 0xF4
FUNCTION: Final = 0xF5
FUNCTION_CANDIDATE: Final = 0xF6
MODULE_AUX: Final = 0xF7
IDLE: Final = 0xF8
FREQUENCY: Final = 0xF9
AUX: Final = 0xFA
RESIZE: Final = 0xFB
EXPIRE_MS: Final = 0xFC
EXPIRE_S: Final = 0xFD
SELECT: Final = 0xFE
END: Final = 0xFF
_OPCODES_FROM: Final = 0xF0
_FOOTER_BYTES: Final = 10
_SPEC_BYTES: Final = 4  # of a class of metadata


class Key(NamedTuple):
    """A key in front of its value. `expire_at` is unix ms, or NO_EXPIRY; `offset` is that of its type."""

    db: int
    kind: int
    name: bytes
    expire_at: int
    offset: int


class RdbFile:
    """An RDB image, read key by key.

    version   of the format
    aux       the facts about the file: redis-ver, ctime, used-mem, aof-base, ...
    skipped   things beside keys that tidelog has no place for -> how many
    """

    def __init__(self, source: Source) -> None:
        """Read the header. Raises RdbDamaged, RdbUnknown."""
        self.source = source
        self.aux: dict[bytes, bytes] = {}
        self.skipped: dict[str, int] = {}
        header = source.take(HEADER_BYTES)
        if header[:5] != MAGIC or not header[5:].isdigit():
            raise RdbDamaged(
                0, f"an RDB file begins with REDIS and four digits, not with {header!r}"
            )
        self.version = int(header[5:])
        check_version(self.version, 5)

    def keys(self) -> Iterator[Key]:
        """Each key. The caller reads or skips its value before it asks for the next. Raises RdbError."""
        source = self.source
        db = 0
        expire_at = NO_EXPIRY
        while True:
            at = source.offset
            code = source.byte()
            if code < _OPCODES_FROM:
                yield Key(db, code, source.string(), expire_at, at)
                expire_at = NO_EXPIRY
            elif code == EXPIRE_MS:
                expire_at = max(source.time(), 0)
            elif code == EXPIRE_S:
                expire_at = int.from_bytes(source.take(4), "little") * 1000
            elif code == SELECT:
                db = source.length()
                if db >= DATABASES_MAX:
                    source.damaged(f"the image has a database {db}", at)
            elif code == END:
                self._check_sum()
                return
            else:
                self._between(code, at)

    def _between(self, code: int, at: int) -> None:
        source = self.source
        if code == AUX:
            name = source.string()
            self.aux[name] = source.string()
        elif code == RESIZE:
            source.length()
            source.length()
        elif code == IDLE:
            source.length()
        elif code == FREQUENCY:
            source.byte()
        elif code == SLOT_INFO:
            for _ in range(3):
                source.length()
        elif code == FUNCTION:
            source.skip_string()
            self._skip("functions")
        elif code == MODULE_AUX:
            source.length()
            skip_module(source)
            self._skip("data of modules")
        elif code == KEY_META:
            for _ in range(source.length()):
                source.skip(_SPEC_BYTES)
                skip_module(source)
            self._skip("metadata of modules")
        else:
            raise RdbUnknown(at, f"the code {code:02x} is not known; a newer Redis wrote this file")

    def _skip(self, thing: str) -> None:
        self.skipped[thing] = self.skipped.get(thing, 0) + 1

    def _check_sum(self) -> None:
        source = self.source
        found = source.checksum()
        at = source.offset
        stated = int.from_bytes(source.take(8), "little")
        if stated and stated != found:
            raise RdbDamaged(
                at, f"the checksum is {stated:016x}, but the bytes before have {found:016x}"
            )


def check_version(version: int, offset: int) -> None:
    """Raise RdbUnknown for a version of the format that this codec does not read."""
    if not VERSION_MIN <= version <= VERSION_MAX:
        raise RdbUnknown(
            offset,
            f"the format has version {version}; this version of tidelog reads {VERSION_MIN} to {VERSION_MAX}",
        )


def payload_of(kind: int, data: bytes, version: int) -> bytes:
    """The payload of DUMP for the bytes of a value, in this version of the format."""
    body = bytes((kind,)) + data + version.to_bytes(2, "little")
    return body + crc64(body).to_bytes(8, "little")


def is_payload(payload: bytes) -> bool:
    """Whether RESTORE takes a payload: its version is not above ours, and its checksum is right, never left out.

    As in Redis, any older version will do: it is the type that says how the value is laid out.
    """
    end = len(payload) - _FOOTER_BYTES
    if end < 0 or int.from_bytes(payload[end : end + 2], "little") > VERSION_MAX:
        return False
    return crc64(payload[:-8]) == int.from_bytes(payload[-8:], "little")


def value_in(payload: bytes) -> tuple[int, bytes] | None:
    """The type of the value in a payload of DUMP, and its bytes; None if the payload has no type."""
    return (payload[0], payload[1:-_FOOTER_BYTES]) if len(payload) > _FOOTER_BYTES else None


def dumped(payload: bytes) -> tuple[int, Source]:
    """The type and the value of a payload of DUMP. Raises RdbDamaged, RdbUnknown."""
    end = len(payload) - _FOOTER_BYTES
    if end < 1:
        raise RdbDamaged(0, f"a payload of {len(payload)} bytes is too short")
    stated = int.from_bytes(payload[-8:], "little")
    found = crc64(payload[:-8])
    if stated and stated != found:
        raise RdbDamaged(
            end + 2, f"the checksum is {stated:016x}, but the bytes before have {found:016x}"
        )
    check_version(int.from_bytes(payload[end : end + 2], "little"), end)
    return payload[0], Source.of(payload[1:end])
