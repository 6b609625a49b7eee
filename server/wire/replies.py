"""Reply types of the server, in addition to those of `engine.reply`. RESP2 has a simpler form for each.

Verbatim   human-readable text: `=` in RESP3, a bulk string in RESP2
Push       out of band: `>` in RESP3, an array in RESP2
SetReply   `~` in RESP3, an array in RESP2
Double     `,` in RESP3, a bulk string in RESP2
"""

from __future__ import annotations

from typing import Any


class Verbatim(bytes):
    """Human-readable text."""

    __slots__ = ()


class Push(list[Any]):
    """A message that is not the reply to a command."""

    __slots__ = ()


class Jobs(list[Any]):
    """Jobs of a queue: `(ID, deliveries, row)` each, a row being names and values of fields in turn."""

    __slots__ = ()


class SetReply(list[Any]):
    """Distinct elements in no particular order."""

    __slots__ = ()


class Double(float):
    """A floating point number."""

    __slots__ = ()


class _NoReply:
    """See NO_REPLY."""

    __slots__ = ()


# A handler returns this if it has already sent its replies, or if the command has no reply.
NO_REPLY = _NoReply()
