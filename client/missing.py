"""Missing: the errors for methods of an opened store that a shared one does not have."""

from __future__ import annotations

from typing import Final, TypeVar

from tidelog.store.faces.missing import answers

T = TypeVar("T")
_EMBEDDED: Final = "call it in a program that has opened the store with tidelog.open"
_SERVED: Final = "use a Redis client with the server"
INSTEAD: Final = {
    "verify": "run `tidelog verify PATH` on the machine of the store",
    "digest": "run `tidelog digest PATH` on the machine of the store",
    "receipts": "use at('fsynced') or at('replicated'), whose replies wait",
    "refresh": "its replies come from the process that serves the store, so it is never behind",
    "role": "use execute_command('ROLE')",
    "fsync": "use execute_command('CONFIG', 'GET', 'appendfsync')",
    "schedule": _EMBEDDED,
    "schedules": _EMBEDDED,
    "keyspace_notifications": _SERVED,
    **dict.fromkeys(("pubsub", "publish", "subscribe", "psubscribe", "monitor"), _SERVED),
    "from_url": "use tidelog.connect(url)",
}


def answers_missing(kind: type[T]) -> type[T]:
    """Give a face of shared stores an answer for every method of redis-py and of `Store` that it lacks."""
    return answers(kind, INSTEAD)
