"""Inline commands: a line as people type it into a raw connection, split into words. No I/O."""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = rb"[ \t\n\v\f\r]"

# A plain part, which may be empty, and perhaps a quoted one, which ends the word. Every byte can be read in one way
# only, so a match neither tries anything twice nor ends a word before its time.
_word = re.compile(
    rb"""([^ \t\n\r"']*)
    (?: "((?:[^"\\]|\\.)*)" (?=%(space)b|\Z)
      | '((?:[^'\\]|\\'|\\(?!'))*)' (?=%(space)b|\Z)
      | (?=[ \t\n\r]|\Z) )
    %(space)b*"""
    % {b"space": _SPACE},
    re.DOTALL | re.VERBOSE,
).match
_escapes = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL).sub
_ESCAPED: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}


def split_words(line: bytes) -> list[bytes] | None:
    r"""The words of an inline command, as Redis's sdssplitargs; None if a quote is not closed, or not before a blank.

    In double quotes \n \r \t \b \a \xHH stand for one byte, `\` before another for that one; in single quotes only \'.
    """
    words: list[bytes] = []
    line = line.lstrip(b" \t\n\v\f\r")
    at = 0
    while at < len(line):
        found = _word(line, at)
        if found is None:
            return None
        plain, double, single = found.groups()
        if double is not None:
            plain += _escapes(_unescaped, double)
        elif single is not None:
            plain += single.replace(rb"\'", b"'")
        words.append(plain)
        at = found.end()
    return words


def _unescaped(escape: re.Match[bytes]) -> bytes:
    code, other = escape.groups()
    return bytes.fromhex(code.decode()) if code else _ESCAPED.get(other, other)
