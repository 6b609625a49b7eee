"""Glob: Redis's patterns over bytes (KEYS, SCAN MATCH, CONFIG GET).

    *       any bytes, or none             [a-c]   one byte of these; [^a-c] one of the others
    ?       any one byte                   \\x      x itself

Redis's quirks are kept: an unclosed class ends with the pattern; a range may be reversed and compares signed bytes;
an empty name matches only the empty pattern, not `**`.

A pattern is compiled to a regular expression. The text between two stars is matched at its first occurrence without
backtracking (an atomic group). That is correct for globs, and the time is linear in the number of stars.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

_STAR = b"*"


def matcher(pattern: bytes) -> Callable[[bytes], object]:
    """A function that returns a true value for names that match. A bounded cache holds compiled patterns."""
    return _matcher(bytes(pattern))


@lru_cache(maxsize=256)
def _matcher(pattern: bytes) -> Callable[[bytes], object]:
    pieces = _pieces(pattern)
    if not pieces:
        return lambda name: not name
    stretches: list[list[bytes]] = [[]]
    for piece in pieces:
        if piece == _STAR:
            stretches.append([])
        else:
            stretches[-1].append(piece)
    first, *others = (b"".join(stretch) for stretch in stretches)
    if others:
        *middle, last = others
        first += b"".join(b"(?>.*?%b)" % stretch for stretch in middle) + b".*" + last
    fullmatch = re.compile(first, re.DOTALL).fullmatch
    return lambda name: name and fullmatch(name)


def _pieces(pattern: bytes) -> list[bytes]:
    """The pattern as a list: a regular expression for each byte to match, and `*` for each run of stars."""
    pieces: list[bytes] = []
    at, end = 0, len(pattern)
    while at < end:
        byte = pattern[at]
        at += 1
        if byte == ord("*"):
            if not pieces or pieces[-1] != _STAR:
                pieces.append(_STAR)
        elif byte == ord("?"):
            pieces.append(b".")
        elif byte == ord("["):
            piece, at = _class(pattern, at)
            pieces.append(piece)
        else:
            if byte == ord("\\") and at < end:
                byte = pattern[at]
                at += 1
            pieces.append(b"\\x%02x" % byte)
    return pieces


def _class(pattern: bytes, at: int) -> tuple[bytes, int]:
    """Compile the class whose `[` is right before `at`. Return its regular expression and the position after it."""
    end = len(pattern)
    negated = pattern[at : at + 1] == b"^"
    at += negated
    members: set[int] = set()
    while at < end:
        byte = pattern[at]
        if byte == ord("\\") and at + 1 < end:
            members.add(pattern[at + 1])
            at += 2
        elif byte == ord("]"):
            at += 1
            break
        elif at + 2 < end and pattern[at + 1] == ord("-"):
            low, high = sorted((_signed(byte), _signed(pattern[at + 2])))
            members.update(value & 255 for value in range(low, high + 1))
            at += 3
        else:
            members.add(byte)
            at += 1
    if negated:
        members = set(range(256)) - members
    if not members:
        return b"(?!)", at
    return b"[%b]" % b"".join(b"\\x%02x" % member for member in sorted(members)), at


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte
