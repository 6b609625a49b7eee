"""Source: the bytes of an RDB image from front to back, and the numbers and strings in them.

    00nnnnnn                            a length up to 63
    01nnnnnn nnnnnnnn                   up to 16383
    10000000 and 4 bytes, 10000001 and 8 bytes     big-endian
    110000..                            in place of a string's length: the string is an integer of 1, 2 or 4 bytes,
                                        little-endian, or is compressed: length, length unpacked, LZF

The image is pulled in pieces. At most one piece is in memory, and the value that is read.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NoReturn

from tidelog.engine.rdb import lzf
from tidelog.engine.rdb.crc64 import crc64
from tidelog.engine.rdb.errors import RdbCut, RdbDamaged

ID_BYTES: Final = 16
STRING_BYTES_MAX: Final = 1 << 30  # Redis itself refuses longer entries
_SIGNED = Struct("<q").unpack
_PAIR = Struct(">QQ").unpack
_INTEGERS: Final = {0: 1, 1: 2, 2: 4}  # special encoding -> bytes
_LZF: Final = 3
_SKIP_BYTES: Final = 1 << 20


class Source:
    """Bytes that are read once.

    pull   returns the next piece, b"" after the last
    size   number of all bytes, if known: a length that goes beyond it is refused before anything is read
    """

    __slots__ = ("_pull", "_size", "_buffer", "_at", "_base", "_crc", "_summed")

    def __init__(self, pull: Callable[[], bytes], size: int | None = None) -> None:
        self._pull = pull
        self._size = size
        self._buffer = b""
        self._at = 0  # of the next byte, in the buffer
        self._base = 0  # offset of the buffer's first byte
        self._crc = 0  # of all bytes before `_summed`
        self._summed = 0  # in the buffer

    @classmethod
    def of(cls, data: bytes) -> Source:
        """A source of bytes in memory."""
        pieces = iter((data,))
        return cls(lambda: next(pieces, b""), len(data))

    @property
    def offset(self) -> int:
        """The offset of the next byte."""
        return self._base + self._at

    def damaged(self, reason: str, offset: int | None = None) -> NoReturn:
        """Raise RdbDamaged, by default at the next byte."""
        raise RdbDamaged(self.offset if offset is None else offset, reason)

    # --- bytes

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises RdbCut."""
        at = self._at
        end = at + count
        if end <= len(self._buffer):
            self._at = end
            return self._buffer[at:end]
        self._fits(count)
        parts = []
        left = count
        while True:
            part = self._buffer[self._at : self._at + left]
            parts.append(part)
            left -= len(part)
            self._at += len(part)
            if not left:
                return b"".join(parts)
            self._next_piece(left)

    def skip(self, count: int) -> None:
        """Step over the next `count` bytes. Raises RdbCut."""
        self._fits(count)
        while count:
            step = min(count, len(self._buffer) - self._at)
            self._at += step
            count -= step
            if count:
                self._next_piece(count)

    def at_end(self) -> bool:
        """Whether there is no further byte."""
        if self._at < len(self._buffer):
            return False
        return not self._refill()

    def window(self) -> tuple[bytes, int]:
        """The bytes in memory and the place of the next one in them, for a caller that reads many numbers."""
        return self._buffer, self._at

    def advance(self, at: int) -> None:
        """Go on at this place of the window."""
        self._at = at

    def checksum(self) -> int:
        """CRC-64 of all bytes before the next one."""
        self._sum()
        return self._crc

    def _sum(self) -> None:
        self._crc = crc64(self._buffer[self._summed : self._at], self._crc)
        self._summed = self._at

    def _fits(self, count: int) -> None:
        if self._size is not None and self.offset + count > self._size:
            raise RdbCut(
                self.offset,
                f"{count} bytes should follow, but the data ends after {self._size - self.offset}",
            )

    def _next_piece(self, missing: int) -> None:
        if not self._refill():
            raise RdbCut(self.offset, f"the data ends here, but {missing} bytes more should follow")

    def _refill(self) -> bool:
        self._sum()
        piece = self._pull()
        self._base += len(self._buffer)
        self._buffer = piece
        self._at = self._summed = 0
        return bool(piece)

    # --- numbers

    def byte(self) -> int:
        """The next byte."""
        at = self._at
        if at < len(self._buffer):
            self._at = at + 1
            return self._buffer[at]
        return self.take(1)[0]

    def length(self) -> int:
        """A length, 0 to 2**64 - 1. Raises RdbDamaged where a string's special encoding stands."""
        first = self.byte()
        if first < 0x40:
            return first
        if first < 0x80:
            return (first & 0x3F) << 8 | self.byte()
        if first == 0x80:
            return int.from_bytes(self.take(4), "big")
        if first == 0x81:
            return int.from_bytes(self.take(8), "big")
        self.damaged(f"a length begins with the byte {first:02x}", self.offset - 1)

    def signed(self) -> int:
        """A length that stands for a signed 64-bit number."""
        value = self.length()
        return value - (1 << 64) if value >> 63 else value

    def time(self) -> int:
        """Eight bytes: unix ms."""
        value: int = _SIGNED(self.take(8))[0]
        return value

    def id(self) -> int:
        """An entry ID as two lengths."""
        ms = self.length()
        return ms << 64 | self.length()

    def raw_id(self) -> int:
        """An entry ID as 16 bytes."""
        ms, seq = _PAIR(self.take(ID_BYTES))
        return int(ms << 64 | seq)

    # --- strings

    def string(self) -> bytes:
        """A string."""
        start = self.offset
        first = self.byte()
        if first < 0x40:
            return self.take(first)
        if first < 0xC0:
            self._at -= 1
            return self.take(self._string_length())
        nbytes = _INTEGERS.get(first & 0x3F)
        if nbytes is not None:
            return b"%d" % int.from_bytes(self.take(nbytes), "little", signed=True)
        if first & 0x3F != _LZF:
            self.damaged(f"a string begins with the byte {first:02x}", start)
        packed, unpacked = self._string_length(), self._string_length()
        if unpacked > packed * lzf.GROWTH_MAX:
            self.damaged(f"{packed} compressed bytes cannot stand for {unpacked}", start)
        data = self.take(packed)
        try:
            return lzf.decompress(data, unpacked)
        except ValueError as error:
            self.damaged(str(error), start)

    def skip_string(self) -> int:
        """Step over a string. Return the number of its bytes, unpacked."""
        start = self.offset
        first = self.byte()
        if first < 0xC0:
            self._at -= 1
            length = self.length()
            self.skip(length)
            return length
        nbytes = _INTEGERS.get(first & 0x3F)
        if nbytes is not None:
            self.skip(nbytes)
            return nbytes
        if first & 0x3F != _LZF:
            self.damaged(f"a string begins with the byte {first:02x}", start)
        packed, unpacked = self.length(), self.length()
        self.skip(packed)
        return unpacked

    def _string_length(self) -> int:
        length = self.length()
        if length > STRING_BYTES_MAX:
            self.damaged(f"a string of {length} bytes is longer than Redis can store")
        return length
