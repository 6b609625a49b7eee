"""Requests: bytes of a client in, commands out. No I/O; one `Requests` per connection.

A request is an array of bulk strings, or an inline command: a line of words that may be quoted. What is refused,
with which words and at which byte, is Redis's (7.0, networking.c; spec 16.1), down to its oddities:

    the two bytes after a bulk string, and the one after the `\\r` of a header, are passed over unseen
    a NUL byte hides the end of the line it stands in: such a line is waited for until it is too long
    a count of 0 or less is an empty request, and so is an empty line: nothing comes out

Unlike there, nothing depends on how the bytes were cut into pieces: a line that is too long is so when it comes whole
as well; and `arguments_max` is a bound of ours (Redis's is 2,147,483,647).

A consumer sends the same read again and again, alone or behind an acknowledgement. Once somebody has said so
(`expect`), bytes that end with it are taken apart only as far as that, and the rest is the same command as before.

Ordinary input, whole commands of short arguments that contain no line end, is taken apart by `_plain` at the speed of
C: the bytes are split at all line ends, and each piece's length is compared with the header before it. All else goes
argument by argument through `_parse`. Per XADD of 7 arguments, in chunks of 1, 16 and 100 of them: `_plain` 1.6, 0.9
and 0.9 us, `_parse` 4. hiredis, a parser of replies, needs 1.7, 0.7 and 0.6 once everything is checked that a reply may
be and a request may not (other types, nested arrays, a list of the announced length made at once): too little to gain
for a second grammar.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, NamedTuple

from tidelog.server.inline import split_words

LINE_BYTES_MAX: Final = 64 << 10
UNAUTHENTICATED_ARGUMENTS_MAX: Final = 10
UNAUTHENTICATED_BULK_BYTES_MAX: Final = 16 << 10

# What `_plain` knows: `*n` -> how many pieces such a command has, and `$n` at the index n.
_PLAIN_ARGUMENTS_MAX: Final = 1023
_PIECES: Final = {b"*%d" % n: 2 * n + 1 for n in range(1, _PLAIN_ARGUMENTS_MAX + 1)}
_HEADERS: Final = [b"$%d" % n for n in range(1024)]
_LENGTHS: Final = {header: n for n, header in enumerate(_HEADERS)}
_header_of = _HEADERS.__getitem__

_NO_LENGTHS: Final[dict[bytes, int]] = {}
_MANY: Final = 256  # arguments that are still to come: from here on they are taken apart together

_STAR, _DOLLAR = b"*$"
_number = re.compile(rb"0|-?[1-9][0-9]{0,18}").fullmatch


class _Line(NamedTuple):
    """A line of the protocol: how it ends, and what is said of one that does not."""

    ending: bytes
    ending_bytes: int
    too_long: bytes


_INLINE: Final = _Line(b"\n", 1, b"too big inline request")
_COUNT: Final = _Line(b"\r", 2, b"too big mbulk count string")
_LENGTH: Final = _Line(b"\r", 2, b"too big bulk count string")


class ProtocolError(Exception):
    """The client does not speak the protocol. Answer `line`, then close: nothing more can be made of its bytes.

    line        the error as it goes after the `-`; empty: more than `query_bytes_max`, which Redis closes unanswered
    commands    what was complete before it, to be run first
    """

    def __init__(self, line: bytes, commands: list[list[bytes]]) -> None:
        super().__init__(line.decode("ascii", "backslashreplace"))
        self.line = line
        self.commands = commands


@dataclass(slots=True)
class Limits:
    """What a request may have. One for all connections; a change (`change`) holds from the next bytes on.

    arguments_max      arguments of a command
    bulk_bytes_max     bytes of an argument: proto-max-bulk-len
    query_bytes_max    bytes of a command that has begun to come: client-query-buffer-limit
    plain_bytes_max    nothing that `_plain` or `alike` finds in so many bytes can be more than all that
    """

    arguments_max: int = 1 << 20
    bulk_bytes_max: int = 512 << 20
    query_bytes_max: int = 1 << 30
    plain_bytes_max: int = field(init=False)

    def __post_init__(self) -> None:
        self.plain_bytes_max = min(self.bulk_bytes_max, self.query_bytes_max)
        if self.arguments_max < _PLAIN_ARGUMENTS_MAX:
            self.plain_bytes_max = 0

    def change(self, name: str, value: int) -> None:
        """Another limit from now on."""
        setattr(self, name, value)
        self.__post_init__()


class Requests:
    """The requests of one connection.

    pending      bytes received of the command that is not complete yet
    held_back    there are bytes that `feed` has not looked at: see there
    """

    __slots__ = (
        *("pending", "held_back", "_limits", "_restricted", "_expected", "_expected_args"),
        *("_held", "_args", "_left", "_bulk"),
    )

    def __init__(self, limits: Limits) -> None:
        self.pending = 0
        self.held_back = False
        self._limits = limits
        self._restricted = False
        self._expected: bytes | None = None
        self._expected_args: list[bytes] = []
        # The unfinished command: its arguments so far, how many are to come, and its bytes from there on: those of an
        # argument of `_bulk` bytes, or of a header (-1). A list of pieces would cost some fifty bytes for each of them.
        self._args: list[bytes] = []
        self._left = 0
        self._held = bytearray()
        self._bulk = -1

    def restrict(self, restricted: bool) -> None:
        """Whether the client is still to authenticate, and may send only small commands until then."""
        self._restricted = restricted

    def expect(self, args: list[bytes]) -> None:
        """The client has sent this more than once, and may go on so: then this very list is what comes out. In place of
        what was expected before."""
        if (
            len(args) <= _PLAIN_ARGUMENTS_MAX
        ):  # `Limits.plain_bytes_max` holds for no more than that
            words = chain.from_iterable(zip(map(len, args), args))
            self._expected = b"*%d\r\n" % len(args) + b"$%d\r\n%b\r\n" * len(args) % (*words,)
            self._expected_args = args

    def feed(self, data: bytes) -> list[list[bytes]]:
        """The commands that `data` completes, in order. Raises ProtocolError; not to be called after that.

        While restricted, a command too large for that is not refused as long as there are others before it, since one
        of them may authenticate: those are returned, `held_back` is true, and `feed(b"")` goes on once they have run.
        """
        if self.pending or self._restricted or len(data) > self._limits.plain_bytes_max:
            return self._feed(data)
        commands: list[list[bytes]] = []
        expected = self._expected
        if expected is not None and data.endswith(expected):
            before = data[: -len(expected)]
            if not before or not _plain(before, commands):
                commands.append(self._expected_args)
                return commands
            commands = []  # it ends within an argument, or so it seems: all from the start
        rest = _plain(data, commands)
        if rest:
            self._parse(rest, 0, commands, False)
        return commands

    def _feed(self, data: bytes) -> list[list[bytes]]:
        """`feed` where something stands between these bytes and `_plain`."""
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
        """Put `data` behind what is held. If that completes a command: the bytes after it."""
        held, bulk = self._held, self._bulk
        taken = self.pending - len(held)
        held += data
        self.pending += len(data)
        if bulk < 0:
            data = bytes(held)
        elif len(held) < bulk + 2:
            # A large argument comes in many pieces: no more than this for each.
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
        """Append to `commands` what `data` completes, and keep the rest; with `one`, return it after one command.

        taken    bytes of the unfinished command that were received before `data`, and are not in it
        """
        limits = self._limits
        query_bytes_max = limits.query_bytes_max
        shortcut = not self._restricted and limits.bulk_bytes_max >= len(_HEADERS)
        length_of = _LENGTHS.get if shortcut else _NO_LENGTHS.get
        find = data.find
        at, end = 0, len(data)
        start = -taken  # of the command in hand
        args, left, bulk = self._args, self._left, -1
        together = shortcut
        self._args, self._left, self._bulk = [], 0, -1
        while True:
            if not left:
                if args:
                    # One byte ago it was too long, and not complete.
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
        """Where the line that begins at `at` is over, its ending included; -1 if it is not complete."""
        found = data.find(kind.ending, at, at + LINE_BYTES_MAX + 1)
        if found < 0 or data.find(b"\0", at, found) >= 0:
            seen = at + LINE_BYTES_MAX + 1
            if seen <= len(data):
                raise self._refusal(kind.too_long, seen - start, commands)
            return -1
        stop = found + kind.ending_bytes
        return stop if stop <= len(data) else -1

    def _words(self, data: bytes, at: int, stop: int, commands: list[list[bytes]]) -> list[bytes]:
        """The inline command in the line `data[at:stop]`."""
        line = data[at : stop - 1]
        words = split_words(line[:-1] if line.endswith(b"\r") else line)
        if words is None:
            raise self._refusal(b"unbalanced quotes in request", stop - at, commands)
        return words

    def _count(self, data: bytes, at: int, stop: int, commands: list[list[bytes]]) -> int:
        """How many arguments the header `data[at:stop]` announces; -1 if it is held back."""
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
        """How many bytes the argument has that the header `data[at:stop]` announces; -1 if it is held back."""
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
        """What to raise where `seen` bytes of a command show it to be wrong, if it was not too long before that."""
        too_long = seen - 1 > self._limits.query_bytes_max
        return ProtocolError(b"" if too_long else b"ERR Protocol error: " + text, commands)


def alike(messages: list[bytes], limits: Limits) -> list[list[bytes]] | None:
    """The commands of many clients that sent one each, ordinary and all of as many arguments; None: they did not.

    Argument by argument of all of them, that costs two thirds of what `feed` takes for each. A message is one command
    if it begins with that header, has as many lines as follow from it, and ends with a line; a line that is as long as
    the one before it says is an argument, as in `_plain`.
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
    if len(whole) > limits.plain_bytes_max:
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
    """Append the ordinary commands that `data` begins with, and return what is left: to be looked at by `_parse`.

    A piece between two line ends that is as long as the header before it says is the whole argument: there is no other
    way to read those bytes.
    """
    pieces = data.split(b"\r\n")
    whole = len(pieces) - 1  # the last one has no line end: it is empty, or begins something
    size = _PIECES.get(pieces[0])
    if size == whole and not pieces[-1]:  # one command: mostly that is all
        args = pieces[2::2]
        try:
            if pieces[1:-1:2] == [*map(_header_of, map(len, args))]:
                commands.append(args)
                return b""
        except IndexError:
            pass
        return data
    if size and not whole % size and pieces[:whole:size].count(pieces[0]) * size == whole:
        if not pieces[-1]:  # a pipeline of commands that have as many arguments
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
    """The ordinary arguments that `data[at:]` begins with, up to `left` of them, and where they end. None of them if
    one is not ordinary: they are then taken apart one by one.

    That is a third of the work where a command has a million arguments.
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
    """A number as Redis's string2ll takes it: no sign but `-`, no leading zero, 64 bits."""
    if _number(digits) is None:
        return None
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 63 else None
