"""Requests: parses a client's bytes into commands. No I/O; one `Requests` per connection.

A request is an array of bulk strings, or an inline command: a line of words that may be quoted. Which input is refused,
with which message and at which byte, is as in Redis (7.0, networking.c; spec 16.1), including its oddities:

    the two bytes after a bulk string, and the one after the `\\r` of a header, are skipped without a check
    a NUL byte hides the end of its line: the parser waits for more until the line is too long
    a count of 0 or less is an empty request, and so is an empty line: neither yields a command

One difference from Redis: the result never depends on how the bytes were split into reads, so a line that is too long
is refused even if it arrives whole.

A consumer sends the same read again and again, alone or after an acknowledgement. After `expect`, when the input ends
with the bytes of that read, only the bytes before them are parsed, and the stored argument list is returned.

`_plain` parses ordinary input, whole commands of short arguments without line ends, at the speed of C: it splits the
bytes at all line ends and compares each piece's length with the header before it. All other input goes argument by
argument through `_parse`. Per XADD of 7 arguments, in reads of 1, 16 and 100 of them: `_plain` takes 1.6, 0.9 and
0.9 us, `_parse` 4. hiredis, a parser of replies, takes 1.7, 0.7 and 0.6 once the results are checked for what a reply
may be and a request may not (other types, nested arrays, a preallocated list of the announced length): too small a gain
for a second grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from tidelog.engine.api import SERIES
from tidelog.server.wire.inline import split_words

# Without the colon, because a queue of this name would have series for its other keys (server/reserved.py).
MARK: Final = SERIES[:-1]
LINE_BYTES_MAX: Final = 64 << 10
UNAUTHENTICATED_ARGUMENTS_MAX: Final = 10
UNAUTHENTICATED_BULK_BYTES_MAX: Final = 16 << 10

# Tables for `_plain`. _PIECES maps `*n` to the number of pieces between line ends of a command with n arguments.
# _HEADERS has `$n` at index n.
_PLAIN_ARGUMENTS_MAX: Final = 1023
_PIECES: Final = {b"*%d" % n: 2 * n + 1 for n in range(1, _PLAIN_ARGUMENTS_MAX + 1)}
_HEADERS: Final = [b"$%d" % n for n in range(1024)]
_LENGTHS: Final = {header: n for n, header in enumerate(_HEADERS)}
_header_of = _HEADERS.__getitem__

_NO_LENGTHS: Final[dict[bytes, int]] = {}
_MANY: Final = 256  # if at least this many arguments are missing, parse them together

_STAR, _DOLLAR = b"*$"
_number = re.compile(rb"0|-?[1-9][0-9]{0,18}").fullmatch


class _Line(NamedTuple):
    """A kind of protocol line: its ending, and the error if the line is too long."""

    ending: bytes
    ending_bytes: int
    too_long: bytes


_INLINE: Final = _Line(b"\n", 1, b"too big inline request")
_COUNT: Final = _Line(b"\r", 2, b"too big mbulk count string")
_LENGTH: Final = _Line(b"\r", 2, b"too big bulk count string")


class ProtocolError(Exception):
    """The client broke the protocol. Answer `line`, then close: the rest of its bytes cannot be parsed.

    line        the error text after the `-`; empty if `query_bytes_max` was exceeded: close without a reply, as Redis
    commands    complete commands before the error: run them first
    """

    def __init__(self, line: bytes, commands: list[list[bytes]]) -> None:
        super().__init__(line.decode("ascii", "backslashreplace"))
        self.line = line
        self.commands = commands


@dataclass(slots=True)
class Limits:
    """Limits of a request, shared by all connections. A `change` takes effect with the next bytes.

    arguments_max      number of arguments of a command
    bulk_bytes_max     bytes of one argument: proto-max-bulk-len
    query_bytes_max    bytes of an incomplete command: client-query-buffer-limit
    plain_bytes_max    no command that `_plain` or `alike` finds in this many bytes can exceed the other limits
    """

    arguments_max: int = (1 << 31) - 1
    bulk_bytes_max: int = 512 << 20
    query_bytes_max: int = 1 << 30
    plain_bytes_max: int = field(init=False)

    def __post_init__(self) -> None:
        self.plain_bytes_max = min(self.bulk_bytes_max, self.query_bytes_max)
        if self.arguments_max < _PLAIN_ARGUMENTS_MAX:
            self.plain_bytes_max = 0

    def change(self, name: str, value: int) -> None:
        """Set the limit `name`."""
        setattr(self, name, value)
        self.__post_init__()


class Requests:
    """The request parser of one connection.

    pending      bytes received of the command that is not complete yet
    held_back    there are bytes that `feed` has not parsed yet: see there
    marked       MARK has come, in an argument or between two
    """

    __slots__ = (
        *("pending", "held_back", "marked"),
        *("_limits", "_restricted", "_expected", "_expected_args"),
        *("_held", "_args", "_left", "_bulk"),
    )

    def __init__(self, limits: Limits) -> None:
        self.pending = 0
        self.held_back = False
        self.marked = False
        self._limits = limits
        self._restricted = False
        self._expected: bytes | None = None
        self._expected_args: list[bytes] = []
        # The unfinished command: its arguments so far, how many are missing, and the bytes received after those
        # arguments. These bytes begin an argument of `_bulk` bytes, or a header if `_bulk` is -1. They are in one
        # bytearray, because a list would cost some fifty bytes per piece received.
        self._args: list[bytes] = []
        self._left = 0
        self._held = bytearray()
        self._bulk = -1

    def restrict(self, restricted: bool) -> None:
        """Set whether the client still has to authenticate; until then only small commands are accepted."""
        self._restricted = restricted

    def expect(self, args: list[bytes]) -> None:
        """The client has sent `args` more than once and may do so again: `feed` then returns this same list object.

        Replaces the list expected before.
        """
        if len(args) <= _PLAIN_ARGUMENTS_MAX:  # `Limits.plain_bytes_max` assumes no more
            words = chain.from_iterable(zip(map(len, args), args))
            self._expected = b"*%d\r\n" % len(args) + b"$%d\r\n%b\r\n" * len(args) % (*words,)
            self._expected_args = args

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Return the commands that `data` completes, in order. Raises ProtocolError; do not call it after that.

        While restricted, a command that is too large is not refused as long as commands precede it, since one of them
        may authenticate. `feed` then returns those and sets `held_back`; call `feed(b"")` once they have run.
        """
        if MARK in data:
            self.marked = True
        if self.pending or self._restricted or len(data) > self._limits.plain_bytes_max:
            return self._feed(data)
        commands: list[list[bytes]] = []
        expected = self._expected
        if expected is not None and data.endswith(expected):
            before = data[: -len(expected)]
            if not before or not _plain(before, commands):
                commands.append(self._expected_args)
                return commands
            # `data` may only seem to end with a whole request, because an argument can hold any bytes. So parse it all.
            commands = []
        rest = _plain(data, commands)
        if rest:
            self._parse(rest, 0, commands, False)
        return commands

    def _feed(self, data: bytes) -> list[list[bytes]]:
        """`feed` when `_plain` cannot parse `data` at once: a command is pending, or a limit applies."""
        commands: list[list[bytes]] = []
        self.held_back = False
        if self.pending:
            data = self._go_on(data, commands)
            if not data:
                return commands
            if not self._restricted and len(data) <= self._limits.plain_bytes_max:
                data = _plain(data, commands)
        if data:
            self._parse(data, 0, commands, False)
        return commands

    def _go_on(self, data: bytes, commands: list[list[bytes]]) -> bytes:
        """Append `data` to the unfinished command. If that completes it, return the bytes after it, else b""."""
        held, bulk = self._held, self._bulk
        taken = self.pending - len(held)
        held += data
        # It may have come in two pieces.
        if held.find(MARK, max(len(held) - len(data) - len(MARK), 0)) >= 0:
            self.marked = True
        self.pending += len(data)
        if bulk < 0:
            data = bytes(held)
        elif len(held) < bulk + 2:
            # A large argument arrives in many pieces, so do no more work than this for each piece.
            if self.pending > self._limits.query_bytes_max:
                raise ProtocolError(b"", commands)
            return b""
        else:
            with memoryview(held) as view:
                self._args.append(bytes(view[:bulk]))
                data = bytes(view[bulk + 2 :])
            taken += bulk + 2
            self._left -= 1
        self._held = bytearray()
        return self._parse(data, taken, commands, True)

    def _parse(self, data: bytes, taken: int, commands: list[list[bytes]], one: bool) -> bytes:
        """Append the commands that `data` completes to `commands`, and keep the rest.

        one      stop after one command and return the rest
        taken    number of bytes of the unfinished command received before `data`
        """
        limits = self._limits
        query_bytes_max = limits.query_bytes_max
        shortcut = not self._restricted and limits.bulk_bytes_max >= len(_HEADERS)
        length_of = _LENGTHS.get if shortcut else _NO_LENGTHS.get
        find = data.find
        at, end = 0, len(data)
        start = -taken  # of the current command
        args, left, bulk = self._args, self._left, -1
        together = shortcut
        self._args, self._left, self._bulk = [], 0, -1
        while True:
            if not left:
                if args:
                    # Refuse the command if it was already too long before its last byte came, that is, while it was
                    # incomplete.
                    if at - start - 1 > query_bytes_max:
                        raise ProtocolError(b"", commands)
                    commands.append(args)
                    args = []
                    if one:
                        self.pending = 0
                        return data[at:]
                start = at
                if at == end:
                    break
                if data[at] != _STAR:
                    stop = self._line(_INLINE, data, at, start, commands)
                    if stop < 0:
                        break
                    args = self._words(data, at, stop, commands)
                    at = stop
                    continue
                stop = self._line(_COUNT, data, at, start, commands)
                if stop < 0:
                    break
                left = self._count(data, at, stop, commands)
                if left < 0:
                    left = 0
                    break
                at = stop
                together = shortcut
                continue
            if together and left >= _MANY:
                together = False
                words, at = _plain_arguments(data, at, left)
                args += words
                left -= len(words)
                continue
            stop = find(b"\r", at) + 2
            length = length_of(data[at : stop - 2]) if 1 < stop <= end else None
            if length is None:
                stop = self._line(_LENGTH, data, at, start, commands)
                if stop < 0:
                    break
                length = self._length(data, at, stop, start, commands)
                if length < 0:
                    break
            at = stop + length
            if at + 2 > end:
                at, bulk = stop, length
                break
            args.append(data[stop:at])
            at += 2
            left -= 1
        self._args, self._left, self._bulk = args, left, bulk
        self._held += data[at:]
        self.pending = end - start
        if self.pending > query_bytes_max and not self.held_back:
            raise ProtocolError(b"", commands)
        return b""

    def _line(
        self, kind: _Line, data: bytes, at: int, start: int, commands: list[list[bytes]]
    ) -> int:
        """Return the offset after the line that begins at `at`, including its ending; -1 if it is incomplete."""
        found = data.find(kind.ending, at, at + LINE_BYTES_MAX + 1)
        if found < 0 or data.find(b"\0", at, found) >= 0:
            seen = at + LINE_BYTES_MAX + 1
            if seen <= len(data):
                raise self._refusal(kind.too_long, seen - start, commands)
            return -1
        stop = found + kind.ending_bytes
        return stop if stop <= len(data) else -1

    def _words(self, data: bytes, at: int, stop: int, commands: list[list[bytes]]) -> list[bytes]:
        """Return the words of the inline command in the line `data[at:stop]`."""
        line = data[at : stop - 1]
        words = split_words(line[:-1] if line.endswith(b"\r") else line)
        if words is None:
            raise self._refusal(b"unbalanced quotes in request", stop - at, commands)
        if any(MARK in word for word in words):  # its letters may have been escaped
            self.marked = True
        return words

    def _count(self, data: bytes, at: int, stop: int, commands: list[list[bytes]]) -> int:
        """Return the number of arguments that the header `data[at:stop]` announces; -1 if it is held back."""
        count = _integer(data[at + 1 : stop - 2])
        if count is None or count > self._limits.arguments_max:
            raise self._refusal(b"invalid multibulk length", stop - at, commands)
        if self._restricted and count > UNAUTHENTICATED_ARGUMENTS_MAX:
            self._hold_back(b"unauthenticated multibulk length", stop - at, commands)
            return -1
        return max(count, 0)

    def _length(
        self, data: bytes, at: int, stop: int, start: int, commands: list[list[bytes]]
    ) -> int:
        """Return the length of the argument that the header `data[at:stop]` announces; -1 if it is held back."""
        if data[at] != _DOLLAR:
            got = b" " if data[at] in b"\r\n" else data[at : at + 1]
            raise self._refusal(b"expected '$', got '%b'" % got, stop - start, commands)
        length = _integer(data[at + 1 : stop - 2])
        if length is None or not 0 <= length <= self._limits.bulk_bytes_max:
            raise self._refusal(b"invalid bulk length", stop - start, commands)
        if self._restricted and length > UNAUTHENTICATED_BULK_BYTES_MAX:
            self._hold_back(b"unauthenticated bulk length", stop - start, commands)
            return -1
        return length

    def _hold_back(self, text: bytes, seen: int, commands: list[list[bytes]]) -> None:
        if not commands:
            raise self._refusal(text, seen, commands)
        self.held_back = True

    def _refusal(self, text: bytes, seen: int, commands: list[list[bytes]]) -> ProtocolError:
        """Return the error for a command whose first `seen` bytes are wrong, unless it was too long even before."""
        too_long = seen - 1 > self._limits.query_bytes_max
        return ProtocolError(b"" if too_long else b"ERR Protocol error: " + text, commands)


