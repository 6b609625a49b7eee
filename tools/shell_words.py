"""Shell words: the words of a command line as the shell would give them to the command, and a word as it is typed.

The line is what stands before the cursor, so a quote may be open. A `~` and variables are put in, as far as the
environment has them; nothing is run, so `$(...)` and backquotes stay as they are.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})")
# what a word may have without a quote; the rest gets a backslash
_PLAIN: Final = re.compile(r"[\w@%+=:,./-]", re.ASCII)
_IN_DOUBLE: Final = '"$`\\'


class Word(NamedTuple):
    """A word of a line.

    typed    as it stands there
    text     without its quotes and backslashes
    value    `text` with `~` and variables put in
    quote    the quote that is open at its end: `'`, `"` or none
    """

    typed: str
    text: str
    value: str
    quote: str


def split(line: str) -> list[Word]:
    """The words of a line. The last one is the word at the cursor: an empty one behind a space."""
    words: list[Word] = []
    typed = text = value = quote = ""
    at = 0
    while at < len(line):
        char, size, literal = line[at], 1, True
        if quote == "'":
            if char == "'":
                quote, literal = "", False
        elif char == "\\" and at + 1 < len(line):
            # Between double quotes a backslash stands for itself before other characters.
            if not quote or line[at + 1] in _IN_DOUBLE:
                char, size = line[at + 1], 2
        elif char == quote or (not quote and char in "'\""):
            quote, literal = ("" if quote else char), False
        elif not quote and char.isspace():
            if typed:
                words.append(Word(typed, text, value, quote))
            typed = text = value = ""
            at += 1
            continue
        elif char == "$" and (found := _VARIABLE.match(line, at)):
            typed += found[0]
            text += found[0]
            value += os.environ.get(found[1] or found[2], "")
            at = found.end()
            continue
        elif char == "~" and not typed:
            name = re.match(r"~[\w.-]*", line[at:])
            assert name is not None
            typed = text = name[0]
            value = os.path.expanduser(name[0])
            at += len(name[0])
            continue
        typed += line[at : at + size]
        if literal:
            text += char
            value += char
        at += size
    words.append(Word(typed, text, value, quote))
    return words


def quoted(text: str, quote: str) -> str:
    """`text` as it is typed where `quote` is open: `'`, `"` or none."""
    if quote == "'":
        return text.replace("'", "'\\''")
    if quote == '"':
        return "".join("\\" + char if char in _IN_DOUBLE else char for char in text)
    return "".join(char if _PLAIN.match(char) or ord(char) >= 128 else "\\" + char for char in text)
