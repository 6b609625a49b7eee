"""Commands as RESP: what a client sends, and what an append-only file of Redis holds."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

_BULK: Final = b"$%d\r\n%b\r\n"
# The form of a command by its number of words: one `%` is quicker than a join of pieces.
_FORMS: Final = [b"*%d\r\n%b" % (size, _BULK * size) for size in range(33)]


def encoded(words: Sequence[bytes]) -> bytes:
    """One command: an array of bulk strings (spec 16.1)."""
    size = len(words)
    form = _FORMS[size] if size < len(_FORMS) else b"*%d\r\n%b" % (size, _BULK * size)
    return form % tuple(chain.from_iterable(zip(map(len, words), words)))