def alike(messages: list[bytes], limits: Limits) -> list[list[bytes]] | None:
    """Parse the requests of many clients together: one ordinary command each, with the same number of arguments.

    Returns None if they are not like that. Going argument by argument over all requests costs two thirds of a `feed`
    each. A request is one such command if it begins with the common header, has the number of lines that follows from
    it, and ends with a line end. A line is an argument if its length matches the header before it, as in `_plain`.
    """
    begin = messages[0].partition(b"\n")[0] + b"\n"
    size = _PIECES.get(begin[:-2], 0)
    if not size:
        return None
    for message in messages:
        if message.count(b"\r\n") != size:
            return None
        if not (message.startswith(begin) and message.endswith(b"\r\n")):
            return None
    whole = b"".join(messages)
    if len(whole) > limits.plain_bytes_max or MARK in whole:
        return None
    pieces = whole.split(b"\r\n")
    stop = size * len(messages)
    try:
        for at in range(1, size, 2):
            if pieces[at:stop:size] != [*map(_header_of, map(len, pieces[at + 1 : stop : size]))]:
                return None
    except IndexError:
        return None
    return [pieces[at + 2 : at + size : 2] for at in range(0, stop, size)]


def _plain(data: bytes, commands: list[list[bytes]]) -> bytes:
    """Append the ordinary commands that `data` begins with, and return the rest, which is for `_parse`.

    A piece between two line ends whose length matches the header before it is the whole argument: those bytes cannot be
    parsed in any other way.
    """
    pieces = data.split(b"\r\n")
    whole = len(pieces) - 1  # no line end follows the last piece: it is empty or incomplete
    size = _PIECES.get(pieces[0])
    if size == whole and not pieces[-1]:  # one command: the usual case
        args = pieces[2::2]
        try:
            if pieces[1:-1:2] == [*map(_header_of, map(len, args))]:
                commands.append(args)
                return b""
        except IndexError:
            pass
        return data
    if size and not whole % size and pieces[:whole:size].count(pieces[0]) * size == whole:
        if not pieces[-1]:  # a pipeline of commands that all have the same number of arguments
            del pieces[-1], pieces[::size]
            args = pieces[1::2]
            try:
                if pieces[::2] == [*map(_header_of, map(len, args))]:
                    commands += map(list, zip(*[iter(args)] * (size >> 1)))
                    return b""
            except IndexError:
                pass
            return data
    flat: list[bytes] = []  # header, argument, header, argument, ...
    widths: list[int] = []
    at = 0
    while at < whole:
        size = _PIECES.get(pieces[at])
        if size is None or at + size > whole:
            break
        flat += pieces[at + 1 : at + size]
        widths.append(size >> 1)
        at += size
    args = flat[1::2]
    try:
        if flat[::2] != [*map(_header_of, map(len, args))]:
            return data
    except IndexError:
        return data
    if len(widths) == 1:
        commands.append(args)
    else:
        begin = 0
        for width in widths:
            commands.append(args[begin : begin + width])
            begin += width
    rest = pieces[at:]
    return data[len(data) - sum(map(len, rest)) - 2 * (len(rest) - 1) :]


def _plain_arguments(data: bytes, at: int, left: int) -> tuple[list[bytes], int]:
    """Return up to `left` ordinary arguments that `data[at:]` begins with, and the offset after them.

    Returns none if one of them is not ordinary; the caller then parses them one by one. With a million
    arguments this is a third of the work of parsing them one by one.
    """
    pieces = data[at:].split(b"\r\n", 2 * left)
    stop = len(pieces) - 1 & ~1
    words = pieces[1:stop:2]
    try:
        if pieces[:stop:2] != [*map(_header_of, map(len, words))]:
            return [], at
    except IndexError:
        return [], at
    rest = pieces[stop:]
    return words, len(data) - sum(map(len, rest)) - 2 * (len(rest) - 1)


def _integer(digits: bytes) -> int | None:
    """Parse a number as Redis's string2ll: only `-` as sign, no leading zero, 64 bits. None if it is not one."""
    if _number(digits) is None:
        return None
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 63 else None
