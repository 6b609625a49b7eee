"""Replies: parses RESP2 replies, as a client receives them.

Bulk strings become bytes, integers int, nulls None and arrays lists. The caller says what becomes of simple strings and
of errors, since they are types of its own room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

UNFINISHED: Final = object()  # the reply has not arrived as a whole
DEPTH_MAX: Final = 16  # levels of nested arrays; no command has more than 6
_ARRAY: Final = object()  # an array has begun
_COMPACT_BYTES: Final = 1 << 16  # from this number on, parsed bytes are dropped from the buffer


class Malformed(Exception):
    """The bytes are no RESP2 reply, so the peer is no Redis server. The connection cannot be used any more."""


class Replies:
    """The replies of one connection: `feed` takes bytes as they come, `take` returns the next reply.

    simple    makes the value of a simple string
    error     makes that of an error, of its line without the `-`
    """

    def __init__(self, simple: Callable[[bytes], Any], error: Callable[[bytes], Any]) -> None:
        self._simple, self._error = simple, error
        self._data = bytearray()
        self._at = 0
        # Arrays that have begun, the outer ones first, and their lengths. They are kept when more bytes are needed: to
        # begin a long reply again with each of its parts takes the square of the time.
        self._open: list[tuple[list[Any], int]] = []

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        if self._at == len(self._data):
            self._data[:] = data
            self._at = 0
            return
        if self._at > _COMPACT_BYTES:
            del self._data[: self._at]
            self._at = 0
        self._data += data

    def take(self) -> Any:
        """The next reply, or UNFINISHED. Raises Malformed."""
        unfinished = self._open
        size = len(self._data)
        while self._at < size:
            item = self._item()
            if item is UNFINISHED:
                return UNFINISHED
            if item is _ARRAY:
                continue
            while unfinished:
                items, count = unfinished[-1]
                items.append(item)
                if len(items) < count:
                    break
                unfinished.pop()
                item = items
            else:
                return item
        return UNFINISHED

    def _item(self) -> Any:
        """The next item, _ARRAY if an array begins, or UNFINISHED: the next call begins with it again."""
        data, at = self._data, self._at
        line_end = data.find(b"\r\n", at)
        if line_end < 0:
            return UNFINISHED
        kind, line, end = data[at], bytes(data[at + 1 : line_end]), line_end + 2
        if kind == 0x24:  # $
            size = _number(line)
            if size < 0:
                self._at = end
                return None
            if len(data) < end + size + 2:
                return UNFINISHED
            self._at = end + size + 2
            return bytes(data[end : end + size])
        self._at = end
        if kind == 0x3A:  # :
            return _number(line)
        if kind == 0x2B:  # +
            return self._simple(line)
        if kind == 0x2D:  # -
            return self._error(line)
        if kind == 0x2A:  # *
            count = _number(line)
            if count <= 0:
                return None if count else []
            if len(self._open) == DEPTH_MAX:
                raise Malformed("arrays are nested too deeply")
            self._open.append(([], count))
            return _ARRAY
        raise Malformed(f"a reply cannot begin with byte {kind:#04x}")


def parse(data: bytes, simple: Callable[[bytes], Any], error: Callable[[bytes], Any]) -> Any:
    """The one reply that `data` holds. Raises Malformed."""
    replies = Replies(simple, error)
    replies.feed(data)
    reply = replies.take()
    if reply is UNFINISHED:
        raise Malformed("the reply is cut off")
    return reply


def _number(line: bytes) -> int:
    try:
        return int(line)
    except ValueError:
        raise Malformed(f"{line[:40]!r} is no number") from None
