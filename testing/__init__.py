"""Helpers for testing programs that use tidelog: temporary stores and queues, and a clock that the test moves.

    from tidelog import testing

    clock = testing.Clock()
    with testing.store(clock=clock) as db:
        db.set("token", "abc", ex=60)
        clock.advance(61)
        assert db.get("token") is None

`tidelog.testing.fixtures` has pytest fixtures for a store and a clock; this package itself does not need pytest.
"""

from tidelog.testing.clock import Clock
from tidelog.testing.queues import aqueue, queue
from tidelog.testing.stores import astore, store

__all__ = ["Clock", "aqueue", "astore", "queue", "store"]
