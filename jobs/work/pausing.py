"""Pausing: a queue that is paused delivers no job to any of its groups. Putting, ticks and delays go on.

The string `NAME:paused` holds the time of the pause, unix ms. It is deleted when the queue goes on.
"""

from __future__ import annotations

from typing import Final

from tidelog.engine.api import Keyspace
from tidelog.jobs.options import Options
from tidelog.jobs.streams import wrong_type

PAUSED: Final = b":paused"


def paused_key(options: Options) -> bytes:
    """The key of the string that says that the queue is paused."""
    return options.root + PAUSED


def since(stored: object) -> int | None:
    """When a queue was paused, unix ms, by the value at its key; None if it is not paused."""
    if not isinstance(stored, bytes):
        return None
    return int(stored) if stored.isdigit() and len(stored) < 20 else 0


def paused_since(keys: Keyspace, options: Options) -> int | None:
    """[lock] When the queue was paused, unix ms; None if it is not paused. Raises ResponseError for a key of another
    type.
    """
    stored = keys.get(paused_key(options))
    if stored is not None and not isinstance(stored, bytes):
        raise wrong_type(paused_key(options), "string")
    return since(stored)
