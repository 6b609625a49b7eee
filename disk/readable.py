"""Readable: text that may hold names of files, as it leaves the program.

A name is bytes. Python has each byte of it that is not UTF-8 as a lone surrogate, which no encoding takes. Such a byte
is written as \\xNN, the form in which names of keys are shown too, and so is a character that the encoding lacks.
"""

from __future__ import annotations

import codecs
from typing import Final

ERRORS: Final = "tidelog.readable"
"""The name of the error handler, for files that take text."""


def readable(text: str) -> str:
    """`text` as UTF-8 can hold it."""
    return text.encode(errors=ERRORS).decode()


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    part = error.object[error.start : error.end]
    raw = b"".join(map(_bytes_of, part))
    return "".join(chr(each) if each < 0x80 else f"\\x{each:02x}" for each in raw), error.end


def _bytes_of(char: str) -> bytes:
    try:
        return char.encode(errors="surrogateescape")
    except UnicodeEncodeError:  # a surrogate that is no byte of a name
        return char.encode(errors="backslashreplace")


codecs.register_error(ERRORS, _escaped)
