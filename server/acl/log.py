"""ACL LOG: refused commands and failed authentications, latest first, as in Redis 7.0.

An event that repeats within a minute is merged with the existing entry and counted there, so that one busy client does
not push out all others.
"""

from __future__ import annotations

from tidelog.engine.reply import Map
from tidelog.server.wire.replies import Double

_SAME_SECONDS_MAX = 60.0
_SAME_SEARCHED = 10  # entries
_OBJECT_BYTES_MAX = 1024


class _Entry:
    __slots__ = ("reason", "context", "object", "user", "client", "count", "at")

    def __init__(
        self, reason: str, context: str, object_: bytes, user: bytes, client: bytes, at: float
    ) -> None:
        self.reason, self.context, self.object, self.user = reason, context, object_, user
        self.client, self.at, self.count = client, at, 1


class AclLog:
    """The log. length_max: number of entries kept."""

    __slots__ = ("length_max", "_entries")

    def __init__(self, length_max: int = 128) -> None:
        self.length_max = length_max
        self._entries: list[_Entry] = []

    def add(
        self, reason: str, context: str, object_: bytes, user: bytes, client: bytes, now: float
    ) -> None:
        """Add an event.

        reason    "command", "key", "channel", or "auth": wrong name or password
        context   "toplevel", or "multi": inside a transaction
        object    the command, key or channel; "AUTH" and "HELLO" for "auth"
        client    the client as CLIENT INFO shows it
        now       seconds of a monotonic clock
        """
        new = _Entry(
            reason, context, object_[:_OBJECT_BYTES_MAX], user[:_OBJECT_BYTES_MAX], client, now
        )
        for at, entry in enumerate(self._entries[:_SAME_SEARCHED]):
            if (
                now - entry.at <= _SAME_SECONDS_MAX
                and (entry.reason, entry.context) == (reason, context)
                and (entry.object, entry.user) == (new.object, new.user)
            ):
                new.count += entry.count
                del self._entries[at]
                break
        self._entries.insert(0, new)
        del self._entries[self.length_max :]

    def reset(self) -> None:
        self._entries.clear()

    def reply(self, count: int, now: float) -> list[Map]:
        """The reply of ACL LOG: up to `count` entries."""
        return [
            Map(
                [
                    *(b"count", entry.count),
                    *(b"reason", entry.reason.encode()),
                    *(b"context", entry.context.encode()),
                    *(b"object", entry.object),
                    *(b"username", entry.user),
                    *(b"age-seconds", Double(max(0.0, now - entry.at))),
                    *(b"client-info", entry.client),
                ]
            )
            for entry in self._entries[: max(count, 0)]
        ]
