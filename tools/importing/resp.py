"""RESP of an append-only file: the commands, each with the offset at which it begins.

A file has arrays of bulk strings alone (spec 12.1), and lines that begin with `#`. The server's parser of requests is
more lenient, as Redis's is: it takes inline commands, and does not look at the bytes behind a bulk string. Here they
are damage, and offsets are exact, since a file that was cut is taken up to its last whole command.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tidelog.engine.rdb.source import Source

ARGUMENTS_MAX: Final = 1 << 20
_LINE_BYTES_MAX: Final = 64


def commands(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """(offset, arguments) of each command; of a line that begins with `#`, the whole line. Raises RdbError."""
    while not source.at_end():
        start = source.offset
        buffer, at = source.window()
        # Also if no end of a line follows: zeros are no command that was cut.
        if buffer[at] not in b"*#":
            source.damaged(f"a command begins with *, not with {buffer[at : at + 5]!r}", start)
        line = _line(source)
        if line[:1] == b"#":
            yield start, [line]
            continue
        count = _number(source, line, b"*", start)
        if not 0 < count <= ARGUMENTS_MAX:
            source.damaged(f"a command has {count} arguments", start)
        args = []
        for _ in range(count):
            at = source.offset
            size = _number(source, _line(source), b"$", at)
            data = source.take(size + 2)
            if data[-2:] != b"\r\n":
                source.damaged(f"an argument of {size} bytes does not end where it should", at)
            args.append(data[:-2])
        yield start, args


def _number(source: Source, line: bytes, kind: bytes, at: int) -> int:
    digits = line[1:]
    if line[:1] != kind or not digits.isdigit():
        source.damaged(f"{kind.decode()} and a number should stand here, not {line[:20]!r}", at)
    return int(digits)


def _line(source: Source) -> bytes:
    """The next line, without its end."""
    buffer, at = source.window()
    stop = buffer.find(b"\r\n", at, at + _LINE_BYTES_MAX)
    if stop >= 0:
        source.advance(stop + 2)
        return buffer[at:stop]
    start = source.offset
    out = bytearray()
    while out[-2:] != b"\r\n":
        if len(out) > _LINE_BYTES_MAX:
            source.damaged(
                f"the line that begins here has more than {_LINE_BYTES_MAX} bytes", start
            )
        out.append(source.byte())
    return bytes(out[:-2])
