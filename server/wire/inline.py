"""Inline commands: splits a line, as typed into a raw connection, into words. No I/O."""

from __future__ import annotations

import re
from typing import Final

_SPACE: Final = rb"[ \t\n\v\f\r]"

# A word is a plain part, possibly empty, and an optional quoted part, which ends the word. Every byte matches in only
# one way. So the pattern never backtracks, and it never ends a word early.
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
    r"""Split an inline command as Redis's sdssplitargs. None if a quote is unclosed, or not followed by a blank.

    In double quotes \n \r \t \b \a \xHH stand for one byte, and `\` before another byte for that byte. In single
    quotes only \' is an escape.
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
