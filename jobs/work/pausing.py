"""Pausing: a queue that is paused delivers no job to any of its groups. Putting, ticks and delays go on.

The string `NAME:paused` holds the time of the pause, unix ms. It is deleted when the queue goes on.
"""

from __future__ import annotations

from tidelog.engine.api import Keyspace
from tidelog.jobs.options import Options
from tidelog.jobs.streams import wrong_type


def paused_since(keys: Keyspace, options: Options) -> int | None:
    """[lock] When the queue was paused, unix ms; None if it is not paused. Raises ResponseError for a key of another
    type.
    """
    stored = keys.get(options.paused_key)
    if stored is None:
        return None
    if not isinstance(stored, bytes):
        raise wrong_type(options.paused_key, "string")
    return int(stored) if stored.isdigit() and len(stored) < 20 else 0
