"""Replies that only the server gives, besides those of `engine.reply`. RESP2 has plainer forms for each.

Verbatim   text for people: `=` in RESP3, a bulk string in RESP2
Push       out of band: `>` in RESP3, an array in RESP2
SetReply   `~` in RESP3, an array in RESP2
Double     `,` in RESP3, a bulk string in RESP2
"""

from __future__ import annotations

from typing import Any


class Verbatim(bytes):
    """Text that is meant to be read by people."""

    __slots__ = ()


class Push(list[Any]):
    """A message that answers no command."""

    __slots__ = ()


class SetReply(list[Any]):
    """Elements in no order, each once."""

    __slots__ = ()


class Double(float):
    """A floating point number."""

    __slots__ = ()


class _NoReply:
    """See NO_REPLY."""

    __slots__ = ()


# What a handler returns that has sent all there is to send by itself.
NO_REPLY = _NoReply()
