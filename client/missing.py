"""Missing: the methods of an opened store that a shared one cannot have, and the errors for them.

    verify, digest   read all files, or the whole state, in the process that has the store open
    receipts         a receipt asks the log of its store for the level of a write, again and again
    role             the reply of ROLE has less than `tidelog.Role`
    refresh          is for stores that are opened read-only
    fsync            of the asyncio face alone: a property cannot be awaited

docs/guides/web-app-and-workers.md has this list for users. A test compares the faces, and finds every other difference.
"""

from __future__ import annotations

from typing import Final, TypeVar

from tidelog.api.missing import answers

T = TypeVar("T")
PAGE: Final = "docs/guides/web-app-and-workers.md"
_SERVED: Final = "use a Redis client with the server"
LACKING: Final = {
    "verify": "run `tidelog verify PATH` on the machine of the store",
    "digest": "run `tidelog digest PATH` on the machine of the store",
    "receipts": "use at('fsynced') or at('replicated'), whose replies wait",
    "role": "use execute_command('ROLE')",
    "refresh": "its replies come from the process that serves the store, so it is never behind",
    "fsync": "use config_get('appendfsync') and config_set('appendfsync', policy)",
}
_REDIS: Final = {
    **dict.fromkeys(("pubsub", "publish", "subscribe", "psubscribe", "monitor"), _SERVED),
    "keyspace_notifications": _SERVED,
    "from_url": "use tidelog.connect(url)",
}
INSTEAD: Final = {
    **_REDIS,
    **{name: f"{advice}; {PAGE} says why" for name, advice in LACKING.items()},
}


def answers_missing(kind: type[T]) -> type[T]:
    """Give a face of shared stores an answer for every method of redis-py and of `Store` that it lacks."""
    return answers(kind, INSTEAD)
